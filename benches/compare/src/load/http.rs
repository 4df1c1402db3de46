//! HTTP requests (W9): those of the echo's clients, which have to know how long an answer is.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::connections::address;
use super::echo;
use crate::params::Params;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

pub(super) fn run(params: &Params) -> io::Result<()> {
    let answer = answer(params)?;
    echo::measure(params, REQUEST, answer)
}

/// How long an answer is: the same each time, as a date is always of one length.
fn answer(params: &Params) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address(params))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(REQUEST)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.extend(byte);
    }
    match answer.starts_with(b"HTTP/1.1 200 OK\r\n") {
        true => Ok(answer.len()),
        false => Err(io::Error::other(String::from_utf8_lossy(&answer))),
    }
}

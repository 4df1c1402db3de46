//! Connections that do nothing (W10), and connections that come and go.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::say;
use crate::params::Params;

/// Opens so many connections, once it is told to, and keeps them until the server's process ends.
pub(super) fn idle(params: &Params) -> io::Result<()> {
    let address = address(params);
    // One before all others: what a server makes for its first connection is not counted.
    let first = connect(address)?;
    say("begin")?;
    io::stdin().read_line(&mut String::new())?; // the server looks at its memory first
    let start = Instant::now();
    let count = params.get("conns");
    let connections = (0..count)
        .map(|_| connect(address))
        .collect::<io::Result<Vec<_>>>()?;
    say(&format!("end {count} {}", start.elapsed().as_nanos()))?;
    io::stdin().read_to_end(&mut Vec::new())?;
    drop((first, connections));
    Ok(())
}

/// Opens a connection, has a byte echoed, resets it; then the next one.
pub(super) fn rate(params: &Params) -> io::Result<()> {
    let address = address(params);
    let duration = Duration::from_millis(params.get("millis") as u64);
    let cycle = || -> io::Result<()> {
        let stream = connect(address)?;
        // Reset, not closed: no port is left in TIME_WAIT, so they last.
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        Ok(())
    };
    for _ in 0..20 {
        cycle()?;
    }
    say("begin")?;
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < duration {
        cycle()?;
        count += 1;
    }
    say(&format!("end {count} {}", start.elapsed().as_nanos()))
}

/// Connects, and has a byte echoed: then the server has accepted it, and its handler waits in a read.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

pub(super) fn address(params: &Params) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, params.get("port") as u16).into()
}

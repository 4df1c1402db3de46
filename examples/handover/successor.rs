//! Passes a listener to the next process, as its standard input: in safe code.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use loopgroup::net::Server;

/// Takes the listener from standard input, or binds one; and keeps a descriptor of it for the successor.
pub(crate) fn inherit_or_bind(address: &str) -> io::Result<(Server, OwnedFd)> {
    let inherited = io::stdin().as_fd().try_clone_to_owned()?;
    if let Ok(server) = Server::from_fd(inherited.try_clone()?) {
        return Ok((server, inherited));
    }
    let listener = TcpListener::bind(address)?;
    let server = Server::from_listener(listener.try_clone()?)?;
    Ok((server, listener.into()))
}

/// Starts this program again, and waits until it serves.
pub(crate) fn start(listener: OwnedFd, address: &str) -> io::Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["serve", address])
        .stdin(Stdio::from(listener))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::Error::other(child.wait()?.to_string()));
    }
    io::stderr().write_all(line.as_bytes())
}

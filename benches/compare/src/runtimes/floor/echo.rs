//! W8 and W10 by hand: one epoll, edge-triggered, one buffer for all connections, written from where it was
//! read to.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::runtimes::echo::listener;

const LISTENER: Token = Token(usize::MAX);

/// Serves on a thread of its own; the buffer is the loop's, so `_buffer` does not matter.
pub(crate) fn serve(_buffer: usize) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || run(TcpListener::from_std(listener)));
    address
}

struct Connection {
    stream: TcpStream,
    /// What the peer did not take at once.
    unsent: Vec<u8>,
}

fn run(mut listener: TcpListener) {
    let mut poll = Poll::new().expect("a selector can be made");
    let mut events = Events::with_capacity(1024);
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)
        .expect("epoll takes a listener");
    loop {
        poll.poll(&mut events, None)
            .expect("the wait does not fail");
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    let place = free.pop().unwrap_or(connections.len());
                    let both = Interest::READABLE | Interest::WRITABLE;
                    let registered = poll.registry().register(&mut stream, Token(place), both);
                    if registered.is_err() || stream.set_nodelay(true).is_err() {
                        free.push(place);
                        continue;
                    }
                    if place == connections.len() {
                        connections.push(None);
                    }
                    connections[place] = Some(Connection {
                        stream,
                        unsent: Vec::new(),
                    });
                }
                continue;
            }
            let place = event.token().0;
            if let Some(connection) = &mut connections[place]
                && connection.turn(&mut buffer).is_none()
            {
                connections[place] = None;
                free.push(place);
            }
        }
    }
}

impl Connection {
    /// Echoes until there is nothing to read or no room to write; `None` when the connection is over.
    fn turn(&mut self, buffer: &mut [u8]) -> Option<()> {
        let unsent = std::mem::take(&mut self.unsent);
        self.write(&unsent)?;
        while self.unsent.is_empty() {
            match self.stream.read(buffer) {
                Ok(0) => return None,
                Ok(len) => {
                    self.write(&buffer[..len])?;
                    if len < buffer.len() {
                        break; // all there is: the edge comes again
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        Some(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.unsent.extend_from_slice(bytes);
                    return Some(());
                }
                Err(_) => return None,
            }
        }
        Some(())
    }
}

//! Requests (W8, W9): so many connections, each with so many requests under way, on one thread of mio.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::connections::address;
use super::say;
use crate::params::Params;

pub(super) fn run(params: &Params) -> io::Result<()> {
    let size = params.get("size");
    measure(params, &vec![7; size], size)
}

/// Sends `request`, again and again, and takes so many bytes for its answer.
pub(super) fn measure(params: &Params, request: &[u8], answer: usize) -> io::Result<()> {
    let mut client = Client::connect(params, request, answer)?;
    let duration = Duration::from_millis(params.get("millis") as u64);
    client.run_for(duration / 5)?; // warm-up
    say("begin")?;
    let start = Instant::now();
    let count = client.run_for(duration)?;
    say(&format!("end {count} {}", start.elapsed().as_nanos()))
}

struct Client {
    poll: Poll,
    connections: Vec<Connection>,
    /// As many requests as may be under way.
    requests: Vec<u8>,
    /// Where answers go.
    buffer: Vec<u8>,
    sizes: Sizes,
}

/// How long a request is, and an answer.
#[derive(Clone, Copy)]
struct Sizes {
    request: usize,
    answer: usize,
}

struct Connection {
    stream: TcpStream,
    /// Bytes of requests that are not written yet; whole ones but for the first.
    unsent: usize,
    /// Bytes of an answer that is not complete.
    received: usize,
}

impl Client {
    fn connect(params: &Params, request: &[u8], answer: usize) -> io::Result<Client> {
        let requests = request.repeat(params.get("depth"));
        let poll = Poll::new()?;
        let mut connections = Vec::new();
        for token in 0..params.get("conns") {
            let stream = std::net::TcpStream::connect(address(params))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(token), both)?;
            connections.push(Connection {
                stream,
                unsent: requests.len(),
                received: 0,
            });
        }
        Ok(Client {
            poll,
            connections,
            buffer: vec![0; (answer * params.get("depth")).max(64 * 1024)],
            requests,
            sizes: Sizes {
                request: request.len(),
                answer,
            },
        })
    }

    /// Keeps all connections busy for so long; says how many answers came.
    fn run_for(&mut self, duration: Duration) -> io::Result<u64> {
        let mut events = Events::with_capacity(1024);
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < duration {
            self.poll.poll(&mut events, Some(Duration::from_secs(5)))?;
            if events.is_empty() {
                return Err(io::Error::new(ErrorKind::TimedOut, "no answer for 5 s"));
            }
            for event in &events {
                let connection = &mut self.connections[event.token().0];
                count += connection.receive(&mut self.buffer, self.sizes)?;
                connection.send(&self.requests)?;
            }
        }
        Ok(count)
    }
}

impl Connection {
    /// Reads all there is. Each complete answer makes room for the next request.
    fn receive(&mut self, buffer: &mut [u8], sizes: Sizes) -> io::Result<u64> {
        let mut answers = 0;
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    self.received += len;
                    answers += self.received / sizes.answer;
                    self.received %= sizes.answer;
                    if len < buffer.len() {
                        break; // all there is: the edge comes again
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.unsent += answers * sizes.request;
        Ok(answers as u64)
    }

    /// Writes what is not written yet: the end of `requests`, as each of them is the same.
    fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        while self.unsent > 0 {
            let unsent = &requests[requests.len() - self.unsent..];
            match self.stream.write(unsent) {
                Ok(len) => self.unsent -= len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

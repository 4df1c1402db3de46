//! Requests of uneven clients (W16): some ask all the time, the others now and then.
//!
//! - Connections are made one after the other, the hot ones first: a server that places them in the order in
//!   which it accepts them knows which is which.
//! - Latency is that of all requests, as their clients see it.
//! - Each answer is compared with what the request hashes to.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::connections::address;
use super::say;
use crate::params::Params;
use crate::stats::quantile;
use crate::workloads::hashing::{ANSWER, REQUEST, answer};

/// How long a client waits that is not hot, from one answer to its next request.
const PAUSE: Duration = Duration::from_millis(20);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn run(params: &Params) -> io::Result<()> {
    let mut crowd = Crowd::connect(params)?;
    let millis = |key| Duration::from_millis(params.get(key) as u64);
    crowd.run_for(millis("warm"))?;
    crowd.nanos.clear();
    say("begin")?;
    let start = Instant::now();
    crowd.run_for(millis("millis"))?;
    let time = start.elapsed().as_nanos();
    let at = |part| quantile(&crowd.nanos, part) as u64;
    let (count, p50, p99) = (crowd.nanos.len(), at(0.5), at(0.99));
    say(&format!("end {count} {time} {p50} {p99}"))
}

struct Crowd {
    poll: Poll,
    clients: Vec<Client>,
    request: [u8; REQUEST],
    expected: [u8; ANSWER],
    /// How long each request took that was answered.
    nanos: Vec<f64>,
}

struct Client {
    stream: TcpStream,
    is_hot: bool,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// Asks at this time.
    Rests(Instant),
    /// Has asked at that time.
    Waits(Instant),
}

impl Crowd {
    fn connect(params: &Params) -> io::Result<Crowd> {
        let (conns, hot) = (params.get("conns"), params.get("hot"));
        let poll = Poll::new()?;
        let mut clients = Vec::new();
        for number in 0..conns {
            let stream = std::net::TcpStream::connect(address(params))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let registry = poll.registry();
            registry.register(&mut stream, Token(number), Interest::READABLE)?;
            clients.push(Client {
                stream,
                is_hot: number < hot,
                state: State::Rests(Instant::now()),
            });
        }
        let request = std::array::from_fn(|place| place as u8);
        Ok(Crowd {
            poll,
            clients,
            expected: answer(&request, params.get("work")),
            request,
            nanos: Vec::new(),
        })
    }

    /// Has all clients ask for so long.
    fn run_for(&mut self, duration: Duration) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        let start = Instant::now();
        while start.elapsed() < duration {
            let next = self.ask_who_rested()?;
            self.poll.poll(&mut events, next)?;
            for event in &events {
                let client = &mut self.clients[event.token().0];
                if let Some(time) = client.receive(&self.expected)? {
                    self.nanos.push(time.as_nanos() as f64);
                    if client.is_hot {
                        client.ask(&self.request)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Says how long it is until the next one has rested.
    fn ask_who_rested(&mut self) -> io::Result<Option<Duration>> {
        let now = Instant::now();
        let mut next = PATIENCE;
        for client in &mut self.clients {
            match client.state {
                State::Rests(until) if until <= now => client.ask(&self.request)?,
                State::Rests(until) => next = next.min(until - now),
                State::Waits(since) if now - since > PATIENCE => {
                    return Err(io::Error::new(ErrorKind::TimedOut, "no answer for 5 s"));
                }
                State::Waits(_) => {}
            }
        }
        Ok(Some(next))
    }
}

impl Client {
    fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        self.state = State::Waits(Instant::now());
        // Nothing else is under way on this connection: there is room.
        self.stream.write_all(request)
    }

    /// How long the answer took, if it is there.
    fn receive(&mut self, expected: &[u8; ANSWER]) -> io::Result<Option<Duration>> {
        let mut answer = [0; ANSWER];
        match self.stream.read(&mut answer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            // It is written in one piece, and short.
            Ok(_) if answer == *expected => {}
            Ok(_) => return Err(io::Error::other(format!("a wrong answer: {answer:?}"))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let State::Waits(since) = self.state else {
            return Err(io::Error::other("an answer that nobody asked for"));
        };
        self.state = State::Rests(Instant::now() + PAUSE);
        Ok(Some(since.elapsed()))
    }
}

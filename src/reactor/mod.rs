//! The wait of a loop: for its bell, and for the descriptors in its table.
//!
//! - A loop waits in its driver and nowhere else: in `mio` when the group does I/O, on a parking
//!   place when it does not.
//! - A ring before the wait is remembered by the driver, so `sleeping → ring → wait` cannot hang.
//! - `EINTR` is no event and no error.
//! - Any other error, and 512 waits in a row that end early and with nothing, rebuild the reactor:
//!   a new selector, a new bell, every descriptor registered again. Producers that still hold the old
//!   bell rang for a loop that is awake by now, so nothing is lost. Three rebuilds in a row without
//!   one good wait are a failure.
//! - Whoever waits for a descriptor is handed out, to be woken by the loop with nothing held.

pub(crate) mod direction;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod wait_list;

use std::borrow::Borrow;
use std::io;
use std::task::Waker;
use std::time::{Duration, Instant};

use mio::{Events, Poll};

use crate::park::{Parker, round_up};
use crate::reactor::source::Source;
use crate::reactor::table::{BELL, Table};
use crate::sync::{self, Arc, Mutex};
use crate::trace;

/// The token of the bell, which no descriptor can have.

/// Waits in a row that may end early and with nothing; Netty's figure.
const PREMATURE_LIMIT: u32 = 512;
/// Rebuilds in a row that may be tried.
const REBUILD_LIMIT: u32 = 3;
/// The longest single wait: far below what the selector's milliseconds can hold.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// How a loop waits; loop thread only.
#[derive(Debug)]
pub(crate) enum Driver {
    Io(Reactor),
    Park(Arc<Parker>),
}

/// What other threads reach of a driver.
#[derive(Debug)]
pub(crate) struct Port<W> {
    pub(crate) bell: Doorbell,
    /// `None` for a loop without a selector.
    pub(crate) table: Option<Table<W>>,
}

impl<W: Borrow<Source>> Port<W> {
    /// Gives the descriptors back; hands out who waits.
    ///
    /// A loop that ran has closed its channels before. One that ends without a thread has not, and
    /// counts as started a moment earlier: somebody may have come to wait there.
    pub(crate) fn close(&self) -> Vec<Waker> {
        let mut woken = Vec::new();
        if let Some(table) = &self.table {
            table.close(&mut woken);
        }
        if let Doorbell::Io(waker) = &self.bell {
            *waker.lock() = None;
        }
        woken
    }
}

/// How other threads end the wait.
#[derive(Debug)]
pub(crate) enum Doorbell {
    /// `None` once the loop has ended: handles that stay keep no descriptor open.
    Io(Mutex<Option<mio::Waker>>),
    Park(Arc<Parker>),
}

impl Driver {
    /// A driver with a selector.
    pub(crate) fn with_io<W: Borrow<Source>>() -> io::Result<(Driver, Port<W>)> {
        let (poll, waker) = selector()?;
        let table = Table::new(poll.registry().try_clone()?);
        let reactor = Reactor {
            poll,
            events: Events::with_capacity(1024),
            health: Health::default(),
        };
        let port = Port {
            bell: Doorbell::Io(Mutex::new(Some(waker))),
            table: Some(table),
        };
        Ok((Driver::Io(reactor), port))
    }

    /// A driver that only parks.
    pub(crate) fn without_io<W>() -> (Driver, Port<W>) {
        let parker = Arc::new(Parker::new());
        let port = Port {
            bell: Doorbell::Park(Arc::clone(&parker)),
            table: None,
        };
        (Driver::Park(parker), port)
    }

    /// Waits for a ring or readiness, as long as `until` says at most; adds to `ready` whoever has
    /// waited for what is ready.
    pub(crate) fn wait<W: Borrow<Source>>(
        &mut self,
        port: &Port<W>,
        until: Option<WaitUntil>,
        ready: &mut Vec<Waker>,
    ) -> io::Result<()> {
        match self {
            Driver::Park(parker) => {
                // In whole milliseconds, as the selector: a crowd of timers shares its wake-ups.
                parker.park(until.map(|until| round_up(until.left())));
                Ok(())
            }
            Driver::Io(reactor) => reactor.wait(port, until, ready),
        }
    }

    /// Whether somebody has rung a loop that only parks.
    pub(crate) fn was_rung(&self) -> bool {
        matches!(self, Driver::Park(parker) if parker.has_permit())
    }

    /// Takes the ring, as a wait would.
    pub(crate) fn forget_ring(&self) {
        if let Driver::Park(parker) = self {
            parker.park(Some(Duration::ZERO));
        }
    }

    /// Takes what is ready now, without waiting.
    pub(crate) fn poll_now<W: Borrow<Source>>(
        &mut self,
        port: &Port<W>,
        ready: &mut Vec<Waker>,
    ) -> io::Result<()> {
        match self {
            // Nothing but the bell can be ready, and a loop that looks is awake.
            Driver::Park(_) => Ok(()),
            Driver::Io(reactor) => reactor.turn(port, Some(Duration::ZERO), ready).map(drop),
        }
    }
}

impl Doorbell {
    /// Ends the wait of the loop, or the next one if it does not wait.
    pub(crate) fn ring(&self) -> io::Result<()> {
        match self {
            Doorbell::Park(parker) => {
                parker.unpark();
                Ok(())
            }
            Doorbell::Io(waker) => match &*waker.lock() {
                Some(waker) => waker.wake(),
                None => Ok(()),
            },
        }
    }
}

/// The end of a wait, with the clock reading that the loop has already taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitUntil {
    pub(crate) deadline: Instant,
    pub(crate) now: Instant,
}

impl WaitUntil {
    /// The same end, with a new reading.
    pub(crate) fn read_again(self) -> WaitUntil {
        WaitUntil {
            now: sync::now(),
            ..self
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(self.now)
    }
}

/// A selector and the memory of how well it works.
#[derive(Debug)]
pub(crate) struct Reactor {
    poll: Poll,
    events: Events,
    health: Health,
}

impl Reactor {
    fn wait<W: Borrow<Source>>(
        &mut self,
        port: &Port<W>,
        until: Option<WaitUntil>,
        ready: &mut Vec<Waker>,
    ) -> io::Result<()> {
        let timeout = until.map(|until| until.left().min(LONGEST_WAIT));
        let PollOutcome::Empty = self.turn(port, timeout, ready)? else {
            return Ok(());
        };
        // The clock is read only when there is a suspicion.
        let in_time = until
            .is_some_and(|until| timeout == Some(LONGEST_WAIT) || sync::now() >= until.deadline);
        match self.health.empty_wait(in_time) {
            HealthVerdict::Fine => Ok(()),
            HealthVerdict::Rebuild => self.rebuild(port, ready, None),
            HealthVerdict::GiveUp => Err(io::Error::other(
                "the selector returns at once and with nothing, also after it was rebuilt",
            )),
        }
    }

    /// One call of the selector.
    fn turn<W: Borrow<Source>>(
        &mut self,
        port: &Port<W>,
        timeout: Option<Duration>,
        ready: &mut Vec<Waker>,
    ) -> io::Result<PollOutcome> {
        match sync::select(&mut self.poll, &mut self.events, timeout) {
            Ok(()) if self.events.is_empty() => Ok(PollOutcome::Empty),
            Ok(()) => {
                self.health.good_wait();
                // Most wake-ups are the bell alone: no need for the table's lock.
                let bell_alone = self.events.iter().all(|event| event.token() == BELL);
                if let (false, Some(table)) = (bell_alone, &port.table) {
                    table.report(&self.events, ready);
                }
                Ok(PollOutcome::Events)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                Ok(PollOutcome::Interrupted)
            }
            Err(error) if self.health.may_rebuild() => {
                self.rebuild(port, ready, Some(&error))?;
                Ok(PollOutcome::Interrupted)
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces selector and bell, and registers every descriptor again: after an error, or without one,
    /// after waits that ended early.
    #[cold]
    fn rebuild<W: Borrow<Source>>(
        &mut self,
        port: &Port<W>,
        ready: &mut Vec<Waker>,
        error: Option<&io::Error>,
    ) -> io::Result<()> {
        let (poll, waker) = selector()?;
        if let Some(table) = &port.table {
            table.rebuild(poll.registry().try_clone()?, ready);
        }
        if let Doorbell::Io(slot) = &port.bell {
            *slot.lock() = Some(waker);
        }
        self.poll = poll;
        self.health.rebuilt();
        trace::rebuilt(error);
        Ok(())
    }
}

/// What a call of the selector came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollOutcome {
    Events,
    Empty,
    Interrupted,
}

fn selector() -> io::Result<(Poll, mio::Waker)> {
    let poll = Poll::new()?;
    let waker = mio::Waker::new(poll.registry(), BELL)?;
    Ok((poll, waker))
}

/// What is to be done about a wait that ended with nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthVerdict {
    Fine,
    Rebuild,
    GiveUp,
}

/// How well the selector has worked of late.
#[derive(Debug, Default)]
struct Health {
    premature: u32,
    rebuilds: u32,
}

impl Health {
    fn good_wait(&mut self) {
        self.premature = 0;
        self.rebuilds = 0;
    }

    /// Notes a wait that ended with nothing.
    fn empty_wait(&mut self, in_time: bool) -> HealthVerdict {
        if in_time {
            self.good_wait();
            return HealthVerdict::Fine;
        }
        self.premature += 1;
        if self.premature < PREMATURE_LIMIT {
            HealthVerdict::Fine
        } else if self.may_rebuild() {
            HealthVerdict::Rebuild
        } else {
            HealthVerdict::GiveUp
        }
    }

    fn may_rebuild(&self) -> bool {
        self.rebuilds < REBUILD_LIMIT
    }

    fn rebuilt(&mut self) {
        self.premature = 0;
        self.rebuilds += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::direction::Direction;
    use crate::reactor::source::Readiness;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_ring_before_the_wait_ends_it() {
        for (mut driver, port) in [Driver::with_io::<Source>().unwrap(), Driver::without_io()] {
            port.bell.ring().unwrap();
            driver.wait(&port, None, &mut Vec::new()).unwrap();
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        for (mut driver, port) in [Driver::with_io::<Source>().unwrap(), Driver::without_io()] {
            let now = Instant::now();
            let deadline = now + Duration::from_millis(5);
            driver
                .wait(&port, Some(WaitUntil { deadline, now }), &mut Vec::new())
                .unwrap();
            assert!(Instant::now() >= deadline);
        }
    }

    #[test]
    fn premature_returns_rebuild_at_512_and_never_for_ever() {
        let mut health = Health::default();
        for _ in 0..REBUILD_LIMIT {
            for _ in 1..PREMATURE_LIMIT {
                assert_eq!(health.empty_wait(false), HealthVerdict::Fine);
            }
            assert_eq!(health.empty_wait(false), HealthVerdict::Rebuild);
            health.rebuilt();
        }
        for _ in 1..PREMATURE_LIMIT {
            assert_eq!(health.empty_wait(false), HealthVerdict::Fine);
        }
        assert_eq!(health.empty_wait(false), HealthVerdict::GiveUp);
        health.good_wait();
        assert!(health.may_rebuild());
    }

    #[test]
    fn a_wait_that_ran_its_time_is_not_premature() {
        let mut health = Health::default();
        for _ in 0..10 * PREMATURE_LIMIT {
            assert_eq!(health.empty_wait(true), HealthVerdict::Fine);
        }
    }

    #[test]
    fn a_port_that_closes_hands_out_who_waits() {
        let (_driver, port) = Driver::with_io::<Source>().unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let source = Arc::new(Source::default());
        let table = port.table.as_ref().unwrap();
        table.register(one.as_raw_fd(), &source).unwrap().unwrap();
        drop(source.store(Direction::Read, Waker::noop().clone()));
        assert_eq!(port.close().len(), 1);
        assert_eq!(source.readiness(Direction::Read), Readiness::Shut);
    }

    #[test]
    fn a_rebuilt_reactor_still_watches_what_it_had() {
        let (driver, port) = Driver::with_io::<Source>().unwrap();
        let Driver::Io(mut reactor) = driver else {
            panic!("made with a reactor")
        };
        let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let source = Arc::new(Source::default());
        let table = port.table.as_ref().unwrap();
        let token = table.register(one.as_raw_fd(), &source).unwrap().unwrap();
        reactor.rebuild(&port, &mut Vec::new(), None).unwrap();
        drop(source.store(Direction::Read, Waker::noop().clone()));
        other.write_all(b"x").unwrap();
        let mut ready = Vec::new();
        while ready.is_empty() {
            reactor.wait(&port, None, &mut ready).unwrap();
        }
        assert!(matches!(
            source.readiness(Direction::Read),
            Readiness::Ready(_)
        ));
        table.deregister(token);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_rebuilt_reactor_answers_to_its_new_bell() {
        let (driver, port) = Driver::with_io::<Source>().unwrap();
        let Driver::Io(mut reactor) = driver else {
            panic!("made with a reactor")
        };
        reactor.rebuild(&port, &mut Vec::new(), None).unwrap();
        port.bell.ring().unwrap();
        reactor.wait(&port, None, &mut Vec::new()).unwrap();
    }
}

//! Where a loop waits: for its bell, and for the descriptors in its table.
//!
//! - A loop waits in its driver and nowhere else: in `mio` if the group does I/O, otherwise in a
//!   [`Parker`]. A loop of a simulation never waits: the simulation runs it when its bell was rung.
//! - The driver remembers a ring before the wait, so `sleeping → ring → wait` cannot hang.
//! - `EINTR` is neither an event nor an error.
//! - Any other error, and 512 consecutive waits that end early and without events, rebuild the reactor:
//!   a new selector, a new bell, every descriptor registered again. A producer that used the old bell
//!   rang for a loop that is awake by now, so no ring is lost. Three consecutive rebuilds without a
//!   good wait are a failure.
//! - A wait ends at its deadline or up to a millisecond later, never before. A precise driver ends it at the
//!   deadline: the selector by an [`alarm`].
//! - The wakers of tasks that wait for a descriptor are returned; the loop wakes them with no lock held.

pub(crate) mod alarm;
pub(crate) mod direction;
pub(crate) mod registrar;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod wait_list;

use std::borrow::Borrow;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::task::Waker;
use std::time::{Duration, Instant};

use mio::{Events, Poll};

use crate::park::{Parker, round_up};
use crate::reactor::alarm::Alarm;
use crate::reactor::registrar::Registrar;
use crate::reactor::source::Source;
use crate::reactor::table::{ALARM, BELL, Table};
use crate::sim::{Bell, Network, ReadyEvent, Selector};
use crate::sync::{self, Arc, Mutex};
use crate::trace;

/// Consecutive waits that may end early and without events; the same as Netty's.
const PREMATURE_LIMIT: u32 = 512;
/// Consecutive rebuilds that may be tried.
const REBUILD_LIMIT: u32 = 3;
/// The longest single wait: far below the range of the selector's milliseconds.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// How a loop waits; loop thread only.
#[derive(Debug)]
pub(crate) enum Driver {
    Io(Reactor),
    Park(Arc<Parker>, Precision),
    Simulated(SimulatedReactor),
}

/// The selector of a loop of a simulation.
#[derive(Debug)]
pub(crate) struct SimulatedReactor {
    selector: Arc<Selector>,
    bell: Bell,
    events: Vec<ReadyEvent>,
}

/// How exactly a wait ends at its deadline; never before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// In whole milliseconds, so that nearby timers share a wake-up.
    Millis,
    /// As exactly as the system can.
    Exact,
}

/// The part of a driver that other threads reach.
#[derive(Debug)]
pub(crate) struct Port<W> {
    pub(crate) bell: Doorbell,
    /// `None` for a loop without a selector.
    pub(crate) table: Option<Table<W>>,
}

impl<W: Borrow<Source>> Port<W> {
    /// Deregisters the descriptors; returns the wakers of the tasks that wait for them.
    ///
    /// A loop that ran has closed its channels before. A loop that ends without a thread has not, and a
    /// task on another loop may have registered a descriptor while it was starting.
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

/// How other threads end the wait of the loop.
#[derive(Debug)]
pub(crate) enum Doorbell {
    /// `None` once the loop has ended: remaining handles keep no descriptor open.
    Io(Mutex<Option<mio::Waker>>),
    Park(Arc<Parker>),
    Simulated(Bell),
}

impl Driver {
    /// Creates a driver with a selector.
    pub(crate) fn with_io<W: Borrow<Source>>(
        precision: Precision,
    ) -> io::Result<(Driver, Port<W>)> {
        let (poll, waker) = selector()?;
        let alarm = match precision {
            Precision::Millis => None,
            Precision::Exact => Some(Alarm::new(poll.registry())?),
        };
        let table = Table::new(poll.registry().try_clone()?);
        let reactor = Reactor {
            poll,
            events: Events::with_capacity(1024),
            alarm,
            health: Health::default(),
        };
        let port = Port {
            bell: Doorbell::Io(Mutex::new(Some(waker))),
            table: Some(table),
        };
        Ok((Driver::Io(reactor), port))
    }

    /// Creates a driver that only parks.
    pub(crate) fn without_io<W>(precision: Precision) -> (Driver, Port<W>) {
        let parker = Arc::new(Parker::new());
        let port = Port {
            bell: Doorbell::Park(Arc::clone(&parker)),
            table: None,
        };
        (Driver::Park(parker, precision), port)
    }

    /// Creates the driver of a loop on a host of a simulated network; `bell` tells the simulation to run it.
    pub(crate) fn simulated<W: Borrow<Source>>(
        network: &Arc<Network>,
        bell: Bell,
        io: bool,
    ) -> (Driver, Port<W>) {
        let selector = Selector::new(bell.clone());
        let registrar = Registrar::Simulated(Arc::clone(network), Arc::clone(&selector));
        let port = Port {
            bell: Doorbell::Simulated(bell.clone()),
            table: io.then(|| Table::new(registrar)),
        };
        let reactor = SimulatedReactor {
            selector,
            bell,
            events: Vec::new(),
        };
        (Driver::Simulated(reactor), port)
    }

    /// Waits for a ring or readiness, until `until` at most; adds the wakers of tasks that waited for
    /// what is ready to `ready`.
    pub(crate) fn wait<W: Borrow<Source>>(
        &mut self,
        port: &Port<W>,
        until: Option<WaitUntil>,
        ready: &mut Vec<Waker>,
    ) -> io::Result<()> {
        match self {
            Driver::Park(parker, precision) => {
                let left = until.map(|until| until.left());
                parker.park(match precision {
                    Precision::Millis => left.map(round_up),
                    Precision::Exact => left,
                });
                Ok(())
            }
            Driver::Io(reactor) => reactor.wait(port, until, ready),
            Driver::Simulated(_) => Err(io::Error::other(
                "a loop of a simulation was run by something else",
            )),
        }
    }

    /// The descriptor of the selector, which is readable while something is ready or the bell was rung;
    /// another one after a rebuild.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        match self {
            Driver::Park(..) | Driver::Simulated(_) => None,
            Driver::Io(reactor) => Some(reactor.poll.as_raw_fd()),
        }
    }

    /// Whether the bell of a loop that a test drives was rung.
    pub(crate) fn was_rung(&self) -> bool {
        match self {
            Driver::Park(parker, _) => parker.has_permit(),
            Driver::Simulated(reactor) => reactor.bell.was_rung(),
            Driver::Io(_) => false,
        }
    }

    /// Consumes the ring, as a wait would.
    pub(crate) fn forget_ring(&self) {
        match self {
            Driver::Park(parker, _) => drop(parker.park(Some(Duration::ZERO))),
            Driver::Simulated(reactor) => reactor.bell.answer(),
            Driver::Io(_) => {}
        }
    }

    /// Collects what is ready now, without waiting.
    pub(crate) fn poll_now<W: Borrow<Source>>(
        &mut self,
        port: &Port<W>,
        ready: &mut Vec<Waker>,
    ) -> io::Result<()> {
        match self {
            // Only the bell could be ready, and this loop is awake.
            Driver::Park(..) => Ok(()),
            Driver::Io(reactor) => reactor
                .poll_once(port, Some(Duration::ZERO), ready)
                .map(drop),
            Driver::Simulated(reactor) => {
                reactor.collect(port, ready);
                Ok(())
            }
        }
    }
}

impl SimulatedReactor {
    fn collect<W: Borrow<Source>>(&mut self, port: &Port<W>, ready: &mut Vec<Waker>) {
        self.selector.take(&mut self.events);
        if let (Some(table), false) = (&port.table, self.events.is_empty()) {
            table.report_simulated(&self.events, ready);
        }
        self.events.clear();
    }
}

impl Doorbell {
    /// Ends the wait of the loop, or the next one if it is not waiting.
    pub(crate) fn ring(&self) -> io::Result<()> {
        match self {
            Doorbell::Park(parker) => {
                parker.unpark();
                Ok(())
            }
            Doorbell::Simulated(bell) => {
                bell.ring();
                Ok(())
            }
            Doorbell::Io(waker) => match &*waker.lock() {
                Some(waker) => waker.wake(),
                None => Ok(()),
            },
        }
    }
}

/// The deadline of a wait, with the clock reading that the loop has already taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitUntil {
    pub(crate) deadline: Instant,
    pub(crate) now: Instant,
}

impl WaitUntil {
    /// The same deadline, with a new reading.
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

/// A selector, and how well it has worked.
#[derive(Debug)]
pub(crate) struct Reactor {
    poll: Poll,
    events: Events,
    /// Ends the waits of a precise driver.
    alarm: Option<Alarm>,
    health: Health,
}

impl Reactor {
    fn wait<W: Borrow<Source>>(
        &mut self,
        port: &Port<W>,
        until: Option<WaitUntil>,
        ready: &mut Vec<Waker>,
    ) -> io::Result<()> {
        let mut timeout = until.map(|until| until.left().min(LONGEST_WAIT));
        if let (Some(alarm), Some(until)) = (&mut self.alarm, until) {
            if alarm.set_for(until.now, until.left()) {
                timeout = None;
            }
        }
        if self.poll_once(port, timeout, ready)? {
            return Ok(());
        }
        // The clock is read only if the wait ended without events.
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

    /// Calls the selector once; returns `false` if it returned with nothing.
    fn poll_once<W: Borrow<Source>>(
        &mut self,
        port: &Port<W>,
        timeout: Option<Duration>,
        ready: &mut Vec<Waker>,
    ) -> io::Result<bool> {
        match sync::select(&mut self.poll, &mut self.events, timeout) {
            Ok(()) if self.events.is_empty() => Ok(false),
            Ok(()) => {
                self.health.good_wait();
                let mut descriptors = false;
                for event in &self.events {
                    match event.token() {
                        BELL => {}
                        ALARM => self.alarm.iter_mut().for_each(Alarm::rang),
                        _ => descriptors = true,
                    }
                }
                // Most wake-ups are only the bell: no need for the table's lock.
                if let (true, Some(table)) = (descriptors, &port.table) {
                    table.report(&self.events, ready);
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if self.health.may_rebuild() => {
                self.rebuild(port, ready, Some(&error))?;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces the selector and the bell, and registers every descriptor again: after an error, or after
    /// waits that ended early.
    #[cold]
    fn rebuild<W: Borrow<Source>>(
        &mut self,
        port: &Port<W>,
        ready: &mut Vec<Waker>,
        error: Option<&io::Error>,
    ) -> io::Result<()> {
        let (poll, waker) = selector()?;
        if let Some(alarm) = &mut self.alarm {
            alarm.register(poll.registry())?;
        }
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

fn selector() -> io::Result<(Poll, mio::Waker)> {
    let poll = Poll::new()?;
    let waker = mio::Waker::new(poll.registry(), BELL)?;
    Ok((poll, waker))
}

/// What to do about a wait that ended without events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthVerdict {
    Fine,
    Rebuild,
    GiveUp,
}

/// How well the selector has worked recently.
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

    /// Records a wait that ended without events; `in_time` if it did not end early.
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

    /// Every kind of driver.
    fn drivers() -> [(Driver, Port<Source>); 4] {
        [
            Driver::with_io(Precision::Millis).unwrap(),
            Driver::with_io(Precision::Exact).unwrap(),
            Driver::without_io(Precision::Millis),
            Driver::without_io(Precision::Exact),
        ]
    }

    #[test]
    fn a_ring_before_the_wait_ends_it() {
        for (mut driver, port) in drivers() {
            port.bell.ring().unwrap();
            driver.wait(&port, None, &mut Vec::new()).unwrap();
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        for (mut driver, port) in drivers() {
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
    fn closing_a_port_returns_the_wakers_of_its_waiters() {
        let (_driver, port) = Driver::with_io::<Source>(Precision::Millis).unwrap();
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
        let (driver, port) = Driver::with_io::<Source>(Precision::Millis).unwrap();
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
    fn a_rebuilt_reactor_keeps_its_alarm() {
        let (driver, port) = Driver::with_io::<Source>(Precision::Exact).unwrap();
        let Driver::Io(mut reactor) = driver else {
            panic!("made with a reactor")
        };
        for _ in 0..2 {
            reactor.rebuild(&port, &mut Vec::new(), None).unwrap();
            let now = Instant::now();
            let deadline = now + Duration::from_micros(1_300);
            let until = Some(WaitUntil { deadline, now });
            reactor.wait(&port, until, &mut Vec::new()).unwrap();
            assert!(Instant::now() >= deadline);
            let rang = reactor.events.iter().any(|event| event.token() == ALARM);
            assert_eq!(rang, cfg!(any(target_os = "linux", target_os = "android")));
        }
    }

    #[test]
    fn a_rebuilt_reactor_answers_to_its_new_bell() {
        let (driver, port) = Driver::with_io::<Source>(Precision::Millis).unwrap();
        let Driver::Io(mut reactor) = driver else {
            panic!("made with a reactor")
        };
        reactor.rebuild(&port, &mut Vec::new(), None).unwrap();
        port.bell.ring().unwrap();
        reactor.wait(&port, None, &mut Vec::new()).unwrap();
    }
}

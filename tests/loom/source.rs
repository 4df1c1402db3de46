//! The readiness of one descriptor, reported by true events of mio's.

use std::os::unix::net::UnixStream as Socket;
use std::sync::LazyLock;
use std::task::Waker;

use mio::event::Event;
use mio::net::UnixStream;
use mio::{Events, Interest, Poll, Token};
use waker_fn::waker_fn;

use super::{explore, explore_core};
use crate::park::Parker;
use crate::reactor::source::{Direction, Look, Source};
use crate::reactor::table::Table;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering, thread};

/// What the selector says of a socket.
struct Reported {
    events: Events,
    _sockets: (UnixStream, Socket),
}

impl Reported {
    fn about(interest: Interest) -> Reported {
        let (one, other) = Socket::pair().unwrap();
        std::io::Write::write_all(&mut &other, b"x").unwrap();
        let mut one = UnixStream::from_std(one);
        let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(1));
        poll.registry()
            .register(&mut one, Token(0), interest)
            .unwrap();
        poll.poll(&mut events, None).unwrap();
        Reported {
            events,
            _sockets: (one, other),
        }
    }

    fn event(&self) -> &Event {
        self.events.iter().next().unwrap()
    }
}

static READABLE: LazyLock<Reported> = LazyLock::new(|| Reported::about(Interest::READABLE));
static BOTH: LazyLock<Reported> =
    LazyLock::new(|| Reported::about(Interest::READABLE | Interest::WRITABLE));

/// What the loop does with an event.
fn report(source: &Source, event: &Event) {
    let mut woken = Vec::new();
    source.report(event, &mut woken);
    woken.into_iter().for_each(Waker::wake);
}

fn shut(source: &Source) {
    let mut woken = Vec::new();
    source.shut(&mut woken);
    woken.into_iter().for_each(Waker::wake);
}

/// A waker that leaves a permit.
fn unparks(parker: &Arc<Parker>) -> Waker {
    let parker = Arc::clone(parker);
    waker_fn(move || parker.unpark())
}

/// Waits as a poll function of `Registered` does: stores, then looks again.
fn wait(source: &Source, direction: Direction) -> Look {
    let parker = Arc::new(Parker::new());
    loop {
        if source.look(direction) == Look::NotReady {
            drop(source.store(direction, unparks(&parker)));
        }
        match source.look(direction) {
            Look::NotReady => assert!(parker.park(None)),
            look => return look,
        }
    }
}

/// Waits as a future of `Registered` does.
fn wait_in_the_crowd(source: &Source, direction: Direction) -> Look {
    let parker = Arc::new(Parker::new());
    let mut id = None;
    let look = loop {
        if source.look(direction) == Look::NotReady {
            drop(source.enlist(&mut id, direction, unparks(&parker)));
        }
        match source.look(direction) {
            Look::NotReady => assert!(parker.park(None)),
            look => break look,
        }
    };
    if let Some(id) = id {
        drop(source.delist(id));
    }
    look
}

fn on_a_thread<T: 'static>(
    source: &Arc<Source>,
    act: impl FnOnce(&Source) -> T + 'static,
) -> thread::JoinHandle<T> {
    let source = Arc::clone(source);
    thread::spawn(move || act(&source))
}

#[test]
fn of_an_event_and_a_waiter_that_meet_one_sees_the_other() {
    explore_core(|| {
        let source = Arc::new(Source::default());
        let reader = on_a_thread(&source, |source| wait(source, Direction::Read));
        let writer = on_a_thread(&source, |source| wait(source, Direction::Write));
        report(&source, BOTH.event());
        assert!(matches!(reader.join().unwrap(), Look::Ready(_)));
        assert!(matches!(writer.join().unwrap(), Look::Ready(_)));
    });
}

#[test]
fn an_event_between_the_system_call_and_the_clearing_is_not_swallowed() {
    explore_core(|| {
        let source = Arc::new(Source::default());
        report(&source, READABLE.event());
        // The socket: how much there is to be read.
        let socket = Arc::new(AtomicUsize::new(0));
        let arriving = Arc::clone(&socket);
        let reactor = on_a_thread(&source, move |source| {
            for _ in 0..2 {
                arriving.fetch_add(1, Ordering::AcqRel);
                report(source, READABLE.event());
            }
        });
        let mut read = 0;
        while read < 2 {
            let Look::Ready(tick) = wait(&source, Direction::Read) else {
                panic!("nobody shuts it")
            };
            match socket.swap(0, Ordering::AcqRel) {
                0 => source.blocked(Direction::Read, tick),
                some => read += some,
            }
        }
        reactor.join().unwrap();
    });
}

#[test]
fn a_short_read_that_races_with_the_next_event_leaves_it_standing() {
    explore(|| {
        let source = Arc::new(Source::default());
        report(&source, READABLE.event());
        let socket = Arc::new(AtomicUsize::new(1));
        let arriving = Arc::clone(&socket);
        let reactor = on_a_thread(&source, move |source| {
            arriving.fetch_add(1, Ordering::AcqRel);
            report(source, READABLE.event());
        });
        let mut read = 0;
        while read < 2 {
            let Look::Ready(tick) = wait(&source, Direction::Read) else {
                panic!("nobody shuts it")
            };
            // Less than was asked for: there is no more.
            read += socket.swap(0, Ordering::AcqRel);
            source.short(Direction::Read, tick);
        }
        reactor.join().unwrap();
    });
}

#[test]
fn a_reader_and_a_writer_clear_nothing_but_their_own_direction() {
    explore(|| {
        let source = Arc::new(Source::default());
        report(&source, BOTH.event());
        let reader = on_a_thread(&source, |source| {
            if let Look::Ready(tick) = source.look(Direction::Read) {
                source.blocked(Direction::Read, tick);
            }
        });
        let selector = on_a_thread(&source, |source| report(source, READABLE.event()));
        reader.join().unwrap();
        assert!(matches!(source.look(Direction::Write), Look::Ready(_)));
        selector.join().unwrap();
        assert!(matches!(source.look(Direction::Write), Look::Ready(_)));
    });
}

#[test]
fn every_future_that_waits_for_a_descriptor_is_woken() {
    explore(|| {
        let source = Arc::new(Source::default());
        let one = on_a_thread(&source, |source| wait_in_the_crowd(source, Direction::Read));
        let other = on_a_thread(&source, |source| wait_in_the_crowd(source, Direction::Read));
        report(&source, READABLE.event());
        assert!(matches!(one.join().unwrap(), Look::Ready(_)));
        assert!(matches!(other.join().unwrap(), Look::Ready(_)));
    });
}

#[test]
fn a_future_that_goes_away_takes_nobody_but_itself_along() {
    explore(|| {
        let source = Arc::new(Source::default());
        let stays = on_a_thread(&source, |source| wait_in_the_crowd(source, Direction::Read));
        let goes = on_a_thread(&source, |source| {
            let woken = Arc::new(AtomicBool::new(false));
            let wakes = Arc::clone(&woken);
            let waker = waker_fn(move || wakes.store(true, Ordering::Release));
            let mut id = None;
            drop(source.enlist(&mut id, Direction::Read, waker));
            let taken_out = source.delist(id.unwrap()).is_some();
            // Either it got its waker back, or the event has it and uses it.
            (taken_out, woken)
        });
        report(&source, READABLE.event());
        assert!(matches!(stays.join().unwrap(), Look::Ready(_)));
        let (taken_out, woken) = goes.join().unwrap();
        assert_ne!(taken_out, woken.load(Ordering::Acquire));
    });
}

#[test]
fn nobody_is_left_waiting_for_a_loop_that_is_gone() {
    explore(|| {
        let source = Arc::new(Source::default());
        let reader = on_a_thread(&source, |source| wait(source, Direction::Read));
        let writer = on_a_thread(&source, |source| {
            wait_in_the_crowd(source, Direction::Write)
        });
        shut(&source);
        assert_eq!(reader.join().unwrap(), Look::Shut);
        assert_eq!(writer.join().unwrap(), Look::Shut);
    });
}

#[test]
fn a_descriptor_that_comes_while_the_table_closes_is_refused_or_shut() {
    explore(|| {
        use std::os::fd::AsRawFd;
        let poll = Poll::new().unwrap();
        let table = Arc::new(Table::new(poll.registry().try_clone().unwrap()));
        let late = Arc::clone(&table);
        let registering = thread::spawn(move || {
            let (socket, _other) = Socket::pair().unwrap();
            let source = Arc::new(Source::default());
            match late.register(socket.as_raw_fd(), &source) {
                Some(token) => {
                    let look = wait(&source, Direction::Read);
                    late.deregister(token.unwrap());
                    look
                }
                None => Look::Shut,
            }
        });
        let mut woken = Vec::new();
        table.close(&mut woken);
        woken.into_iter().for_each(Waker::wake);
        assert_eq!(registering.join().unwrap(), Look::Shut);
        assert_eq!(table.len(), 0);
    });
}

//! The readiness of one descriptor, reported by real events of mio.

use std::os::unix::net::UnixStream as StdStream;
use std::sync::LazyLock;
use std::task::Waker;

use mio::event::Event;
use mio::net::UnixStream;
use mio::{Events, Interest, Poll, Token};
use waker_fn::waker_fn;

use super::{explore, explore_core};
use crate::park::Parker;
use crate::reactor::direction::Direction;
use crate::reactor::source::{Handover, Readiness, Source};
use crate::reactor::table::Table;
use crate::reactor::wait_list::{Intent, WaitKey};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering, thread};

/// What the selector reports for a socket.
struct Reported {
    events: Events,
    _sockets: (UnixStream, StdStream),
}

impl Reported {
    fn about(interest: Interest) -> Reported {
        let (one, other) = StdStream::pair().unwrap();
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

/// Processes an event as the loop does.
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

/// A waker that unparks `parker`.
fn unparks(parker: &Arc<Parker>) -> Waker {
    let parker = Arc::clone(parker);
    waker_fn(move || parker.unpark())
}

/// Waits as a poll function of `Registered` does: stores the waker, then reads readiness again.
fn wait(source: &Source, direction: Direction) -> Readiness {
    let parker = Arc::new(Parker::new());
    loop {
        if source.readiness(direction) == Readiness::NotReady {
            drop(source.store(direction, unparks(&parker)));
        }
        match source.readiness(direction) {
            Readiness::NotReady => assert!(parker.park(None)),
            look => return look,
        }
    }
}

/// Leaves the wait list as a future of `Registered` does when it has an outcome, or is dropped.
fn leave(source: &Source, key: Option<WaitKey>) {
    if let Some(key) = key {
        let Handover { own, next } = source.leave(key);
        next.into_iter().for_each(Waker::wake);
        drop(own);
    }
}

/// Polls as a future of `Registered` does.
fn poll(
    source: &Source,
    key: &mut Option<WaitKey>,
    direction: Direction,
    intent: Intent,
    parker: &Arc<Parker>,
) -> Readiness {
    match source.readiness(direction) {
        Readiness::NotReady => source.enlist(key, direction, intent, unparks(parker)).look,
        look => look,
    }
}

/// Waits as a future of `Registered` does, without a system call.
fn wait_in_the_crowd(source: &Source, direction: Direction, intent: Intent) -> Readiness {
    let parker = Arc::new(Parker::new());
    let mut key = None;
    let look = loop {
        match poll(source, &mut key, direction, intent, &parker) {
            Readiness::NotReady => assert!(parker.park(None)),
            look => break look,
        }
    };
    leave(source, key);
    look
}

/// How many datagrams a socket has to be read.
type Socket = AtomicUsize;

/// Takes one datagram, as `recv` does.
fn take(source: &Source, socket: &Socket) {
    take_after(0, source, socket);
}

/// Like `take`, and polls `restless` times without having been woken.
fn take_after(mut restless: usize, source: &Source, socket: &Socket) {
    let parker = Arc::new(Parker::new());
    let mut key = None;
    loop {
        match poll(source, &mut key, Direction::Read, Intent::Operate, &parker) {
            Readiness::Ready(tick) => {
                let one = |some: usize| some.checked_sub(1);
                let taken = socket.fetch_update(Ordering::AcqRel, Ordering::Acquire, one);
                if taken.is_ok() {
                    break;
                }
                source.blocked(Direction::Read, tick);
            }
            Readiness::NotReady if restless > 0 => restless -= 1,
            Readiness::NotReady => assert!(parker.park(None)),
            look => panic!("nobody ends it: {look:?}"),
        }
    }
    leave(source, key);
}

/// Datagrams arrive, and the selector reports one event.
fn arrive(source: &Source, socket: &Socket, many: usize) {
    socket.fetch_add(many, Ordering::AcqRel);
    report(source, READABLE.event());
}

fn on_a_thread<T: 'static>(
    source: &Arc<Source>,
    act: impl FnOnce(&Source) -> T + 'static,
) -> thread::JoinHandle<T> {
    let source = Arc::clone(source);
    thread::spawn(move || act(&source))
}

#[test]
fn the_end_of_reads_is_seen_by_every_reader_also_by_one_that_just_begins_to_wait() {
    explore_core(|| {
        let source = Arc::new(Source::default());
        let polls = on_a_thread(&source, |source| wait(source, Direction::Read));
        let takes = on_a_thread(&source, |source| {
            wait_in_the_crowd(source, Direction::Read, Intent::Operate)
        });
        let mut woken = Vec::new();
        source.end_reads(&mut woken);
        woken.into_iter().for_each(Waker::wake);
        assert_eq!(polls.join().unwrap(), Readiness::Ended);
        assert_eq!(takes.join().unwrap(), Readiness::Ended);
    });
}

#[test]
fn the_end_of_reads_that_meets_an_event_hides_no_data() {
    explore(|| {
        let source = Arc::new(Source::default());
        let socket = Arc::new(Socket::new(0));
        let arriving = Arc::clone(&socket);
        let arrives = on_a_thread(&source, move |source| arrive(source, &arriving, 1));
        let ends = on_a_thread(&source, |source| {
            let mut woken = Vec::new();
            source.end_reads(&mut woken);
            woken.into_iter().for_each(Waker::wake);
        });
        // Reads as `Registered` does: at the end it tries once more.
        let parker = Arc::new(Parker::new());
        let (mut key, one) = (None, |some: usize| some.checked_sub(1));
        let take = || {
            socket
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, one)
                .is_ok()
        };
        let mut taken = 0;
        loop {
            let look = poll(&source, &mut key, Direction::Read, Intent::Operate, &parker);
            match look {
                Readiness::Ready(_) | Readiness::Ended if take() => taken += 1,
                Readiness::Ready(tick) => source.blocked(Direction::Read, tick),
                Readiness::NotReady => assert!(parker.park(None)),
                Readiness::Ended => break,
                look => panic!("nobody shuts it: {look:?}"),
            }
        }
        leave(&source, key);
        arrives.join().unwrap();
        ends.join().unwrap();
        // What arrived after the last attempt is left, with its readiness: the next read finds it.
        let is_ready = matches!(source.readiness(Direction::Read), Readiness::Ready(_));
        assert!(taken == 1 || (take() && is_ready));
    });
}

#[test]
fn of_an_event_and_a_waiter_that_meet_one_sees_the_other() {
    explore_core(|| {
        let source = Arc::new(Source::default());
        let reader = on_a_thread(&source, |source| wait(source, Direction::Read));
        let writer = on_a_thread(&source, |source| wait(source, Direction::Write));
        report(&source, BOTH.event());
        assert!(matches!(reader.join().unwrap(), Readiness::Ready(_)));
        assert!(matches!(writer.join().unwrap(), Readiness::Ready(_)));
    });
}

#[test]
fn an_event_between_the_system_call_and_the_clearing_is_not_swallowed() {
    explore_core(|| {
        let source = Arc::new(Source::default());
        report(&source, READABLE.event());
        // The socket: how much there is to read.
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
            let Readiness::Ready(tick) = wait(&source, Direction::Read) else {
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
            let Readiness::Ready(tick) = wait(&source, Direction::Read) else {
                panic!("nobody shuts it")
            };
            // A short read: there is no more.
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
            if let Readiness::Ready(tick) = source.readiness(Direction::Read) {
                source.blocked(Direction::Read, tick);
            }
        });
        let selector = on_a_thread(&source, |source| report(source, READABLE.event()));
        reader.join().unwrap();
        assert!(matches!(
            source.readiness(Direction::Write),
            Readiness::Ready(_)
        ));
        selector.join().unwrap();
        assert!(matches!(
            source.readiness(Direction::Write),
            Readiness::Ready(_)
        ));
    });
}

#[test]
fn every_future_that_waits_for_a_descriptor_is_woken() {
    explore(|| {
        let source = Arc::new(Source::default());
        let take = |source: &Source| wait_in_the_crowd(source, Direction::Read, Intent::Operate);
        let know = |source: &Source| wait_in_the_crowd(source, Direction::Read, Intent::Observe);
        let one = on_a_thread(&source, take);
        let other = on_a_thread(&source, know);
        report(&source, READABLE.event());
        assert!(matches!(one.join().unwrap(), Readiness::Ready(_)));
        assert!(matches!(other.join().unwrap(), Readiness::Ready(_)));
    });
}

#[test]
fn of_one_event_for_two_datagrams_each_of_two_takers_gets_one() {
    explore_core(|| {
        let (source, socket) = (Arc::new(Source::default()), Arc::new(Socket::new(0)));
        let theirs = Arc::clone(&socket);
        let one = on_a_thread(&source, move |source| take(source, &theirs));
        let theirs = Arc::clone(&socket);
        let other = on_a_thread(&source, move |source| take(source, &theirs));
        arrive(&source, &socket, 2);
        one.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn of_two_events_each_of_two_takers_gets_one() {
    explore(|| {
        let (source, socket) = (Arc::new(Source::default()), Arc::new(Socket::new(0)));
        let theirs = Arc::clone(&socket);
        let one = on_a_thread(&source, move |source| take(source, &theirs));
        let theirs = Arc::clone(&socket);
        let other = on_a_thread(&source, move |source| take(source, &theirs));
        arrive(&source, &socket, 1);
        arrive(&source, &socket, 1);
        one.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_taker_that_is_polled_as_the_event_comes_keeps_the_baton() {
    explore(|| {
        let (source, socket) = (Arc::new(Source::default()), Arc::new(Socket::new(0)));
        // The restless future is first in the queue, so that it gets the baton.
        let theirs = Arc::clone(&socket);
        let one = on_a_thread(&source, move |source| take_after(1, source, &theirs));
        let theirs = Arc::clone(&socket);
        let other = on_a_thread(&source, move |source| take(source, &theirs));
        arrive(&source, &socket, 2);
        one.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_baton_that_meets_a_cancel_reaches_the_next_one() {
    explore_core(|| {
        let (source, socket) = (Arc::new(Source::default()), Arc::new(Socket::new(0)));
        let theirs = Arc::clone(&socket);
        let stays = on_a_thread(&source, move |source| take(source, &theirs));
        let goes = on_a_thread(&source, |source| {
            let mut key = None;
            let parker = Arc::new(Parker::new());
            poll(source, &mut key, Direction::Read, Intent::Operate, &parker);
            leave(source, key);
        });
        arrive(&source, &socket, 1);
        stays.join().unwrap();
        goes.join().unwrap();
    });
}

#[test]
fn who_wants_to_know_and_goes_away_takes_nothing_along() {
    explore(|| {
        let (source, socket) = (Arc::new(Source::default()), Arc::new(Socket::new(0)));
        let theirs = Arc::clone(&socket);
        let takes = on_a_thread(&source, move |source| take(source, &theirs));
        let knows = on_a_thread(&source, |source| {
            let woken = Arc::new(AtomicBool::new(false));
            let wakes = Arc::clone(&woken);
            let waker = waker_fn(move || wakes.store(true, Ordering::Release));
            let mut key = None;
            let enlisted = source.enlist(&mut key, Direction::Read, Intent::Observe, waker);
            let waited = enlisted.look == Readiness::NotReady;
            let taken_out = key.is_some_and(|key| source.leave(key).own.is_some());
            // If it waited, it got its waker back, or the event took the waker and woke it.
            (waited, taken_out, woken)
        });
        arrive(&source, &socket, 1);
        takes.join().unwrap();
        let (waited, taken_out, woken) = knows.join().unwrap();
        assert!(!waited || taken_out != woken.load(Ordering::Acquire));
    });
}

#[test]
fn nobody_is_left_waiting_for_a_loop_that_is_gone() {
    explore(|| {
        let source = Arc::new(Source::default());
        let reader = on_a_thread(&source, |source| wait(source, Direction::Read));
        let writer = on_a_thread(&source, |source| {
            wait_in_the_crowd(source, Direction::Write, Intent::Operate)
        });
        shut(&source);
        assert_eq!(reader.join().unwrap(), Readiness::Shut);
        assert_eq!(writer.join().unwrap(), Readiness::Shut);
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
            let (socket, _other) = StdStream::pair().unwrap();
            let source = Arc::new(Source::default());
            match late.register(socket.as_raw_fd(), &source) {
                Some(token) => {
                    let look = wait(&source, Direction::Read);
                    late.deregister(token.unwrap());
                    look
                }
                None => Readiness::Shut,
            }
        });
        let mut woken = Vec::new();
        table.close(&mut woken);
        woken.into_iter().for_each(Waker::wake);
        assert_eq!(registering.join().unwrap(), Readiness::Shut);
        assert_eq!(table.len(), 0);
    });
}

//! What events set and clear, and which waiters they wake.

use super::*;

fn set(source: &Source, bits: usize) -> usize {
    let mut woken = Vec::new();
    source.set(bits, &mut woken);
    woken.len()
}

fn ready(source: &Source, direction: Direction) -> bool {
    matches!(source.readiness(direction), Readiness::Ready(_))
}

#[test]
fn a_clear_that_is_out_of_date_does_nothing() {
    let source = Source::default();
    set(&source, READABLE);
    let Readiness::Ready(old) = source.readiness(Direction::Read) else {
        panic!("it was set")
    };
    set(&source, READABLE); // an event between the system call and the clear
    source.blocked(Direction::Read, old);
    assert!(ready(&source, Direction::Read), "the newer event stays");
    let Readiness::Ready(new) = source.readiness(Direction::Read) else {
        panic!("it is still set")
    };
    source.blocked(Direction::Read, new);
    assert_eq!(source.readiness(Direction::Read), Readiness::NotReady);
}

#[test]
fn clearing_one_direction_leaves_the_other() {
    let source = Source::default();
    set(&source, BITS & !SHUT);
    let Readiness::Ready(tick) = source.readiness(Direction::Read) else {
        panic!("it was set")
    };
    source.blocked(Direction::Read, tick);
    assert!(!ready(&source, Direction::Read));
    assert!(ready(&source, Direction::Write));
}

#[test]
fn a_closed_direction_stays_ready_until_a_call_would_block() {
    let source = Source::default();
    set(&source, READABLE | READ_STICKY);
    let Readiness::Ready(tick) = source.readiness(Direction::Read) else {
        panic!("it was set")
    };
    source.short(Direction::Read, tick);
    assert!(
        ready(&source, Direction::Read),
        "the end of the stream can be read"
    );
    assert!(!ready(&source, Direction::Write));
    source.blocked(Direction::Read, tick);
    assert_eq!(source.readiness(Direction::Read), Readiness::NotReady);
}

#[test]
fn one_error_event_wakes_both_directions_once() {
    let source = Source::default();
    let noop = || Waker::noop().clone();
    drop(source.store(Direction::Read, noop()));
    drop(source.store(Direction::Write, noop()));
    for aim in [Intent::Operate, Intent::Operate, Intent::Observe] {
        drop(source.enlist(&mut None, Direction::Write, aim, noop()));
    }
    assert_eq!(set(&source, READ_STICKY | WRITE_STICKY), 5);
    assert_eq!(set(&source, READ_STICKY), 0, "no waiter is woken twice");
    assert!(ready(&source, Direction::Read) && ready(&source, Direction::Write));
}

#[test]
fn waiters_do_not_accumulate_and_futures_remove_themselves() {
    let source = Source::default();
    let noop = || Waker::noop().clone();
    let (mut first, mut second) = (None, None);
    for _ in 0..10 {
        drop(source.store(Direction::Read, noop()));
        drop(source.enlist(&mut first, Direction::Read, Intent::Operate, noop()));
        drop(source.enlist(&mut second, Direction::Read, Intent::Operate, noop()));
    }
    assert!(source.leave(first.unwrap()).own.is_some());
    assert_eq!(
        set(&source, READABLE),
        2,
        "the poll waker and the second future"
    );
    assert!(source.leave(second.unwrap()).own.is_none());
}

#[test]
fn a_shut_source_says_so_in_both_directions() {
    let source = Source::default();
    drop(source.store(Direction::Read, Waker::noop().clone()));
    let mut woken = Vec::new();
    source.shut(&mut woken);
    assert_eq!(woken.len(), 1);
    assert_eq!(source.readiness(Direction::Read), Readiness::Shut);
    assert_eq!(source.readiness(Direction::Write), Readiness::Shut);
}

#[test]
fn the_tick_wraps_without_touching_the_bits() {
    let source = Source::default();
    source.word.store(!BITS, Ordering::Relaxed); // the greatest tick
    set(&source, READABLE);
    assert_eq!(source.word.load(Ordering::Relaxed), READABLE);
}

#[test]
fn a_short_call_after_the_wrap_of_the_tick_clears_too() {
    let source = Source::default();
    source.word.store(!BITS, Ordering::Relaxed);
    set(&source, READABLE);
    source.short(Direction::Read, Tick(0));
    assert_eq!(source.readiness(Direction::Read), Readiness::NotReady);
}

#[test]
fn an_event_wakes_its_own_direction_only() {
    for (direction, bit, other) in [
        (Direction::Read, READABLE, WRITABLE),
        (Direction::Write, WRITABLE, READABLE),
    ] {
        let source = Source::default();
        let noop = || Waker::noop().clone();
        drop(source.store(direction, noop()));
        for one in [Direction::Read, Direction::Write, direction] {
            drop(source.enlist(&mut None, one, Intent::Observe, noop()));
        }
        assert_eq!(set(&source, other), 1, "the future of the other direction");
        assert_eq!(set(&source, bit), 3);
        assert_eq!(set(&source, bit | other), 0);
        let Readiness::Ready(tick) = source.readiness(direction) else {
            panic!("it was set")
        };
        source.short(direction, tick);
        assert_eq!(source.readiness(direction), Readiness::NotReady);
        assert_eq!(bits(&source), other, "the other direction is unchanged");
    }
}

/// Enlists `N` futures that wait to read data.
fn takers<const N: usize>(source: &Source) -> [Option<WaitKey>; N] {
    [(); N].map(|()| {
        let mut key = None;
        let waker = Waker::noop().clone();
        drop(source.enlist(&mut key, Direction::Read, Intent::Operate, waker));
        key
    })
}

/// Removes a future; returns whether another one is woken for it.
fn passes_on(source: &Source, key: Option<WaitKey>) -> bool {
    source.leave(key.unwrap()).next.is_some()
}

#[test]
fn an_event_wakes_one_taker_and_each_that_leaves_wakes_the_next() {
    let source = Source::default();
    let [first, second, third] = takers(&source);
    assert_eq!(set(&source, READABLE), 1);
    assert!(passes_on(&source, first), "it took something");
    assert!(passes_on(&source, second), "or was dropped");
    assert!(!passes_on(&source, third), "no future is left");
}

#[test]
fn a_baton_is_passed_on_only_if_it_was_held_and_the_direction_is_ready() {
    let source = Source::default();
    let [first, second, third] = takers(&source);
    assert_eq!(set(&source, READABLE), 1);
    assert!(
        !passes_on(&source, second),
        "the first future holds the baton"
    );
    let Readiness::Ready(tick) = source.readiness(Direction::Read) else {
        panic!("it was set")
    };
    source.blocked(Direction::Read, tick);
    assert!(!passes_on(&source, first));
    assert_eq!(set(&source, READABLE), 1, "the third future still waits");
    assert!(!passes_on(&source, third));
}

#[test]
fn a_holder_does_not_sleep_on_a_direction_that_is_ready() {
    let source = Source::default();
    let [mut first, second] = takers(&source);
    assert_eq!(set(&source, READABLE), 1);
    let waker = Waker::noop().clone();
    let enlisted = source.enlist(&mut first, Direction::Read, Intent::Operate, waker);
    assert!(matches!(enlisted.look, Readiness::Ready(_)));
    assert!(enlisted.spare.is_some(), "it was not stored");
    assert!(passes_on(&source, first), "it still holds the baton");
    drop(source.leave(second.unwrap()));
}

#[test]
fn a_future_that_only_observes_takes_no_baton() {
    let source = Source::default();
    let noop = || Waker::noop().clone();
    let mut observers = [None; 2];
    for key in &mut observers {
        drop(source.enlist(key, Direction::Read, Intent::Observe, noop()));
    }
    let [first, second] = takers(&source);
    assert_eq!(set(&source, READABLE), 3, "both observers, and one taker");
    for key in observers {
        assert!(!passes_on(&source, key), "it held no baton");
    }
    assert!(passes_on(&source, first));
    drop(source.leave(second.unwrap()));
}

/// A source with what a selector reports for `fd` now.
fn reported(fd: &impl std::os::fd::AsRawFd) -> Source {
    let mut poll = mio::Poll::new().unwrap();
    let fd = fd.as_raw_fd();
    let mut watched = mio::unix::SourceFd(&fd);
    let both = mio::Interest::READABLE | mio::Interest::WRITABLE;
    let registry = poll.registry();
    registry
        .register(&mut watched, mio::Token(0), both)
        .unwrap();
    let mut events = mio::Events::with_capacity(1);
    let long = std::time::Duration::from_secs(30);
    poll.poll(&mut events, Some(long)).unwrap();
    let source = Source::default();
    source.report(events.iter().next().unwrap(), &mut Vec::new());
    source
}

fn bits(source: &Source) -> usize {
    source.word.load(Ordering::Relaxed) & BITS
}

#[test]
fn each_event_of_the_selector_sets_its_bits() {
    use std::io::Write;
    let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(bits(&reported(&one)), WRITABLE);
    other.write_all(b"x").unwrap();
    assert_eq!(bits(&reported(&one)), READABLE | WRITABLE);
    other.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(bits(&reported(&one)), READABLE | WRITABLE | READ_STICKY);
    drop(other);
    let both = READABLE | WRITABLE | READ_STICKY | WRITE_STICKY;
    assert_eq!(bits(&reported(&one)), both);
}

#[test]
#[cfg(target_os = "linux")]
fn an_error_is_sticky_in_both_directions() {
    let address = {
        let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        gone.local_addr().unwrap()
    };
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    socket.send(b"x").unwrap(); // the port is closed, and an ICMP error comes back
    let source = reported(&socket);
    assert_eq!(
        bits(&source) & (READ_STICKY | WRITE_STICKY),
        READ_STICKY | WRITE_STICKY
    );
}

#[test]
fn ended_reads_wake_every_reader_and_no_writer_and_are_seen_only_where_nothing_is_ready() {
    let source = Source::default();
    let noop = || Waker::noop().clone();
    for direction in [Direction::Read, Direction::Write] {
        drop(source.store(direction, noop()));
        for intent in [Intent::Observe, Intent::Operate, Intent::Operate] {
            drop(source.enlist(&mut None, direction, intent, noop()));
        }
    }
    let mut woken = Vec::new();
    source.end_reads(&mut woken);
    assert_eq!(woken.len(), 4, "the poll waker and three futures");
    assert_eq!(source.readiness(Direction::Read), Readiness::Ended);
    assert_eq!(source.readiness(Direction::Write), Readiness::NotReady);
    let enlisted = source.enlist(&mut None, Direction::Read, Intent::Operate, noop());
    assert_eq!(enlisted.look, Readiness::Ended, "nobody waits from now on");
    set(&source, READABLE);
    assert!(
        ready(&source, Direction::Read),
        "what has arrived comes first"
    );
    source.reopen();
    assert_eq!(
        source.readiness(Direction::Read),
        Readiness::Ended,
        "also on another loop"
    );
    source.shut(&mut woken);
    assert_eq!(source.readiness(Direction::Read), Readiness::Shut);
    source.reopen();
    assert_eq!(source.readiness(Direction::Read), Readiness::Ended);
}

#[test]
fn the_end_of_the_reads_clears_no_readiness() {
    let source = Source::default();
    set(&source, READABLE);
    source.blocked(Direction::Read, Tick::END);
    source.short(Direction::Read, Tick::END);
    assert!(ready(&source, Direction::Read));
    source.word.store(!BITS | READABLE, Ordering::Relaxed); // the greatest tick
    source.blocked(Direction::Read, Tick::END);
    assert!(ready(&source, Direction::Read));
}

#[test]
fn use_is_recorded_where_a_source_is_ready_and_nowhere_else() {
    let source = Source::default();
    source.record_use();
    for direction in [Direction::Read, Direction::Write] {
        assert_eq!(source.readiness(direction), Readiness::NotReady);
    }
    assert!(!source.take_use() && !source.has_received());
    set(&source, WRITABLE);
    assert!(!source.take_use(), "nobody has asked");
    assert!(ready(&source, Direction::Write));
    assert!(source.take_use() && !source.take_use());
    assert!(!source.has_received(), "that was a write");
    set(&source, READABLE);
    assert!(source.has_received());
    let Readiness::Ready(tick) = source.readiness(Direction::Read) else {
        panic!("it is ready")
    };
    source.blocked(Direction::Read, tick);
    assert!(source.has_received(), "once is enough");
    assert_eq!(
        source.readiness(Direction::Read),
        Readiness::NotReady,
        "a mark is no readiness"
    );
}

#[test]
fn a_waiter_that_is_woken_to_look_for_something_else_has_waited_once_more() {
    let source = Source::default();
    source.record_use();
    let mut woken = Vec::new();
    source.wake_readers(&mut woken);
    assert!(!source.take_awaited(), "nobody waits");
    drop(source.store(Direction::Read, Waker::noop().clone()));
    source.wake_readers(&mut woken);
    assert_eq!(woken.len(), 1);
    assert!(source.take_awaited(), "up to now");
    assert!(!source.take_awaited(), "and does something else since");
    assert!(!source.take_use(), "which is no use of the source");
}

#[test]
fn a_source_that_expires_wakes_all_and_fails_what_would_wait() {
    let source = Source::default();
    source.record_use();
    assert!(!source.take_awaited());
    let mut key = None;
    let noop = || Waker::noop().clone();
    drop(source.enlist(&mut key, Direction::Write, Intent::Operate, noop()));
    assert!(source.take_awaited());
    drop(source.store(Direction::Read, noop()));
    let mut woken = Vec::new();
    source.expire(&mut woken);
    assert_eq!(woken.len(), 2);
    drop(source.leave(key.unwrap()));
    assert!(!source.take_awaited());
    for direction in [Direction::Read, Direction::Write] {
        assert_eq!(source.readiness(direction), Readiness::Expired);
    }
    set(&source, WRITABLE);
    assert!(ready(&source, Direction::Write), "what need not wait");
    source.end_reads(&mut woken);
    assert_eq!(source.readiness(Direction::Read), Readiness::Ended);
}

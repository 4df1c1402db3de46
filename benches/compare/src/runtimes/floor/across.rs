//! W5 and W12 by hand: threads that wake each other by an eventfd and wait in epoll, and threads that spin.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};

use crate::child::Figures;
use crate::params::Params;
use crate::workloads::across::{figures, settle};
use crate::workloads::parked::{measure_idle, measure_wakes};

/// A place to wait in, and the bell that ends the wait.
struct Parker {
    poll: Poll,
    events: Events,
}

impl Parker {
    fn new() -> (Parker, Waker) {
        let poll = Poll::new().expect("a selector can be made");
        let bell = Waker::new(poll.registry(), Token(0)).expect("an eventfd can be made");
        let events = Events::with_capacity(16);
        (Parker { poll, events }, bell)
    }

    fn park(&mut self) {
        self.poll
            .poll(&mut self.events, None)
            .expect("the wait does not fail");
    }
}

/// W5: two threads, an eventfd each.
pub(crate) fn parked(params: &Params) -> Figures {
    let (mut here, bell_here) = Parker::new();
    let (mut there, bell_there) = Parker::new();
    let apart = params.get("apart") == 1;
    std::thread::spawn(move || {
        settle(apart, 1);
        loop {
            there.park();
            bell_here.wake().expect("the other side is there");
        }
    });
    trips(params, || {
        bell_there.wake().expect("the other side is there");
        here.park();
    })
}

/// W5: two threads that look at one number until it is theirs.
pub(crate) fn spinning(params: &Params) -> Figures {
    let turn = Arc::new(AtomicUsize::new(0));
    let other = Arc::clone(&turn);
    let apart = params.get("apart") == 1;
    std::thread::spawn(move || {
        settle(apart, 1);
        loop {
            spin_until(&other, 1);
            other.store(0, Ordering::Release);
        }
    });
    trips(params, || {
        turn.store(1, Ordering::Release);
        spin_until(&turn, 0);
    })
}

/// Spins for 50 µs as loopgroup is told to, then lets others run: both ends may share a core.
fn spin_until(turn: &AtomicUsize, mine: usize) {
    let mut since = None;
    for look in 0u32.. {
        if turn.load(Ordering::Acquire) == mine {
            return;
        }
        std::hint::spin_loop();
        if look % 64 == 63 {
            let since = *since.get_or_insert_with(Instant::now);
            if since.elapsed() > Duration::from_micros(50) {
                std::thread::yield_now();
            }
        }
    }
}

fn trips(params: &Params, mut trip: impl FnMut()) -> Figures {
    let trips = params.get("trips");
    settle(params.get("apart") == 1, 0);
    (0..trips / 10).for_each(|_| trip()); // warm-up
    let micros: Vec<_> = (0..trips)
        .map(|_| {
            let start = Instant::now();
            trip();
            start.elapsed().as_nanos() as f64 / 1e3
        })
        .collect();
    figures(&micros)
}

/// W12: a thread that is woken by an eventfd.
pub(crate) fn wake(params: &Params) -> Figures {
    let (mut parker, bell) = Parker::new();
    let (say, woken) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            parker.park();
            say.send(Instant::now()).expect("the main thread waits");
        }
    });
    measure_wakes(params, || bell.wake().expect("the loop is there"), &woken)
}

/// W12: a thread that waits.
pub(crate) fn idle(params: &Params) -> Figures {
    let (mut parker, bell) = Parker::new();
    std::thread::spawn(move || parker.park());
    let figures = measure_idle(params);
    drop(bell);
    figures
}

//! A wake that races with the end of the loop it goes to touches nothing that is gone.
//!
//! Worth most under AddressSanitizer (`.ci/sanitizers`); `LOOPGROUP_RACES` sets how many there are.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;

use loopgroup::{EventLoopGroup, spawn_local, yield_now};

use crate::util::{DropCount, progress, setting, within};

/// Wakers that are woken, one after the other, while their loop ends.
const TASKS: usize = 10;

/// The wakers of one loop go to the thread that wakes; the number says whose turn it is.
#[derive(Default)]
struct Race {
    wakers: Mutex<Vec<Waker>>,
    turn: AtomicUsize,
}

impl Race {
    /// A task that waits for ever and leaves its waker in the race.
    fn task(self: &Arc<Race>, drops: &DropCount) -> impl Future<Output = ()> + Send + use<> {
        let (race, guard) = (Arc::clone(self), drops.guard());
        let mut left = false;
        poll_fn(move |cx| {
            let _ = &guard;
            if !left {
                race.wakers.lock().unwrap().push(cx.waker().clone());
                left = true;
            }
            Poll::Pending
        })
    }

    fn is_ready(&self) -> bool {
        self.wakers.lock().unwrap().len() == TASKS
    }

    fn go(&self) {
        self.turn.fetch_add(1, Ordering::SeqCst);
    }

    /// Spins, to be there at the very moment; but there may be one processor for both.
    fn wait_until(&self, condition: impl Fn(&Race) -> bool) {
        for spins in 1_u32.. {
            if condition(self) {
                return;
            }
            if spins > 200 {
                thread::yield_now();
            }
        }
    }

    /// Wakes everybody once a round, by reference or not, some time after the signal.
    fn wake(&self, rounds: usize) {
        for round in 0..rounds {
            self.wait_until(|race| race.turn.load(Ordering::SeqCst) == 2 * round + 1);
            let wakers = std::mem::take(&mut *self.wakers.lock().unwrap());
            for (n, waker) in wakers.into_iter().enumerate() {
                for _ in 0..round % 31 {
                    std::hint::spin_loop();
                }
                for _ in 0..(round + n) % 3 {
                    waker.wake_by_ref();
                }
                if n % 2 == 0 {
                    waker.wake();
                } else {
                    drop(waker);
                }
            }
            self.go();
        }
    }
}

#[test]
fn wakes_may_race_with_the_end_of_their_loop() {
    let races = setting("LOOPGROUP_RACES").map_or(5_000, |races| races as usize);
    let rounds = races.div_ceil(TASKS);
    within(move || {
        let progress = progress("round");
        let race = Arc::new(Race::default());
        let drops = DropCount::new();
        let other = Arc::clone(&race);
        let waking = thread::spawn(move || other.wake(rounds));
        for round in 0..rounds {
            match round % 8 {
                0 => end_of_a_group(&race, &drops, EventLoopGroup::builder().without_io()),
                4 => end_of_a_group(&race, &drops, EventLoopGroup::builder()),
                // Without a thread to start and to join there is time for many more.
                _ => end_of_this_loop(&race, &drops, round),
            }
            race.wait_until(|race| race.turn.load(Ordering::SeqCst) == 2 * round + 2);
            assert_eq!(drops.get(), TASKS * (round + 1), "each future goes once");
            progress.tick();
        }
        waking.join().unwrap();
    });
}

fn end_of_a_group(race: &Arc<Race>, drops: &DropCount, builder: loopgroup::Builder) {
    let group = builder.loops(1).build().unwrap();
    for _ in 0..TASKS {
        drop(group.spawn(race.task(drops)));
    }
    race.wait_until(Race::is_ready);
    let end = group.shutdown_now();
    race.go();
    drop(group);
    assert_eq!(end.wait().cancelled(), TASKS as u64);
}

fn end_of_this_loop(race: &Arc<Race>, drops: &DropCount, round: usize) {
    let main = async {
        for _ in 0..TASKS {
            drop(spawn_local(race.task(drops)));
        }
        while !race.is_ready() {
            yield_now().await;
        }
        race.go();
        for _ in 0..round % 53 {
            std::hint::spin_loop();
        }
    };
    loopgroup::run(main).unwrap();
}

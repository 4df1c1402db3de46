//! Workloads for `.ci/instructions`, as in `instructions.rs`: what reaches a loop from outside. Other
//! threads, timers, sockets.
//!
//! A program of its own: workloads of one program change how each other's code is inlined.
//!
//! The remote workloads have a second thread, the producer. It and the loop work strictly in turns,
//! so that the count does not depend on their scheduling. The two threads are counted apart.
#![allow(missing_docs)]

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use futures::poll;
use loopgroup::net::{TcpListener, TcpStream};
use loopgroup::time::{Sleep, sleep};
use loopgroup::{EventLoop, EventLoopGroup, block_on, run, spawn_local, yield_now};

/// Large, so that the turns of the two threads do not count.
const BATCH: u32 = 2_000;
const LIVE_TIMERS: usize = 10_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let (name, count) = (
        args.next(),
        args.next().and_then(|count| count.parse().ok()),
    );
    // `cargo bench` passes a flag, and no work.
    let (Some(name), Some(count)) = (name, count) else {
        return;
    };
    match &*name {
        "spawn-remote" => spawn_remote(count),
        "execute-remote" => execute_remote(count),
        "timer-churn" => timer_churn(count, None),
        "timer-churn-far" => timer_churn(count, Some(Duration::from_secs(3600))),
        "echo-request" => run(echo_requests(count)).unwrap(),
        other => panic!("there is no workload {other:?}"),
    }
}

/// Another thread spawns in batches, and awaits every handle once its task has ended.
fn spawn_remote(count: u32) {
    let mut tasks = Vec::with_capacity(BATCH as usize);
    in_turns(
        count,
        &mut tasks,
        |home, tasks, n| tasks.push(home.spawn(async move { n })),
        |tasks| {
            block_on(async {
                for task in tasks.drain(..) {
                    task.await.unwrap();
                }
            });
        },
    );
}

/// Another thread submits closures in batches.
fn execute_remote(count: u32) {
    in_turns(
        count,
        &mut (),
        |home, (), n| home.execute(move || assert!(n < BATCH)).unwrap(),
        |()| {},
    );
}

/// Submits batches to a loop that is held up meanwhile, and waits until the loop has run each.
fn in_turns<S>(
    count: u32,
    state: &mut S,
    submit: impl Fn(&EventLoop, &mut S, u32),
    settle: impl Fn(&mut S),
) {
    let group = EventLoopGroup::new(1).unwrap();
    let home = group.next();
    let turn = Arc::new(Barrier::new(2));
    for _ in 0..count / BATCH {
        let held = Arc::clone(&turn);
        let hold = move || {
            held.wait(); // the loop is held up from here
            held.wait(); // to here
        };
        home.execute(hold).unwrap();
        turn.wait();
        for n in 0..BATCH {
            submit(home, state, n);
        }
        let ran = Arc::clone(&turn);
        let last = move || {
            ran.wait();
        };
        home.execute(last).unwrap();
        turn.wait();
        turn.wait();
        settle(state);
    }
}

/// Replaces the oldest of many timers by a new one that is armed; with `far`, one that is due much
/// later is armed a turn before all others.
fn timer_churn(count: u32, far: Option<Duration>) {
    wait_for_a_new_second();
    let churn = async {
        let mut far = far.map(sleep);
        if let Some(far) = &mut far {
            assert!(poll!(far).is_pending());
            yield_now().await;
        }
        let mut live: Vec<Option<Sleep>> = (0..LIVE_TIMERS).map(|_| None).collect();
        poll_fn(|cx| {
            for number in 0..LIVE_TIMERS + count as usize {
                live[number % LIVE_TIMERS] = Some(armed(number, cx));
            }
            Poll::Ready(())
        })
        .await;
    };
    run(churn).unwrap();
}

/// A timer some seconds from now, in no order.
fn armed(number: usize, cx: &mut Context<'_>) -> Sleep {
    let seconds = 10 + (number as u64).wrapping_mul(61_803) % 20;
    let mut sleep = sleep(Duration::from_secs(seconds));
    assert!(Pin::new(&mut sleep).poll(cx).is_pending());
    sleep
}

/// Waits until a second of the clock begins. A sum or difference of instants takes a few instructions
/// more when its nanoseconds carry over; from here on those of whole seconds do not.
fn wait_for_a_new_second() {
    // Only `Debug` tells.
    let now = format!("{:?}", Instant::now());
    let nanos = now.split("tv_nsec: ").nth(1).and_then(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok()
    });
    let passed = nanos.expect("an instant has nanoseconds");
    std::thread::sleep(Duration::from_nanos(1_000_000_000 - passed));
}

/// A client and a server on one loop, one request at a time. The kernel's part is not counted.
async fn echo_requests(count: u32) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = spawn_local(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buf = [0; 64];
        while let Ok(read @ 1..) = stream.read(&mut buf).await {
            stream.write_all(&buf[..read]).await.unwrap();
        }
    });
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (message, mut echo) = ([7; 64], [0; 64]);
    for _ in 0..count {
        stream.write_all(&message).await.unwrap();
        stream.read_exact(&mut echo).await.unwrap();
    }
    drop(stream);
    server.await.unwrap();
}

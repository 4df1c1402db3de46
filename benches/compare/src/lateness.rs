//! How late 100,000 sleeps are that end within one second, and what they cost.
//!
//! Every sleep is a task of its own on one thread; deadlines are spread evenly over the second in a
//! scrambled order. Early ones are counted: there must be none.

use std::time::{Duration, Instant};

const SLEEPS: u64 = 100_000;

/// The outcome of one round.
struct Round {
    /// Sorted.
    lateness: Vec<Duration>,
    early: usize,
    cpu: Duration,
}

pub fn main(rounds: usize) {
    type Run = fn() -> Round;
    let peers: [(&str, Run); 2] = [("loopgroup", loopgroup_round), ("tokio", tokio_round)];
    let mut all: Vec<Vec<Round>> = peers.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..peers.len() {
            // Rotated, so that no runtime is always first.
            let peer = (turn + round) % peers.len();
            eprint!("\rround {} of {rounds}: {:12}", round + 1, peers[peer].0);
            all[peer].push(on_own_thread(peers[peer].1));
        }
    }
    eprintln!();
    println!("{SLEEPS} sleeps within 1 s on one thread, median of {rounds} rounds");
    println!("runtime   |        p50 |        p99 |        max |   CPU time | early");
    for ((name, _), rounds) in peers.iter().zip(&all) {
        let at = |part: f64| {
            median(rounds, |round| {
                round.lateness[((round.lateness.len() - 1) as f64 * part) as usize]
            })
        };
        let early: usize = rounds.iter().map(|round| round.early).sum();
        println!(
            "{name:9} | {:>10.1?} | {:>10.1?} | {:>10.1?} | {:>10.1?} | {early}",
            at(0.5),
            at(0.99),
            at(1.0),
            median(rounds, |round| round.cpu),
        );
    }
    let ratio = |figure: fn(&Round) -> Duration| {
        median(&all[0], figure).as_secs_f64() / median(&all[1], figure).as_secs_f64()
    };
    let p50 = ratio(|round| round.lateness[round.lateness.len() / 2]);
    println!(
        "loopgroup ÷ tokio: p50 {p50:.2}, CPU {:.2}",
        ratio(|round| round.cpu)
    );
    assert!(
        all.iter().flatten().all(|round| round.early == 0),
        "a timer was early"
    );
}

fn median(rounds: &[Round], figure: impl Fn(&Round) -> Duration) -> Duration {
    let mut figures: Vec<_> = rounds.iter().map(figure).collect();
    figures.sort();
    figures[figures.len() / 2]
}

fn on_own_thread(round: fn() -> Round) -> Round {
    std::thread::spawn(move || {
        let before = cpu_time();
        let mut round = round();
        round.cpu = cpu_time() - before;
        round
    })
    .join()
    .expect("a round does not panic")
}

/// What this thread has used, by the kernel's own account.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Deadlines spread evenly over a second that starts soon, in a scrambled order.
fn deadlines() -> impl Iterator<Item = Instant> {
    // Spawning takes its time: the second starts after it.
    let start = Instant::now() + Duration::from_millis(200);
    (0..SLEEPS).map(move |number| {
        let place = number.wrapping_mul(61_803) % SLEEPS;
        start + Duration::from_nanos(place * 1_000_000_000 / SLEEPS)
    })
}

fn judge(pairs: Vec<(Instant, Instant)>) -> Round {
    let early = pairs
        .iter()
        .filter(|(deadline, woken)| woken < deadline)
        .count();
    let mut lateness: Vec<_> = pairs
        .into_iter()
        .map(|(deadline, woken)| woken.saturating_duration_since(deadline))
        .collect();
    lateness.sort();
    Round {
        lateness,
        early,
        cpu: Duration::ZERO,
    }
}

fn loopgroup_round() -> Round {
    loopgroup::run(async {
        let tasks: Vec<_> = deadlines()
            .map(|deadline| {
                loopgroup::spawn_local(async move {
                    loopgroup::time::sleep_until(deadline).await;
                    (deadline, Instant::now())
                })
            })
            .collect();
        let mut pairs = Vec::with_capacity(tasks.len());
        for task in tasks {
            pairs.push(task.await.expect("nobody cancels it"));
        }
        judge(pairs)
    })
    .expect("a selector can be made")
}

fn tokio_round() -> Round {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be made");
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let tasks: Vec<_> = deadlines()
            .map(|deadline| {
                tokio::task::spawn_local(async move {
                    tokio::time::sleep_until(deadline.into()).await;
                    (deadline, Instant::now())
                })
            })
            .collect();
        let mut pairs = Vec::with_capacity(tasks.len());
        for task in tasks {
            pairs.push(task.await.expect("nobody cancels it"));
        }
        judge(pairs)
    })
}

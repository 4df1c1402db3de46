//! W15: what it costs to be looked at: echo over TCP, a task that yields, and a hundred tasks with names that
//! yield by turns, on loops whose group measures time, has a watchdog, a flight recorder or a list of its
//! tasks, compared to loops that nobody looks at.
//!
//! All take turns, round after round, so that the machine treats them alike; the figures are medians over the
//! rounds. On Linux they are the processor time of the loop's thread, which other programs disturb less than
//! the time that passes.
//!
//!     cargo bench --bench w15_observed [-- rounds]
//!
//! With `nothing` after the rounds, only loops that nobody looks at: `.ci/utilization` compares them to those
//! of a build without the pulse that every loop has.
#![allow(missing_docs)]

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, TcpStream};
use loopgroup::{Builder, EventLoopGroup, block_on, yield_now};

const REQUESTS: u32 = 8_000;
const CONNECTIONS: u32 = 16;
const YIELDS: u32 = 200_000;
/// Tasks with names that yield by turns.
const NAMED: u32 = 100;
const EVENTS: usize = 65_536;

fn settings() -> Vec<(&'static str, Builder)> {
    let plain = || EventLoopGroup::builder().loops(1);
    let watchdog = Duration::from_millis(100);
    if std::env::args().any(|word| word == "nothing") {
        return vec![("nothing", plain())];
    }
    vec![
        ("nothing", plain()),
        ("watchdog", plain().watchdog(watchdog)),
        (
            "watchdog, measure_time",
            plain().watchdog(watchdog).measure_time(true),
        ),
        ("flight_recorder", plain().flight_recorder(EVENTS)),
        ("track_tasks", plain().track_tasks(true)),
        (
            "all",
            plain()
                .track_tasks(true)
                .watchdog(watchdog)
                .measure_time(true)
                .flight_recorder(EVENTS)
                .freeze_on_stall(false),
        ),
    ]
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let rounds: usize = rounds.unwrap_or(21);
    let clients = EventLoopGroup::new(1).unwrap();
    let groups: Vec<_> = settings()
        .into_iter()
        .map(|(name, builder)| (name, builder.build().unwrap()))
        .collect();
    let serve = |(_, group): &(_, EventLoopGroup)| {
        let server = Server::new("127.0.0.1:0").unwrap().workers(group);
        let served = server.serve(|mut stream, _| async move {
            let mut buf = [0; 64];
            while let Ok(read @ 1..) = stream.read(&mut buf).await {
                if stream.write_all(&buf[..read]).await.is_err() {
                    break;
                }
            }
        });
        served.unwrap()
    };
    let servers: Vec<_> = groups.iter().map(serve).collect();
    let mut echo = vec![Vec::new(); groups.len()];
    let mut yields = vec![Vec::new(); groups.len()];
    let mut named = vec![Vec::new(); groups.len()];
    for round in 0..rounds {
        for turn in 0..groups.len() {
            let index = (round + turn) % groups.len();
            let group = &groups[index].1;
            echo[index].push(time(group, || {
                requests(&clients, servers[index].local_addr());
            }));
            yields[index].push(time(group, || {
                block_on(group.spawn(yields_of(YIELDS))).unwrap();
            }));
            named[index].push(time(group, || {
                let spawn = |number| {
                    let task = group.task().name(format!("task {number}"));
                    task.spawn(yields_of(YIELDS / NAMED))
                };
                let tasks: Vec<_> = (0..NAMED).map(spawn).collect();
                tasks.into_iter().for_each(|task| block_on(task).unwrap());
            }));
        }
    }
    for (what, times, operations) in [
        ("echo", echo, REQUESTS),
        ("yield", yields, YIELDS),
        ("named", named, YIELDS),
    ] {
        let nobody = times[0].clone();
        for ((name, _), times) in groups.iter().zip(times) {
            let ratios = times.iter().zip(&nobody).map(|(one, other)| one / other);
            let each = median(times.clone()) * 1e9 / f64::from(operations);
            let more = (median(ratios.collect()) - 1.0) * 100.0;
            println!("W15 {what:5} {name:23} {each:9.1} ns each, {more:+6.2} %");
        }
    }
}

async fn yields_of(count: u32) {
    for _ in 0..count {
        yield_now().await;
    }
}

fn requests(clients: &EventLoopGroup, address: SocketAddr) {
    let client = move || async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for _ in 0..REQUESTS / CONNECTIONS {
            stream.write_all(&[7; 64]).await.unwrap();
            stream.read_exact(&mut [0; 64]).await.unwrap();
        }
    };
    let tasks: Vec<_> = (0..CONNECTIONS).map(|_| clients.spawn(client())).collect();
    tasks.into_iter().for_each(|task| block_on(task).unwrap());
}

/// How long the loop of `group` works meanwhile, in seconds.
fn time(group: &EventLoopGroup, work: impl FnOnce()) -> f64 {
    let start = busy(group);
    work();
    busy(group) - start
}

/// How long the thread of the loop has run, or else the time.
fn busy(group: &EventLoopGroup) -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let read = group.next().submit(|| {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    let nanos = block_on(read).unwrap();
    nanos.map_or_else(
        || START.get_or_init(Instant::now).elapsed().as_secs_f64(),
        |nanos| nanos / 1e9,
    )
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

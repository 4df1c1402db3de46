//! Fault plans: drawn by the seed, hitting who they may, ending when they say, and healed at the end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use loopgroup::net::{TcpListener, TcpStream, UdpSocket};
use loopgroup::testing::sim::{self, FaultKind, Faults, Link, Simulation};
use loopgroup::time::{sleep, timeout};

use crate::util::{within, within_for};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn after_the_phase_every_host_runs_and_every_path_is_open() {
    within(|| {
        sim::search(0..200, |sim| {
            for name in ["a", "b", "c"] {
                sim.host(name, |_| async {
                    let listener = TcpListener::bind("0.0.0.0:1").await?;
                    loop {
                        listener.accept().await?;
                    }
                    #[allow(unreachable_code)]
                    std::io::Result::Ok(())
                });
            }
            sim.client("checker", async {
                sleep(secs(20)).await;
                for name in ["a:1", "b:1", "c:1"] {
                    // One try: nothing is lost any more.
                    let connected = timeout(secs(1), TcpStream::connect(name)).await;
                    if !matches!(connected, Ok(Ok(_))) {
                        return Err(format!("{name} does not answer: {connected:?}"));
                    }
                }
                Ok(())
            });
            sim.faults(Faults::chaos().until(secs(19)));
        });
    });
}

#[test]
fn a_seed_draws_which_kinds_there_are_and_the_same_each_time() {
    within(|| {
        let restarts = |seed| {
            let mut sim = Simulation::seeded(seed);
            let lives = Rc::new(Cell::new(0));
            let count = Rc::clone(&lives);
            sim.host("victim", move |host| {
                count.set(count.get() + 1);
                assert_eq!(host.restarts() + 1, count.get());
                std::future::pending::<()>()
            });
            sim.faults(Faults::only([FaultKind::Kill, FaultKind::Crash]));
            sim.run_for(secs(40)).unwrap();
            lives.get()
        };
        let lives: Vec<u32> = (0..40).map(restarts).collect();
        assert_eq!(lives, (0..40).map(restarts).collect::<Vec<_>>());
        assert!(
            lives.contains(&1),
            "some seeds have no such fault: {lives:?}"
        );
        assert!(lives.iter().any(|&lives| lives > 2), "{lives:?}");
    });
}

#[test]
fn faults_hit_only_the_hosts_that_they_may() {
    within(|| {
        sim::search(0..100, |sim| {
            for name in ["mortal", "immortal"] {
                sim.host(name, move |host| async move {
                    match (host.name(), host.restarts()) {
                        ("immortal", 1..) => Err("it was restarted"),
                        _ => std::future::pending().await,
                    }
                });
            }
            sim.client("clock", sleep(secs(31)));
            let kinds = [FaultKind::Kill, FaultKind::Crash];
            sim.faults(Faults::only(kinds).hosts(["mortal"]));
        });
    });
}

#[test]
fn a_bad_link_ends_and_what_was_set_before_is_back() {
    within(|| {
        for seed in 0..30 {
            let mut sim = Simulation::seeded(seed);
            sim.host("echo", |_| async {
                let socket = UdpSocket::bind("0.0.0.0:7").await?;
                let mut buf = [0; 8];
                loop {
                    let (len, peer) = socket.recv_from(&mut buf).await?;
                    socket.send_to(&buf[..len], peer).await?;
                }
                #[allow(unreachable_code)]
                std::io::Result::Ok(())
            });
            sim.client("clock", async {
                sleep(secs(20)).await;
                let socket = UdpSocket::bind("0.0.0.0:0").await?;
                let start = sim::now();
                socket.send_to(b"x", "echo:7").await?;
                socket.recv_from(&mut [0; 8]).await?;
                assert_eq!(sim::now() - start, Duration::from_millis(14));
                std::io::Result::Ok(())
            });
            sim.link(
                "echo",
                "clock",
                Link::default().latency(Duration::from_millis(7)),
            );
            sim.faults(Faults::only([FaultKind::BadLink]).until(secs(19)));
            sim.run().unwrap();
        }
    });
}

/// What a collector has seen of a host: when the first datagram that came late was sent, and when it came.
type Clogs = Rc<RefCell<BTreeMap<u8, (Duration, Duration)>>>;

/// Five hosts that send a datagram every 25 ms, numbered, and a client that wants all of them, in order.
fn senders(sim: &mut Simulation, clogs: &Clogs) {
    const TICK: Duration = Duration::from_millis(25);
    const TICKS: u32 = 1_300; // longer than the faults
    for number in 0..5_u8 {
        sim.host(&format!("host{number}"), move |_| async move {
            let socket = UdpSocket::bind("0.0.0.0:1").await?;
            for tick in 0..TICKS {
                let mut datagram = [number, 0, 0, 0, 0];
                datagram[1..].copy_from_slice(&tick.to_be_bytes());
                socket.send_to(&datagram, "collector:1").await?;
                sleep(TICK).await;
            }
            std::io::Result::Ok(())
        });
    }
    let clogs = Rc::clone(clogs);
    let start = sim.now();
    sim.client("collector", async move {
        let socket = UdpSocket::bind("0.0.0.0:1").await?;
        let mut next = [0; 5];
        while next != [TICKS; 5] {
            let mut datagram = [0; 5];
            socket.recv_from(&mut datagram).await?;
            let [number, tick @ ..] = datagram;
            let (tick, now) = (u32::from_be_bytes(tick), sim::now() - start);
            assert_eq!(tick, next[usize::from(number)], "of host {number}");
            next[usize::from(number)] += 1;
            let sent = TICK * tick;
            if now - sent > 2 * TICK {
                clogs.borrow_mut().entry(number).or_insert((sent, now));
            }
        }
        std::io::Result::Ok(())
    });
}

#[test]
fn clogs_of_a_swizzle_overlap_end_in_another_order_and_lose_nothing() {
    within_for(secs(120), || {
        let (mut overlapping, mut swizzled) = (0, 0);
        for seed in 0..60 {
            let clogs = Clogs::default();
            let mut sim = Simulation::seeded(seed);
            senders(&mut sim, &clogs);
            sim.faults(Faults::only([FaultKind::Swizzle]).at_most(1));
            sim.run().unwrap();
            let clogs: Vec<_> = clogs.take().into_values().collect();
            if clogs.len() < 2 {
                continue; // no fault, or too short to be seen
            }
            // In the middle of the fault all of them are clogged.
            let last_start = clogs.iter().map(|(start, _)| *start).max().unwrap();
            let first_end = clogs.iter().map(|(_, end)| *end).min().unwrap();
            assert!(last_start <= first_end, "seed {seed}: {clogs:?}");
            overlapping += 1;
            let mut by_start = clogs.clone();
            by_start.sort();
            swizzled += u32::from(!by_start.is_sorted_by_key(|(_, end)| *end));
        }
        assert!(overlapping > 5, "{overlapping}");
        assert!(swizzled > 2, "{swizzled} of {overlapping}");
    });
}

#[test]
fn connections_of_bad_links_have_small_buffers() {
    within(|| {
        let report = sim::search(0..30, |sim| {
            sim.host("sink", |_| async {
                let listener = TcpListener::bind("0.0.0.0:1").await?;
                let (mut stream, _) = listener.accept().await?;
                futures::io::copy(&mut stream, &mut futures::io::sink()).await?;
                std::io::Result::Ok(())
            });
            sim.client("source", async {
                sleep(secs(15)).await;
                let stream = TcpStream::connect("sink:1").await?;
                let (mut most, buf) = (0, vec![7; 1 << 20]);
                while let Ok(bytes) = stream.try_write(&buf) {
                    most += bytes;
                }
                sim::sometimes("a small buffer", most < 32 * 1024);
                sim::sometimes("a default buffer", most == 64 * 1024);
                std::io::Result::Ok(())
            });
            sim.faults(Faults::only([FaultKind::BadLink]).at_most(16));
        });
        assert!(report.reached("a small buffer") > 0, "{report}");
        assert!(report.reached("a default buffer") > 0, "{report}");
    });
}

#[test]
fn no_faults_are_drawn_without_hosts_or_time() {
    within(|| {
        for faults in [
            Faults::chaos().until(Duration::ZERO),
            Faults::chaos().at_most(0),
            Faults::only([]),
            Faults::chaos().hosts(Vec::<String>::new()),
        ] {
            let mut sim = Simulation::seeded(3);
            sim.host("calm", |host| async move {
                assert_eq!(host.restarts(), 0);
                std::future::pending::<()>().await
            });
            sim.client("clock", sleep(secs(40)));
            sim.faults(faults);
            sim.run().unwrap();
        }
        let mut sim = Simulation::seeded(3);
        sim.client("alone", sleep(secs(40)));
        sim.faults(Faults::chaos());
        sim.run().unwrap();
    });
}

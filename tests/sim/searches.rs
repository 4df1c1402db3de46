//! Searches: the lowest failing seed, the smallest story, what was reached, and runs that do not repeat.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{TcpListener, TcpStream, UdpSocket};
use loopgroup::testing::sim::{self, FaultKind, Faults, SimErrorKind, Simulation};
use loopgroup::time::{sleep, timeout};

use crate::util::{Json, panic_of, within};

/// A server that counts, and a client that adds one a hundred times, and tries again when it is not answered.
///
/// The planted bug: a request that is sent again is counted again.
fn counts_twice(sim: &mut Simulation) {
    sim.host("idle", |_| std::future::pending::<()>());
    sim.host("server", |_| async {
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let count = std::rc::Rc::new(std::cell::Cell::new(0_u32));
        loop {
            let (mut stream, _) = listener.accept().await?;
            let count = count.clone();
            let serve = async move {
                while stream.read_exact(&mut [0]).await.is_ok() {
                    count.set(count.get() + 1);
                    if stream.write_all(&count.get().to_be_bytes()).await.is_err() {
                        return;
                    }
                }
            };
            drop(loopgroup::spawn_local(serve));
        }
        #[allow(unreachable_code)]
        std::io::Result::Ok(())
    });
    sim.client("client", async {
        let mut count = 0;
        for _ in 0..100 {
            count = loop {
                match timeout(Duration::from_secs(1), add_one()).await {
                    Ok(Ok(count)) => break count,
                    _ => sleep(Duration::from_millis(100)).await,
                }
            };
            sleep(Duration::from_millis(100)).await;
        }
        match count {
            100 => Ok(()),
            other => Err(format!("the count is {other}")),
        }
    });
    let faults = Faults::chaos()
        .without(FaultKind::Kill)
        .without(FaultKind::Crash);
    sim.faults(faults.until(Duration::from_secs(10)));
}

async fn add_one() -> std::io::Result<u32> {
    let mut stream = TcpStream::connect("server:1").await?;
    stream.write_all(&[1]).await?;
    let mut count = [0; 4];
    stream.read_exact(&mut count).await?;
    Ok(u32::from_be_bytes(count))
}

#[test]
fn a_planted_bug_is_found_and_shrunk_to_what_it_takes() {
    within(|| {
        let found = sim::try_search(0..500, counts_twice).unwrap_err();
        assert_eq!(found.error().kind(), SimErrorKind::Failed);
        assert_eq!(found.error().host(), Some("client"));
        assert!(found.faults().len() <= 2, "{found}");
        assert_eq!(found.not_needed(), ["idle"], "{found}");
        let text = found.to_string();
        assert!(text.contains("the count is"), "{text}");
        let seed = found.error().seed();
        let program = std::env::args().next().unwrap();
        // The thread of `within` is named otherwise than the test.
        let again = format!("to see it again: LOOPGROUP_SIM_SEED={seed} {program}");
        assert!(text.contains(&again), "{text}");
        assert!(found.report().seeds() > seed, "{text}");
        assert!(text.contains("network: a connect is refused:"), "{text}");
        assert!(found.error().diagram().starts_with("<svg"));
        assert!(!found.error().last_events().is_empty());
    });
}

#[test]
fn the_faults_of_several_plans_are_shrunk_together() {
    within(|| {
        let found = sim::try_search(0..100, |sim| {
            let starts = Rc::<RefCell<Vec<String>>>::default();
            for name in ["one", "two"] {
                let starts = Rc::clone(&starts);
                sim.host(name, move |host| {
                    starts.borrow_mut().push(host.name().to_owned());
                    std::future::pending::<()>()
                });
            }
            sim.client("client", async move {
                sleep(Duration::from_secs(30)).await;
                let starts = starts.borrow();
                let again = |name| starts.iter().filter(|one| *one == name).count() > 1;
                match again("one") && again("two") {
                    true => Err("both were started again"),
                    false => Ok(()),
                }
            });
            for name in ["one", "two"] {
                let kills = Faults::only([FaultKind::Kill]).hosts([name]);
                sim.faults(kills.until(Duration::from_secs(10)));
                sim.run_for(Duration::from_secs(10)).unwrap();
            }
        });
        let found = found.unwrap_err();
        assert_eq!(found.faults().len(), 2, "{found}");
        // After the start of the run, not of its plan.
        assert!(found.faults()[1].at() >= Duration::from_secs(10), "{found}");
        let text = found.to_string();
        assert!(text.contains("the process of one is killed"), "{text}");
        assert!(text.contains("the process of two is killed"), "{text}");
    });
}

#[test]
fn a_host_whose_absence_fails_by_itself_stays_in_the_story() {
    within(|| {
        let found = sim::try_search(0..100, |sim| {
            sim.client("silent", sleep(Duration::from_secs(1)));
            sim.client("speaker", async {
                let socket = UdpSocket::bind("0.0.0.0:1").await?;
                for _ in 0..30 {
                    socket.send_to(b"here", "listener:1").await?;
                    sleep(Duration::from_secs(1)).await;
                }
                std::io::Result::Ok(())
            });
            sim.host("listener", |_| async {
                let socket = UdpSocket::bind("0.0.0.0:1").await?;
                for _ in 0..20 {
                    timeout(Duration::from_secs(3), socket.recv_from(&mut [0; 4])).await??;
                }
                std::io::Result::Ok(())
            });
            sim.faults(Faults::only([FaultKind::Partition]));
        });
        let found = found.unwrap_err();
        assert_eq!(found.error().host(), Some("listener"), "{found}");
        assert_eq!(found.not_needed(), ["silent"], "{found}");
        assert_eq!(found.faults().len(), 1, "{found}");
    });
}

#[test]
fn a_story_that_moves_to_a_later_time_is_another_one_also_without_faults() {
    within(|| {
        let found = sim::try_search(0..1, |sim| {
            sim.client("silent", sleep(Duration::from_secs(1)));
            // It answers twice, and then no more.
            sim.host("server", |_| async {
                let socket = UdpSocket::bind("0.0.0.0:1").await?;
                for _ in 0..2 {
                    let (_, peer) = socket.recv_from(&mut [0; 4]).await?;
                    socket.send_to(b"here", peer).await?;
                }
                std::future::pending::<std::io::Result<()>>().await
            });
            sim.client("asker", async {
                let socket = UdpSocket::bind("0.0.0.0:1").await.unwrap();
                // More patient with a server that it has not heard yet.
                let mut patience = Duration::from_secs(60);
                loop {
                    socket.send_to(b"here", "server:1").await.unwrap();
                    if timeout(patience, socket.recv_from(&mut [0; 4]))
                        .await
                        .is_err()
                    {
                        return Err("no answer");
                    }
                    patience = Duration::from_secs(1);
                }
                #[allow(unreachable_code)]
                Ok(())
            });
        });
        let found = found.unwrap_err();
        assert_eq!(found.not_needed(), ["silent"], "{found}");
        assert!(found.error().at() < Duration::from_secs(2), "{found}");
    });
}

#[test]
fn a_fault_is_shortened_to_less_than_twice_of_what_it_takes() {
    within(|| {
        for start in [0, 40, 80, 120] {
            let found = sim::try_search(start..start + 1_000, |sim| {
                sim.client("speaker", async {
                    let socket = UdpSocket::bind("0.0.0.0:1").await?;
                    for _ in 0..350 {
                        socket.send_to(b"here", "listener:1").await?;
                        sleep(Duration::from_millis(100)).await;
                    }
                    std::io::Result::Ok(())
                });
                // A second of silence is too long.
                sim.host("listener", |_| async {
                    let socket = UdpSocket::bind("0.0.0.0:1").await?;
                    for _ in 0..300 {
                        timeout(Duration::from_secs(1), socket.recv_from(&mut [0; 4])).await??;
                    }
                    std::io::Result::Ok(())
                });
                sim.faults(Faults::only([FaultKind::Partition]).at_most(1));
            });
            let found = found.unwrap_err();
            assert_eq!(found.faults().len(), 1, "{found}");
            let lasts = found.faults()[0].lasts();
            assert!(
                (Duration::from_millis(900)..Duration::from_millis(2_200)).contains(&lasts),
                "{found}"
            );
        }
    });
}

#[test]
fn the_lowest_seed_that_fails_is_reported_in_each_search() {
    within(|| {
        let fails = |sim: &mut Simulation| {
            let seed = sim.seed();
            sim.client("odd", async move {
                sleep(Duration::from_secs(seed)).await;
                match seed {
                    37 | 40.. => Err("found"),
                    _ => Ok(()),
                }
            });
        };
        for _ in 0..20 {
            let found = sim::try_search(0..1_000, fails).unwrap_err();
            assert_eq!(found.error().seed(), 37);
            assert_eq!(found.error().at(), Duration::from_secs(37));
        }
    });
}

#[test]
fn a_panic_of_the_builder_is_a_failure_of_its_seed() {
    within(|| {
        let found = sim::try_search(0..10, |sim| {
            sim.client("fine", async {});
            let report = sim.run().unwrap();
            assert!(report.seed() < 5, "checked after the run");
        });
        let found = found.unwrap_err();
        assert_eq!(
            (found.error().kind(), found.error().seed()),
            (SimErrorKind::Panicked, 5)
        );
        assert!(found.error().message().contains("checked after the run"));
    });
}

#[test]
fn a_failing_search_leaves_pictures_that_no_other_one_overwrites() {
    within(|| {
        let files = || {
            let text = panic_of(|| sim::search(0..500, counts_twice));
            let of = |what: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(what));
                std::path::PathBuf::from(line.unwrap_or_else(|| panic!("{what}: {text}")))
            };
            let diagram = of("its last packets, for a browser: ");
            [diagram, of("its last minute, for ui.perfetto.dev: ")]
        };
        let (first, second) = (files(), files());
        assert_ne!(first, second);
        let read = |path: &std::path::PathBuf| std::fs::read_to_string(path).unwrap();
        for [diagram, trace] in [&first, &second] {
            assert!(read(diagram).starts_with("<svg"));
            let trace = read(trace);
            let events = Json::parse(&trace);
            assert!(events.get("traceEvents").list().len() > 100, "{trace}");
            assert!(trace.contains("\"name\":\"client\""), "{trace}");
            assert!(trace.contains("SYN"), "{trace}");
        }
        for path in first.iter().chain(&second) {
            std::fs::remove_file(path).unwrap();
        }
    });
}

#[test]
fn what_was_never_reached_is_told() {
    within(|| {
        let report = sim::search(0..50, |sim| {
            let seed = sim.seed();
            sim.client("one", async move {
                sim::sometimes("an even seed", seed % 2 == 0);
                sim::sometimes("a seed of a thousand", seed == 1_000);
                let refused = TcpStream::connect("one:1").await.is_err();
                sim::sometimes("refused", refused);
            });
        });
        assert_eq!(report.reached("an even seed"), 25);
        assert_eq!(report.reached("refused"), 50);
        assert_eq!(report.reached("network: a connect is refused"), 50);
        let never = report.never_reached();
        assert!(never.contains(&"a seed of a thousand"), "{report}");
        assert!(never.contains(&"network: a backlog is full"), "{report}");
        assert!(!never.contains(&"an even seed"), "{report}");
    });
}

#[test]
fn a_search_on_a_loop_is_refused_whether_or_not_it_would_fail() {
    within(|| {
        let refused = loopgroup::run(async {
            let passes = |sim: &mut Simulation| sim.client("one", async {});
            let fails = |sim: &mut Simulation| sim.client("one", async { Err("always") });
            let settings = Simulation::builder();
            [
                panic_of(|| sim::search(0..3, passes)),
                panic_of(|| sim::search(0..3, fails)),
                panic_of(|| sim::try_search(0..3, fails)),
                panic_of(|| sim::search_with(&settings, 0..3, passes)),
                panic_of(|| sim::try_search_with(&settings, 0..0, passes)),
                panic_of(|| sim::check(0, passes)),
                panic_of(|| sim::check_with(&settings, 0, fails)),
            ]
        });
        for text in refused.unwrap() {
            assert!(text.contains("on the thread of an event loop"), "{text}");
            assert!(!text.contains("went another way"), "{text}");
        }
    });
}

#[test]
fn a_search_runs_every_seed_once() {
    within(|| {
        let ran = AtomicU64::new(0);
        let report = sim::search(100..300, |sim| {
            ran.fetch_add(sim.seed(), Ordering::Relaxed);
            sim.client("one", async {});
        });
        assert_eq!(report.seeds(), 200);
        assert_eq!(ran.into_inner(), (100..300_u64).sum::<u64>());
        assert_eq!(sim::search(7..7, |_| panic!("no seed")).seeds(), 0);
    });
}

#[test]
fn a_run_that_depends_on_more_than_its_seed_is_told_by_its_first_difference() {
    within(|| {
        let check = |build: fn(&mut Simulation)| {
            let checked = catch_unwind(AssertUnwindSafe(|| sim::check(7, build)));
            let payload = checked.unwrap_err();
            loopgroup_message(&*payload)
        };
        // The order of a map with random keys.
        let text = check(|sim| {
            sim.client("mapper", async {
                let map: HashMap<u64, ()> = (0..64).map(|key| (key, ())).collect();
                for key in map.keys() {
                    sleep(Duration::from_millis(*key)).await;
                }
            });
        });
        assert!(text.contains("seed 7 does not repeat: event "), "{text}");
        assert!(text.contains("HashMap"), "{text}");
        // Something that survives the run.
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let text = check(|sim| {
            let run = RUNS.fetch_add(1, Ordering::Relaxed);
            sim.client("static", async move {
                for _ in 0..run {
                    sleep(Duration::from_secs(1)).await;
                }
            });
        });
        assert!(text.contains("nothing more"), "{text}");
        // What is offered instead repeats.
        sim::check(7, |sim| {
            sim.client("mapper", async {
                let map: HashMap<u64, (), sim::FixedHasher> =
                    (0..64).map(|key| (key, ())).collect();
                for key in map.keys() {
                    sleep(Duration::from_millis(*key + sim::random() % 7)).await;
                }
            });
        });
    });
}

fn loopgroup_message(payload: &(dyn std::any::Any + Send)) -> String {
    match payload.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => "another payload".to_owned(),
    }
}

//! What a review has found, each with the test that would have.

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::EventLoopGroup;
use loopgroup::net::{ConnectionEnd, Rebalance, Server, TcpListener, TcpStream, Turn, UdpSocket};
use loopgroup::testing::sim::{self, FaultKind, Faults, SimErrorKind, Simulation};
use loopgroup::time::sleep;

use crate::util::{entries, within};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn a_panic_in_what_was_planned_is_a_failure_of_its_seed_also_while_it_is_shrunk() {
    within(|| {
        let found = sim::try_search(0..20, |sim| {
            let seed = sim.seed();
            sim.client("clock", sleep(secs(10)));
            sim.at(secs(1), move |_| assert!(seed < 3, "an invariant"));
            sim.faults(Faults::chaos());
        });
        let found = found.unwrap_err();
        assert_eq!(
            (found.error().seed(), found.error().kind()),
            (3, SimErrorKind::Panicked)
        );
        assert!(found.error().message().contains("an invariant"));
        assert!(found.repeats());
        // The client fails, and without the helper something else does.
        let found = sim::try_search(0..1, |sim| {
            let helped = Rc::new(RefCell::new(false));
            let note = Rc::clone(&helped);
            sim.host("helper", move |_| {
                *note.borrow_mut() = true;
                std::future::pending::<()>()
            });
            sim.at(secs(1), move |_| {
                assert!(*helped.borrow(), "there is no helper")
            });
            sim.client("client", async {
                sleep(secs(2)).await;
                Err("the real failure")
            });
        });
        assert_eq!(found.unwrap_err().error().message(), "the real failure");
        // Nothing of that is left on the thread.
        let mut sim = Simulation::seeded(1);
        sim.host("helper", |_| async { Err("it runs") });
        assert!(sim.run_for(secs(1)).is_err());
    });
}

#[test]
fn a_client_that_waits_for_ever_is_not_explained_by_hosts_that_were_left_out() {
    within(|| {
        let settings = Simulation::builder().time_limit(secs(600));
        let found = sim::try_search_with(&settings, 0..50, |sim| {
            // The planted bug: nobody answers after a restart.
            sim.host("server", |host| async move {
                let socket = UdpSocket::bind("0.0.0.0:1").await?;
                let mut buf = [0; 8];
                loop {
                    let (len, peer) = socket.recv_from(&mut buf).await?;
                    if host.restarts() == 0 {
                        socket.send_to(&buf[..len], peer).await?;
                    }
                }
                #[allow(unreachable_code)]
                io::Result::Ok(())
            });
            sim.client("client", async {
                let socket = UdpSocket::bind("0.0.0.0:0").await?;
                for _ in 0..40 {
                    sleep(secs(1)).await;
                    socket.send_to(b"x", "server:1").await?;
                    socket.recv_from(&mut [0; 8]).await?;
                }
                io::Result::Ok(())
            });
            sim.faults(Faults::only([FaultKind::Kill]));
        });
        let found = found.unwrap_err();
        assert_eq!(found.error().kind(), SimErrorKind::Stuck, "{found}");
        assert_eq!(found.faults().len(), 1, "{found}");
        assert!(found.not_needed().is_empty(), "{found}");
    });
}

#[test]
fn a_failure_that_does_not_repeat_says_so() {
    within(|| {
        use std::sync::atomic::{AtomicBool, Ordering};
        let first = AtomicBool::new(true);
        let found = sim::try_search(0..1, |sim| {
            let fails = first.swap(false, Ordering::Relaxed);
            sim.client(
                "moody",
                async move { if fails { Err("once") } else { Ok(()) } },
            );
        });
        let found = found.unwrap_err();
        assert!(!found.repeats());
        assert!(found.to_string().contains("went another way"), "{found}");
    });
}

#[test]
fn a_check_sees_contents_and_cannot_be_given_another_simulation() {
    within(|| {
        let text = |build: fn(&mut Simulation)| {
            let checked = catch_unwind(AssertUnwindSafe(|| sim::check(7, build)));
            let payload = checked.unwrap_err();
            payload
                .downcast_ref::<String>()
                .cloned()
                .unwrap_or_default()
                + payload.downcast_ref::<&str>().copied().unwrap_or_default()
        };
        let differs = text(|sim| {
            sim.client("leaky", async {
                use std::hash::{BuildHasher, RandomState};
                let socket = UdpSocket::bind("0.0.0.0:1").await?;
                let bytes = RandomState::new().hash_one(0).to_be_bytes();
                socket.send_to(&bytes, "leaky:1").await.map(drop)
            });
        });
        assert!(differs.contains("hash of the bytes"), "{differs}");
        let replaced = text(|sim| {
            *sim = Simulation::seeded(sim.seed());
            sim.client("fine", async {});
        });
        assert!(replaced.contains("check_with"), "{replaced}");
    });
}

#[test]
fn a_run_that_rebalances_depends_on_nothing_but_its_seed() {
    within(|| {
        let run = |noise: Duration| {
            let settings = Simulation::builder()
                .seed(3)
                .poll_cost(Duration::from_millis(2));
            let mut sim = settings.build();
            sim.host("server", move |_| async move {
                let workers = EventLoopGroup::new(2)?;
                workers.loops()[1].pause();
                let rule = Rebalance::by_utilization().period(Duration::from_millis(500));
                let server = Server::new("0.0.0.0:7")?.workers(&workers).rebalance(rule);
                let turn = async move |stream: &TcpStream, _: &mut ()| {
                    let mut byte = [0];
                    if (&mut &*stream).read_exact(&mut byte).await.is_err() {
                        return Turn::Close;
                    }
                    let begun = Instant::now(); // real work, which virtual time does not see
                    while byte[0] == 1 && begun.elapsed() < noise {}
                    let _ = (&mut &*stream).write_all(&byte).await;
                    Turn::Next
                };
                let _server = server.serve_turns(|_, _| (), turn)?;
                sleep(secs(1)).await;
                workers.loops()[1].resume();
                std::future::pending::<()>().await;
                io::Result::Ok(())
            });
            for client in 0..4_u8 {
                sim.client(&format!("client-{client}"), async move {
                    let mut stream = TcpStream::connect("server:7").await?;
                    for _ in 0..500 {
                        stream.write_all(&[client]).await?;
                        stream.read_exact(&mut [0]).await?;
                    }
                    io::Result::Ok(())
                });
            }
            sim.run().unwrap().trace()
        };
        let quiet = run(Duration::ZERO);
        assert_eq!(run(Duration::from_micros(200)), quiet);
    });
}

#[test]
fn a_server_takes_a_simulated_listener_and_tells_virtual_times() {
    within(|| {
        let lives = Rc::new(RefCell::new(Vec::new()));
        let (tx, rx) = std::sync::mpsc::channel();
        let mut sim = Simulation::seeded(1);
        sim.host("server", move |_| {
            let tx = tx.clone();
            async move {
                let listener = TcpListener::bind("0.0.0.0:1").await?;
                let workers = EventLoopGroup::new(1)?;
                let server = Server::from_listener(listener)?.workers(&workers);
                let server = server.on_connection(move |event| {
                    if let Some((ConnectionEnd::Completed, life)) = event.end() {
                        tx.send(life).unwrap();
                    }
                });
                let server = server.serve(|mut stream, _| async move {
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                })?;
                server.await;
                io::Result::Ok(())
            }
        });
        sim.client("client", async {
            let stream = TcpStream::connect("server:1").await?;
            sleep(secs(60)).await;
            drop(stream);
            sleep(secs(1)).await;
            io::Result::Ok(())
        });
        sim.run().unwrap();
        lives.borrow_mut().extend(rx.try_iter());
        assert!(
            matches!(lives.borrow()[..], [life] if life >= secs(60)),
            "{lives:?}"
        );
    });
}

#[test]
fn plans_may_begin_during_a_run_and_end_nothing_but_their_own_faults() {
    within(|| {
        let mut reached = false;
        for seed in 0..20 {
            let mut sim = Simulation::seeded(seed);
            let lives = Rc::new(RefCell::new(0));
            let count = Rc::clone(&lives);
            sim.host("late", move |_| {
                *count.borrow_mut() += 1;
                std::future::pending::<()>()
            });
            sim.host("dead", |host| async move {
                assert_eq!(host.restarts(), 0, "it stays down");
                std::future::pending::<()>().await;
            });
            sim.at(secs(1), |sim| {
                sim.crash("dead");
                sim.faults(Faults::only([FaultKind::Kill]).hosts(["late"]));
            });
            sim.run_for(secs(60)).unwrap();
            reached |= *lives.borrow() > 1;
        }
        assert!(reached, "some seed kills it");
    });
}

#[test]
fn the_first_panic_is_told_and_a_failure_ends_the_steps() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        sim.client("twice", async {
            drop(loopgroup::spawn_local(async { panic!("the first") }));
            loopgroup::yield_now().await;
            drop(loopgroup::spawn_local(async { panic!("the second") }));
            sleep(secs(1)).await;
        });
        let mut steps = 0;
        while sim.step() {
            steps += 1;
        }
        let failure = sim.failure().expect("it has failed");
        assert!(failure.message().contains("the first"), "{failure}");
        assert!(steps < 100 && !sim.step());
    });
}

#[test]
fn lives_and_seeds_draw_apart_and_a_test_draws_from_its_seed() {
    within(|| {
        let draws = |seed| {
            let mut sim = Simulation::seeded(seed);
            let drawn = Rc::new(RefCell::new(vec![sim.random()]));
            let notes = Rc::clone(&drawn);
            sim.host("dice", move |_| {
                notes.borrow_mut().push(sim::random());
                std::future::pending::<()>()
            });
            sim.run_for(secs(1)).unwrap();
            sim.restart("dice");
            sim.run_for(secs(1)).unwrap();
            drawn.take()
        };
        let all: Vec<u64> = (0..50).flat_map(draws).collect();
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!((all.len(), distinct.len()), (150, 150));
        assert_eq!(draws(7), draws(7));
    });
}

#[test]
fn a_connection_without_delay_takes_no_descriptor() {
    crate::util::alone("a_connection_without_delay_takes_no_descriptor", || {
        let mut sim = Simulation::seeded(1);
        sim.client("many", async {
            let listener = TcpListener::bind("0.0.0.0:1").await?;
            let before = entries("/proc/self/fd");
            let mut streams = Vec::new();
            for _ in 0..200 {
                let stream = TcpStream::connect("many:1").await?;
                stream.set_nodelay(true)?;
                assert!(stream.nodelay()?);
                streams.push((stream, listener.accept().await?));
            }
            assert_eq!(entries("/proc/self/fd"), before);
            io::Result::Ok(())
        });
        sim.run().unwrap();
    });
}

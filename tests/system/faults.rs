//! What the system can do to a loop: no descriptors, a broken selector, signals, no threads.
#![cfg(target_os = "linux")]

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use loopgroup::blocking::BlockingGroup;
use loopgroup::io::Registered;
use loopgroup::net::{self, Server, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener};
use loopgroup::time::sleep;
use loopgroup::{EndCause, EventLoop, EventLoopGroup, LoopState, RejectReason, yield_now};

use crate::util::{self, Door, DropCount, TempPath, alone, eventually, ms, tid_of, within};

/// Larger than the address space of any process: no thread starts with it.
const IMPOSSIBLE_STACK: usize = 1 << 47;

/// Every descriptor of this process with what it leads to.
fn descriptors() -> Vec<(RawFd, String)> {
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| {
            let entry = entry.unwrap();
            let fd = entry.file_name().to_str()?.parse().ok()?;
            // The one that reads the directory is gone by now, or leads to the directory.
            let target = fs::read_link(entry.path()).ok()?;
            let target = target.to_string_lossy().into_owned();
            (!target.starts_with("/proc/")).then_some((fd, target))
        })
        .collect()
}

fn selectors() -> Vec<RawFd> {
    descriptors()
        .into_iter()
        .filter(|(_, target)| target == "anon_inode:[eventpoll]")
        .map(|(fd, _)| fd)
        .collect()
}

/// Opens descriptors until there are no more.
fn exhaust() -> Vec<File> {
    let limit = libc::rlimit {
        rlim_cur: 128,
        rlim_max: 128,
    };
    // SAFETY: the pointer is valid for the call, which only reads it.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let mut files = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                return files;
            }
        }
    }
}

/// Puts `/dev/null` in the place of a selector: every later wait in it fails.
fn break_selector(fd: RawFd, with: &File) {
    // SAFETY: both are open; that somebody else owns `fd` is the very fault to be made.
    assert_eq!(unsafe { libc::dup2(with.as_raw_fd(), fd) }, fd);
}

/// Descriptors that lead to the selector of a loop: the one it waits in, and the one that other
/// threads register with.
const PER_LOOP: usize = 2;

/// One loop with a selector.
fn one_selector() -> EventLoopGroup {
    let group = EventLoopGroup::new(1).unwrap();
    assert_eq!(selectors().len(), PER_LOOP);
    group
}

#[test]
fn a_loop_whose_alarm_cannot_be_made_is_named() {
    alone("a_loop_whose_alarm_cannot_be_made_is_named", || {
        let mut files = exhaust();
        // Four for the first loop: a selector, its bell, an alarm, and the second way to the selector.
        let precise = || EventLoopGroup::builder().loops(2).precise_timers(true);
        for free in 4..8 {
            files.truncate(files.len() - if free == 4 { 4 } else { 1 });
            let error = precise().build().unwrap_err();
            let text = error.to_string();
            assert!(text.contains("could not create loop 1 of 2"), "{text}");
        }
        files.truncate(files.len() - 1);
        let group = precise().build().unwrap();
        drop(files);
        let alarms = descriptors().into_iter();
        let alarms = alarms.filter(|(_, target)| target == "anon_inode:[timerfd]");
        assert_eq!(alarms.count(), 2);
        group.block_on(group.spawn_on(1, sleep(ms(1)))).unwrap();
    });
}

#[test]
fn a_reactor_that_cannot_be_made_names_its_loop_and_leaks_no_descriptor() {
    alone(
        "a_reactor_that_cannot_be_made_names_its_loop_and_leaks_no_descriptor",
        || {
            let mut files = exhaust();
            // Three for each of three loops, and a selector without bell for the fourth.
            files.truncate(files.len() - 10);
            let error = EventLoopGroup::new(8).unwrap_err();
            assert!(
                error.to_string().contains("could not create loop 3 of 8"),
                "{error}"
            );
            let again: Vec<_> = (0..10).map(|_| File::open("/dev/null").unwrap()).collect();
            assert!(File::open("/dev/null").is_err(), "ten are free, no more");
            drop(again);
            // What was freed is enough for three loops, and they work.
            let group = EventLoopGroup::new(3).unwrap();
            for index in 0..3 {
                group.block_on(group.spawn_on(index, async {})).unwrap();
            }
            assert_eq!(group.shutdown_now().wait().completed(), 3);
        },
    );
}

#[test]
fn a_loop_whose_selector_breaks_rebuilds_it_and_goes_on() {
    alone(
        "a_loop_whose_selector_breaks_rebuilds_it_and_goes_on",
        || {
            let null = File::open("/dev/null").unwrap();
            let group = one_selector();
            let before = descriptors().len();
            let door = Door::new();
            let waiting = group.spawn(door.opened());
            eventually("the task waits", || door.waiting() == 1);
            let answers = Cell::new(0);
            let answer = || {
                group.block_on(group.spawn(async {})).unwrap();
                answers.set(answers.get() + 1);
            };
            let seen = || group.next().metrics();
            // More often than a selector that never works would be rebuilt.
            for round in 0..10 {
                for fd in selectors() {
                    break_selector(fd, &null);
                }
                // The wait under way still hears its bell; the one after it fails.
                eventually("it is rebuilt", || {
                    answer();
                    seen().rebuilds() > round
                });
                // A good wait in between. One ring may be of the old bell; the next one is not.
                let rings = seen().wakeup_calls();
                eventually("it sleeps and is woken", || {
                    answer();
                    seen().wakeup_calls() > rings + 1
                });
                assert_eq!(selectors().len(), PER_LOOP);
            }
            door.open();
            group.block_on(waiting).unwrap();
            assert_eq!(descriptors().len(), before, "the broken ones are closed");
            let report = group.drain(Duration::from_secs(30)).wait();
            assert_eq!(report.completed(), answers.get() + 1);
            assert!(report.is_clean(), "{report}");
        },
    );
}

#[test]
fn a_loop_that_cannot_rebuild_fails_in_the_open_and_alone() {
    alone(
        "a_loop_that_cannot_rebuild_fails_in_the_open_and_alone",
        || {
            let null = File::open("/dev/null").unwrap();
            let group = one_selector();
            let healthy = EventLoopGroup::builder()
                .loops(1)
                .without_io()
                .build()
                .unwrap();
            let ev = group.next().clone();
            let (polled, queued, drops) = (Door::new(), Door::new(), DropCount::new());
            let guard = drops.guard();
            let entered = polled.clone();
            let never = group.spawn(async move {
                let _guard = guard;
                entered.open();
                std::future::pending::<()>().await;
            });
            polled.pass();
            let home = util::thread_of(&ev);
            let hook = queued.clone();
            ev.add_shutdown_hook(move || hook.open()).unwrap();
            let selector = selectors();
            let files = exhaust();
            for fd in selector {
                break_selector(fd, &null);
            }
            // The next turns find the selector broken, and no descriptor for another.
            while !ev.state().is_terminated() {
                drop(ev.try_spawn(async {}));
                thread::yield_now();
            }
            let error = loopgroup::block_on(never).unwrap_err();
            assert!(error.is_cancelled());
            assert_eq!((drops.get(), drops.thread()), (1, Some(home)));
            assert!(queued.is_open(), "hooks run, whatever ends the loop");
            let report = group.termination().wait();
            drop(files);
            let one = &report.loops()[0];
            assert_eq!(one.cause(), EndCause::Failed);
            assert_eq!(
                one.error().and_then(io::Error::raw_os_error),
                Some(libc::EMFILE)
            );
            assert!(!report.is_clean());
            assert_eq!(
                report.accepted(),
                report.completed() + report.panicked() + report.cancelled()
            );
            let refused = loopgroup::block_on(group.spawn(async {})).unwrap_err();
            assert_eq!(refused.reject_reason(), Some(RejectReason::ShutDown));
            healthy.block_on(healthy.spawn(async {})).unwrap();
        },
    );
}

extern "C" fn ignore(_: libc::c_int) {}

/// Interrupts a thread a thousand times a second until told to stop.
fn storm(tid: libc::pid_t, stop: &Arc<AtomicBool>) -> thread::JoinHandle<usize> {
    // SAFETY: zeroed is a valid sigaction, the handler does nothing, and no SA_RESTART is set.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()),
            0
        );
    }
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut sent = 0;
        while !stop.load(Ordering::SeqCst) {
            // SAFETY: a thread that has ended is answered with ESRCH.
            let result =
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGALRM) };
            if result == 0 {
                sent += 1;
            }
            thread::sleep(Duration::from_millis(1));
        }
        sent
    })
}

#[test]
fn signals_neither_end_a_wait_early_nor_break_a_loop() {
    alone("signals_neither_end_a_wait_early_nor_break_a_loop", || {
        let quiet = Duration::from_millis(150);
        for without_io in [false, true] {
            let mut builder = EventLoopGroup::builder().loops(1);
            if without_io {
                builder = builder.without_io();
            }
            let group = builder.build().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let storm = storm(tid_of(group.next()), &stop);
            for n in 0..200 {
                let answer = group.spawn(async move {
                    for _ in 0..n {
                        yield_now().await;
                    }
                    n
                });
                assert_eq!(group.block_on(answer).unwrap(), n);
            }
            // The handle stays: only the quiet period can end the loop.
            let report = group
                .shutdown_gracefully_with(quiet, Duration::from_secs(30))
                .unwrap()
                .wait();
            stop.store(true, Ordering::SeqCst);
            assert!(storm.join().unwrap() > 10, "there was a storm");
            assert_eq!(report.loops()[0].cause(), EndCause::Quiet);
            assert!(report.elapsed() >= quiet);
            assert_eq!(report.completed(), 201);
        }
    });
}

#[test]
fn every_descriptor_is_close_on_exec() {
    alone("every_descriptor_is_close_on_exec", || {
        let before = descriptors();
        let group = EventLoopGroup::new(3).unwrap();
        group.start().unwrap();
        let null = File::open("/dev/null").unwrap();
        let mut fds = selectors();
        fds.sort_unstable();
        for fd in &fds[..PER_LOOP] {
            break_selector(*fd, &null);
        }
        for index in 0..3 {
            for _ in 0..3 {
                group.block_on(group.spawn_on(index, async {})).unwrap();
            }
        }
        eventually("the broken selector is rebuilt", || {
            selectors().len() == 3 * PER_LOOP
        });
        // A loop that answers is not in the middle of it.
        for index in 0..3 {
            group.block_on(group.spawn_on(index, async {})).unwrap();
        }
        drop(null);
        let ours = assert_close_on_exec(&before);
        assert_eq!(ours, 9, "a selector, its double and a bell per loop");
    });
}

/// Says of how many descriptors that were not there `before`.
fn assert_close_on_exec(before: &[(RawFd, String)]) -> usize {
    let mut ours = descriptors();
    ours.retain(|(fd, _)| before.iter().all(|(other, _)| other != fd));
    for (fd, target) in &ours {
        // SAFETY: asks for the flags of a descriptor; a closed one is an error.
        let flags = unsafe { libc::fcntl(*fd, libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC, "{fd}: {target}");
    }
    ours.len()
}

#[test]
fn every_socket_is_close_on_exec() {
    // A program that is started by this one would hold ports and connections open.
    alone("every_socket_is_close_on_exec", || {
        let (path, other) = (TempPath::new("exec"), TempPath::new("exec-datagram"));
        let main = async {
            let before = descriptors();
            let tcp = TcpListener::bind("127.0.0.1:0").await?;
            let address = tcp.local_addr()?;
            let unix = UnixListener::bind(&path.0)?;
            let _accepted = futures::try_join!(
                TcpStream::connect(address),
                tcp.accept(),
                net::UnixStream::connect(&path.0),
                unix.accept(),
            )?;
            let _pairs = (net::UnixStream::pair()?, UnixDatagram::pair()?);
            let _datagrams = (UnixDatagram::bind(&other.0)?, UnixDatagram::unbound()?);
            let _udp = UdpSocket::bind("127.0.0.1:0").await?;
            let shared = EventLoopGroup::new(1)?;
            let server = Server::new("127.0.0.1:0")?.workers(&shared);
            let _server = server.reuse_port(true).serve(|_, _| async {})?;
            let _signal = loopgroup::signal::ctrl_c();
            // Two listeners and their four connections, four of pairs, two of paths, one of UDP, a
            // selector with its double and bell, a server, the pair of all signals, and this one's end.
            assert_eq!(assert_close_on_exec(&before), 6 + 4 + 2 + 1 + 3 + 1 + 2 + 1);
            io::Result::Ok(())
        };
        loopgroup::run(main).unwrap().unwrap();
    });
}

/// Whether a thread of this process waits in the system.
fn sleeps(tid: libc::pid_t) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    after_name.starts_with('S')
}

#[test]
fn a_forked_child_that_drops_its_handles_leaves_the_parent_alone() {
    alone(
        "a_forked_child_that_drops_its_handles_leaves_the_parent_alone",
        || {
            let group = EventLoopGroup::new(1).unwrap();
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let polled = Door::new();
            let entered = polled.clone();
            let reading = group.spawn(async move {
                let ours = Registered::new(ours)?;
                entered.open();
                ours.readable().await
            });
            polled.pass();
            let tid = tid_of(group.next());
            // No lock is held at the fork, which the child could not take.
            eventually("the loop waits", || sleeps(tid));
            let child_handle = group.clone();
            // SAFETY: the child only drops handles, and leaves without a return to Rust.
            let child = unsafe { libc::fork() };
            if child == 0 {
                drop((child_handle, group));
                // SAFETY: nothing of the parent's is cleaned up here, as it should be.
                unsafe { libc::_exit(0) };
            }
            let mut status = -1;
            // SAFETY: it writes the status of our own child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
            drop(child_handle);
            assert_eq!(group.next().state(), LoopState::Started);
            theirs.write_all(b"x").unwrap();
            group.block_on(reading).unwrap().unwrap();
            let report = group.drain(Duration::from_secs(30)).wait();
            assert!(report.is_clean(), "{report}");
        },
    );
}

#[test]
fn a_thread_that_cannot_start_refuses_the_submission_and_hands_it_back() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(2)
            .thread_stack_size(IMPOSSIBLE_STACK)
            .build()
            .unwrap();
        let reason = RejectReason::ThreadStart(io::ErrorKind::WouldBlock);
        let drops = DropCount::new();
        let guard = drops.guard();
        let rejected = group.next().execute(move || drop(guard)).unwrap_err();
        assert_eq!(rejected.reason(), reason);
        assert_eq!(drops.get(), 0, "handed back");
        drop(rejected);
        assert_eq!(drops.get(), 1);
        let error = group.block_on(group.spawn_on(1, async {})).unwrap_err();
        assert_eq!(error.reject_reason(), Some(reason));
        let error = group.start().unwrap_err();
        assert!(error.to_string().contains("loop 0"), "{error}");
        let report = group.drain(Duration::from_secs(30)).wait();
        assert_eq!((report.accepted(), report.rejected()), (0, 2));
        assert!(report.loops().iter().all(|one| !one.started()));
    });
}

#[test]
fn a_hook_on_a_loop_that_cannot_start_ends_it_as_failed() {
    // A loop that tries again for ever would take the process with it.
    alone(
        "a_hook_on_a_loop_that_cannot_start_ends_it_as_failed",
        || {
            let drops = DropCount::new();
            let guard = drops.guard();
            let group = EventLoopGroup::builder()
                .loops(1)
                .thread_stack_size(IMPOSSIBLE_STACK)
                .build()
                .unwrap();
            group.next().add_shutdown_hook(move || drop(guard)).unwrap();
            let report = group.shutdown_now().wait();
            assert_eq!(report.loops()[0].cause(), EndCause::Failed);
            assert!(report.loops()[0].error().is_some());
            assert_eq!((report.hooks_run(), drops.get()), (0, 1));
        },
    );
}

#[test]
fn a_factory_that_refuses_is_asked_once_when_a_loop_with_hooks_ends() {
    alone(
        "a_factory_that_refuses_is_asked_once_when_a_loop_with_hooks_ends",
        || {
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            let group = EventLoopGroup::builder()
                .loops(1)
                .thread_factory(move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                    Err(io::Error::other("no threads today"))
                })
                .build()
                .unwrap();
            let termination = group.termination();
            group.next().add_shutdown_hook(|| {}).unwrap();
            drop(group);
            let report = termination.wait();
            assert_eq!(report.loops()[0].cause(), EndCause::Failed);
            assert_eq!(asked.load(Ordering::SeqCst), 1);
        },
    );
}

/// How many stacks are mapped: each has a guard page of its own below it.
fn stacks() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let is_guard = |line: &&str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next().unwrap().split_once('-').unwrap();
        let at = |text| u64::from_str_radix(text, 16).unwrap();
        words.next() == Some("---p") && at(end) - at(start) == 4096
    };
    maps.lines().filter(is_guard).count()
}

#[test]
fn a_shutdown_requested_while_the_last_idle_thread_retires_still_ends() {
    // About time itself: a thread retires after ten seconds without a job. Many groups at once keep
    // the two processors busy at that moment, so that some request falls between the end of a
    // thread's wait and its last look.
    const GROUPS: usize = 300;
    const KEEP_ALIVE: Duration = Duration::from_secs(10);
    within(|| {
        let groups: Vec<_> = (0..GROUPS)
            .map(|_| BlockingGroup::new(1).unwrap())
            .collect();
        let idle_since: Vec<_> = groups
            .iter()
            .map(|group| {
                loopgroup::block_on(group.spawn(|| ())).unwrap();
                Instant::now()
            })
            .collect();
        let ends: Vec<_> = groups
            .iter()
            .zip(idle_since)
            .map(|(group, since)| {
                thread::sleep((since + KEEP_ALIVE).saturating_duration_since(Instant::now()));
                let quiet = Duration::from_millis(1);
                group
                    .shutdown_gracefully_with(quiet, Duration::from_secs(30))
                    .unwrap()
            })
            .collect();
        for end in ends {
            let report = end.wait_timeout(Duration::from_secs(20));
            assert_eq!(report.expect("nobody steps the shutdown").completed(), 1);
        }
    });
}

#[test]
fn threads_of_a_blocking_group_that_retire_give_their_stacks_back() {
    // About time itself: a thread retires after ten seconds without a job.
    const THREADS: usize = 200;
    alone(
        "threads_of_a_blocking_group_that_retire_give_their_stacks_back",
        || {
            let group = BlockingGroup::new(THREADS).unwrap();
            let before = stacks();
            let door = Door::new();
            let jobs: Vec<_> = (0..THREADS)
                .map(|_| {
                    let door = door.clone();
                    group.spawn(move || door.pass())
                })
                .collect();
            assert_eq!(group.threads(), THREADS);
            assert!(stacks() >= before + THREADS);
            door.open();
            for job in jobs {
                loopgroup::block_on(job).unwrap();
            }
            while group.threads() > 0 {
                thread::sleep(Duration::from_millis(20));
            }
            // The C library keeps some stacks for the next threads.
            eventually("most stacks are gone", || stacks() < before + THREADS / 2);
            // Retired is not ended: the next job finds a thread, and the shutdown finds an end.
            loopgroup::block_on(group.spawn(|| ())).unwrap();
            let report = group.drain(Duration::from_secs(30)).wait();
            assert_eq!(report.completed(), THREADS as u64 + 1);
        },
    );
}

/// Descriptors of bells: what producers write to.
fn bells() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_bell = |path: &std::path::Path| {
        std::fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains("eventfd"))
    };
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| is_bell(path))
        .map(|path| path.file_name().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn a_wake_whose_ring_fails_returns_and_locks_nothing() {
    alone("a_wake_whose_ring_fails_returns_and_locks_nothing", || {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (sender, receiver) = std::sync::mpsc::channel::<(EventLoop, std::task::Waker)>();
        let wakes = thread::spawn(move || {
            let (ev, waker) = receiver.recv().unwrap();
            // Each time that it finds the loop asleep, it rings in vain; it has to come back from that.
            while ev.metrics().wakeup_calls() < 3 {
                waker.wake_by_ref();
                thread::yield_now();
            }
        });
        let ran = loopgroup::run(async {
            let waker = std::future::poll_fn(|cx| std::task::Poll::Ready(cx.waker().clone())).await;
            for bell in bells() {
                break_selector(bell, &full);
            }
            sender.send((EventLoop::current().unwrap(), waker)).unwrap();
            // No bell wakes this loop any more, but timers do.
            while !wakes.is_finished() {
                loopgroup::time::sleep(Duration::from_millis(1)).await;
            }
        });
        ran.unwrap();
        wakes.join().unwrap();
    });
}

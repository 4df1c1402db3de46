//! A group that tracks its tasks lists every one of them from its submission to its end, with what it waits
//! for, and says what a loop is in that does not return.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use futures::future::{join, select};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use loopgroup::testing::{TestGroup, TestLoop};
use loopgroup::time::{interval, sleep, sleep_until, timeout};
use loopgroup::{
    Builder, Dump, EventLoop, EventLoopGroup, JoinHandle, JoinSet, ManualLoop, RejectPolicy,
    TaskId, TaskInfo, TaskState, Wait, WakeSource, block_on, label, spawn, spawn_local, yield_now,
};

use crate::util::{
    Door, HOUR, LONG, OnDrop, TempPath, eventually, flush, in_child, is_child, ms, stall, within,
};

fn builder() -> Builder {
    EventLoopGroup::builder().track_tasks(true)
}

fn tracked(loops: usize) -> EventLoopGroup {
    builder().loops(loops).build().unwrap()
}

/// The record of a task, once it has returned from a poll and waits.
fn waiting(group: &EventLoopGroup, id: TaskId) -> TaskInfo {
    let found = RefCell::new(None);
    eventually("the task waits", || {
        let waits = |task: &TaskInfo| task.id() == id && task.state() == TaskState::Waiting;
        found.replace(group.tasks().into_iter().find(waits));
        found.borrow().is_some()
    });
    found.take().unwrap()
}

/// Spawns a future on a loop of its own, and returns what it waits for.
fn waits_of<F>(make: impl FnOnce() -> F + Send + 'static) -> Vec<Wait>
where
    F: Future<Output = ()> + 'static,
{
    let group = tracked(1);
    let task = group.spawn_with(make);
    let waits = waiting(&group, task.id()).waits_for().to_vec();
    group.shutdown_now().wait();
    assert!(group.tasks().is_empty());
    waits
}

/// As [`waits_of`], for a future that waits for one thing.
#[track_caller]
fn wait_of<F>(make: impl FnOnce() -> F + Send + 'static) -> Wait
where
    F: Future<Output = ()> + 'static,
{
    let mut waits = waits_of(make);
    assert_eq!(waits.len(), 1, "{waits:?}");
    waits.remove(0)
}

fn by_id(tasks: Vec<TaskInfo>) -> BTreeMap<TaskId, TaskInfo> {
    tasks.into_iter().map(|task| (task.id(), task)).collect()
}

#[test]
fn whatever_is_submitted_from_outside_is_listed_before_its_first_poll() {
    within(|| {
        let group = tracked(2);
        let (one, other) = (&group.loops()[0], &group.loops()[1]);
        let doors = [stall(one), stall(other)];
        let mut set = JoinSet::new();
        let first = line!();
        let handles: Vec<JoinHandle<()>> = vec![
            group.spawn(async {}),
            group.spawn_on(1, async {}),
            group.try_spawn(async {}).unwrap(),
            group.task().name("named").spawn(async {}),
            group.spawn_with(|| async {}),
            one.spawn(async {}),
            one.try_spawn(async {}).unwrap(),
            one.submit(|| {}),
            one.submit_after_iteration(|| {}),
            one.try_spawn_with(|| async {}).unwrap(),
            one.task().name(String::from("owned")).spawn(async {}),
        ];
        let last = line!();
        let member = set.spawn_on(one, async {}).id();
        let later = one.schedule(ms(1), || {});
        group.spawn_detached(async {}).unwrap();
        one.spawn_detached(async {}).unwrap();
        one.execute(|| {}).unwrap(); // no task
        let tasks = group.tasks();
        assert_eq!(tasks.len(), handles.len() + 4, "{tasks:#?}");
        let by_id = by_id(tasks);
        for handle in &handles {
            let info = &by_id[&handle.id()];
            assert_eq!((info.state(), info.polls()), (TaskState::Queued, 0));
            assert_eq!((info.last_poll(), info.last_wake()), (None, None));
            assert_eq!(info.location().file(), file!());
            assert!((first..last).contains(&info.location().line()));
        }
        let ids: Vec<_> = handles.iter().map(JoinHandle::id).collect();
        assert_eq!(by_id[&ids[3]].name(), Some("named"));
        assert_eq!(by_id[&ids[10]].name(), Some("owned"));
        assert_eq!(
            (by_id[&ids[1]].loop_index(), by_id[&ids[5]].loop_index()),
            (1, 0)
        );
        assert_eq!(by_id[&member].state(), TaskState::Queued);
        assert!(
            by_id
                .values()
                .all(|info| info.age() < LONG && info.busy().is_zero())
        );
        doors.iter().for_each(Door::open);
        for handle in handles {
            block_on(handle).unwrap();
        }
        block_on(set.join_all());
        block_on(later).unwrap();
        one.tasks()
            .into_iter()
            .chain(other.tasks())
            .for_each(|task| {
                let rest = || group.tasks().iter().any(|one| one.id() == task.id());
                eventually("the detached tasks end", || !rest());
            });
        assert!(group.tasks().is_empty());
    });
}

#[test]
fn whatever_is_spawned_on_the_loop_is_listed_before_its_first_poll() {
    within(|| {
        let group = tracked(1);
        let ev = group.next().clone();
        let listed = group.spawn(async move {
            let mut set = JoinSet::new();
            let ids = [
                loopgroup::task_id().unwrap(),
                spawn(async {}).id(),
                spawn_local(async {}).id(),
                loopgroup::try_spawn_local(async {}).unwrap().id(),
                loopgroup::task().name("local").spawn_local(async {}).id(),
                set.spawn_local(async {}).id(),
                set.spawn(async {}).id(),
                ev.spawn(async {}).id(),
            ];
            loopgroup::spawn_detached(async {}).unwrap();
            drop(ev.schedule_local(HOUR, || {}));
            drop(
                ev.repeat_local(loopgroup::Repeat::at_fixed_rate(HOUR), endless)
                    .unwrap(),
            );
            let tasks = ev.tasks();
            assert_eq!(tasks.len(), ids.len() + 3);
            let by_id = by_id(tasks);
            let states = ids.map(|id| by_id[&id].state());
            assert_eq!(states[0], TaskState::Running);
            assert!(states[1..].iter().all(|state| *state == TaskState::Queued));
            assert_eq!(by_id[&ids[4]].name(), Some("local"));
            set.join_all().await;
        });
        block_on(listed).unwrap();
        eventually("only the schedules are left", || group.tasks().len() == 2);
        let tasks = group.tasks();
        let sleeps = |info: &TaskInfo| matches!(info.waits_for(), [Wait::Sleep { .. }]);
        assert!(tasks.iter().all(sleeps), "{tasks:?}");
        group.shutdown_now().wait();
        assert!(group.tasks().is_empty());
    });
}

fn endless() -> std::ops::ControlFlow<()> {
    std::ops::ControlFlow::Continue(())
}

#[test]
fn a_group_that_does_not_track_its_tasks_lists_none() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let task = group.spawn(sleep(HOUR));
        flush(group.next());
        assert!(group.tasks().is_empty() && group.next().tasks().is_empty());
        let dump = group.dump();
        assert_eq!(
            (dump.loops()[0].live(), dump.loops()[0].timers()),
            (1, None)
        );
        assert!(dump.loops()[0].answered() && dump.tasks().is_empty());
        assert!(
            dump.to_string().contains("Builder::track_tasks(true)"),
            "{dump}"
        );
        drop(task);
    });
}

#[test]
fn polls_and_times_are_those_of_the_task() {
    within(|| {
        let group = tracked(1);
        let task = group.spawn(async {
            yield_now().await;
            thread::sleep(ms(20));
            yield_now().await;
            pending::<()>().await;
        });
        eventually("it was polled three times", || {
            group.tasks()[0].polls() == 3
        });
        let info = waiting(&group, task.id());
        assert_eq!((info.polls(), info.wakes(), info.self_wakes()), (3, 2, 2));
        assert!(info.longest_poll() >= ms(20), "{info}");
        assert!(info.busy() >= info.longest_poll() && info.age() >= info.busy());
        assert!(info.last_poll().unwrap() <= info.age());
        assert_eq!(info.last_wake().unwrap().by(), WakeSource::Itself);
        assert!(info.last_wake().unwrap().ago() <= info.age());
        assert!(info.waits_for().is_empty());
        drop(task);
    });
}

#[test]
fn the_poll_that_is_under_way_counts() {
    within(|| {
        let group = tracked(1);
        let door = Door::new();
        let until = door.clone();
        let quick = group.spawn(pending::<()>());
        waiting(&group, quick.id());
        let stuck = group.spawn(async move { until.pass() });
        let both = || by_id(group.tasks());
        eventually("its first poll takes long", || {
            both()[&stuck.id()].busy() >= ms(100)
        });
        let both = both();
        let (quick, info) = (&both[&quick.id()], &both[&stuck.id()]);
        assert_eq!((info.state(), info.polls()), (TaskState::Running, 1));
        assert_eq!(Some(info.busy()), info.last_poll());
        assert!(info.longest_poll() == info.busy() && info.busy() <= info.age());
        assert!(
            quick.busy() < info.busy(),
            "so the one that is stuck is the first of a list"
        );
        assert!(!info.to_string().contains("0 ns"), "{info}");
        door.open();
        block_on(stuck).unwrap();
    });
}

#[test]
fn wakes_are_counted_by_the_loop_that_they_come_from() {
    within(|| {
        let group = tracked(3);
        let counts = |task: &JoinHandle<()>| {
            let info = waiting(&group, task.id());
            let loops = [0, 1, 2].map(|index| info.wakes_from(index));
            let sum = loops.iter().sum::<u64>() + info.wakes_from(None);
            assert_eq!(sum, info.wakes());
            assert_eq!((info.wakes_from(3), info.wakes_from(usize::MAX)), (0, 0));
            (loops, info.wakes_from(None))
        };
        let doors: Vec<_> = (0..6).map(|_| Door::new()).collect();
        let inside = doors.clone();
        let task = group.spawn_on(1, async move {
            sleep(ms(1)).await;
            yield_now().await;
            for door in inside {
                door.opened().await;
            }
            pending::<()>().await;
        });
        let wakes = |number: u64| {
            let woken = || waiting(&group, task.id()).wakes() == number;
            eventually("the wake", woken);
        };
        wakes(2);
        assert_eq!(counts(&task), ([0, 2, 0], 0), "a timer and itself");
        for (number, index) in [Some(1), Some(2), None, Some(2), Some(0), None]
            .into_iter()
            .enumerate()
        {
            let door = doors[number].clone();
            match index {
                Some(index) => block_on(group.loops()[index].submit(move || door.open())).unwrap(),
                None => door.open(),
            }
            wakes(3 + number as u64);
        }
        assert_eq!(counts(&task), ([1, 3, 2], 2));
        let info = waiting(&group, task.id());
        assert_eq!(
            (info.wakes_from(Some(2)), info.clone().wakes_from(2)),
            (2, 2)
        );
        drop(task);
    });
}

#[test]
fn the_last_wake_has_its_source() {
    within(|| {
        let group = tracked(2);
        let path = TempPath::new("tracked-wake");
        let source_of = |task: &JoinHandle<()>| {
            let info = waiting(&group, task.id());
            (info.wakes(), info.last_wake().map(|wake| wake.by()))
        };
        let woken = |task: &JoinHandle<()>, wakes| {
            eventually("the wake", || source_of(task).0 == wakes);
            source_of(task).1
        };
        // A door keeps the wakers of its visitors until it opens.
        let doors = [Door::new(), Door::new(), Door::new(), Door::new()];
        let [own, sibling, outside, last] = doors.clone();
        let task = group.spawn_on(0, async move {
            sleep(ms(1)).await; // wake 1
            own.opened().await; // wake 2
            sibling.opened().await; // wake 3
            outside.opened().await; // wake 4
            last.opened().await;
        });
        assert_eq!(woken(&task, 1), Some(WakeSource::Timer));
        let [own, sibling, outside, last] = doors;
        let open = |door: Door| move || door.open();
        block_on(group.loops()[0].submit(open(own))).unwrap();
        assert_eq!(woken(&task, 2), Some(WakeSource::Loop(0)));
        block_on(group.loops()[1].submit(open(sibling))).unwrap();
        assert_eq!(woken(&task, 3), Some(WakeSource::Loop(1)));
        outside.open();
        assert_eq!(woken(&task, 4), Some(WakeSource::Outside));
        last.open();
        block_on(task).unwrap();

        // A loop of another group is outside.
        let others = EventLoopGroup::new(1).unwrap();
        let door = Door::new();
        let inside = door.clone();
        let task = group.spawn(async move {
            inside.opened().await;
            pending::<()>().await;
        });
        waiting(&group, task.id());
        block_on(others.next().submit(open(door))).unwrap();
        assert_eq!(woken(&task, 1), Some(WakeSource::Outside));
        drop(task);

        let listener = std::os::unix::net::UnixListener::bind(&path.0).unwrap();
        let file = path.0.clone();
        let task = group.spawn(async move {
            let mut stream = UnixStream::connect(file).await.unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
            pending::<()>().await;
        });
        let (mut peer, _) = listener.accept().unwrap();
        waiting(&group, task.id());
        io::Write::write_all(&mut peer, b"x").unwrap();
        assert_eq!(woken(&task, 1), Some(WakeSource::Io));
    });
}

#[test]
fn the_size_is_that_of_the_future() {
    within(|| {
        let large = || async {
            let bytes = [1_u8; 1000];
            pending::<()>().await;
            std::hint::black_box(bytes);
        };
        let size = size_of_val(&large());
        assert!(size >= 1000);
        let group = tracked(1);
        let tasks = [group.spawn(large()), group.spawn_with(large)];
        for task in tasks {
            assert_eq!(waiting(&group, task.id()).size(), size);
        }
    });
}

// ---- what a task waits for ----------------------------------------------------------------------

#[test]
fn a_sleep_an_interval_and_a_timeout_wait_for_their_deadlines() {
    within(|| {
        let far = Instant::now() + HOUR;
        let until = |wait: Wait| match wait {
            Wait::Sleep { until, left, .. } => {
                assert!(left > HOUR - LONG && left <= HOUR);
                until
            }
            other => unreachable!("{other:?}"),
        };
        assert_eq!(until(wait_of(move || sleep_until(far))), far);
        let later = until(wait_of(|| async {
            let mut ticks = interval(HOUR);
            ticks.tick().await; // at once
            ticks.tick().await;
        }));
        assert!(later >= far);
        let later = until(wait_of(|| async {
            let _ = timeout(HOUR, pending::<()>()).await;
        }));
        assert!(later >= far);
        assert_eq!(wait_of(|| sleep(Duration::MAX)), Wait::Never);
        // Only what a sleep was reset to counts, in the same poll as well.
        let reset = until(wait_of(move || async move {
            let mut pause = pin!(sleep_until(far + HOUR));
            assert!(futures::poll!(pause.as_mut()).is_pending());
            pause.reset(far);
            pause.await;
        }));
        assert_eq!(reset, far);
    });
}

#[test]
fn tcp_sockets_wait_with_their_addresses() {
    within(|| {
        let (tx, rx) = channel();
        let found = tx.clone();
        let wait = wait_of(move || async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            found.send(listener.local_addr().unwrap()).unwrap();
            drop(listener.accept().await);
        });
        let address = rx.recv().unwrap().to_string();
        match wait {
            Wait::Accept(socket) => {
                assert_eq!((socket.local(), socket.peer()), (Some(&*address), None));
                assert!(socket.descriptor() > 0);
            }
            other => unreachable!("{other:?}"),
        }
        let connect = |tx: Sender<(String, String)>| async move {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let stream = TcpStream::connect(address).await.unwrap();
            let peer = listener.accept().unwrap();
            tx.send((
                stream.local_addr().unwrap().to_string(),
                address.to_string(),
            ))
            .unwrap();
            (stream, peer)
        };
        let (tx, rx) = channel();
        let ends = tx.clone();
        // The second read finds what the loop has learnt with the first one.
        let wait = wait_of(move || async move {
            let (mut stream, (mut peer, _)) = connect(ends).await;
            assert!(futures::poll!(stream.read(&mut [0])).is_pending());
            yield_now().await;
            assert!(futures::poll!(stream.read(&mut [0])).is_pending());
            io::Write::write_all(&mut peer, b"x").unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
            drop(stream.read(&mut [0]).await);
        });
        let (local, address) = rx.recv().unwrap();
        match wait {
            Wait::Read(socket) => {
                assert_eq!(socket.local(), Some(&*local));
                assert_eq!(socket.peer(), Some(&*address));
            }
            other => unreachable!("{other:?}"),
        }
        let wait = wait_of(move || async move {
            let (mut stream, _peer) = connect(tx).await;
            let much = vec![0; 1 << 20];
            while stream.write(&much).await.is_ok() {}
        });
        let (local, address) = rx.recv().unwrap();
        match wait {
            Wait::Write(socket) => {
                assert_eq!(socket.local(), Some(&*local));
                assert_eq!(socket.peer(), Some(&*address));
            }
            other => unreachable!("{other:?}"),
        }
        for wait in [
            wait_of(|| async { drop(readable(true).await) }),
            wait_of(|| async { drop(readable(false).await) }),
        ] {
            assert!(matches!(wait, Wait::Read(_)), "{wait:?}");
        }
    });
}

/// Waits for a stream to be readable, by one of two ways.
async fn readable(polled: bool) -> io::Result<()> {
    let (one, _other) = UnixStream::pair()?;
    match polled {
        true => one.ready(loopgroup::io::Interest::READABLE).await.map(drop),
        false => one.readable().await,
    }
}

#[test]
fn writable_alone_waits_to_write() {
    within(|| {
        for polled in [true, false] {
            let (tx, rx) = channel();
            let wait = wait_of(move || async move {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
                let (stream, peer) = (stream.unwrap(), listener.accept().unwrap());
                tx.send(stream.peer_addr().unwrap().to_string()).unwrap();
                while stream.try_write(&[0; 1 << 16]).is_ok() {}
                match polled {
                    true => drop(stream.ready(loopgroup::io::Interest::WRITABLE).await),
                    false => drop(stream.writable().await),
                }
                drop(peer); // which has read nothing
            });
            match wait {
                Wait::Write(socket) => assert_eq!(socket.peer(), Some(&*rx.recv().unwrap())),
                other => unreachable!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_connect_waits_for_its_peer() {
    use socket2::{Domain, Socket, Type};
    within(|| {
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        full.bind(&any.into()).unwrap();
        full.listen(0).unwrap(); // one connection fills it, and the next gets no answer
        let silent = full.local_addr().unwrap().as_socket().unwrap();
        let _first = std::net::TcpStream::connect(silent).unwrap();
        let wait = wait_of(move || async move { drop(TcpStream::connect(silent).await) });
        match &wait {
            Wait::Connect(socket) => assert_eq!(socket.peer(), Some(&*silent.to_string())),
            other => unreachable!("{other:?}"),
        }
        assert_eq!(wait.to_string(), format!("a connect to {silent}"));
        let limited = waits_of(move || async move {
            drop(TcpStream::connect_timeout(silent, HOUR).await);
        });
        assert!(
            matches!(&limited[..], [Wait::Connect(_), Wait::Sleep { .. }]),
            "{limited:?}"
        );
    });
}

#[test]
fn udp_sockets_wait_with_the_addresses_that_they_have_now() {
    within(|| {
        let (tx, rx) = channel();
        let first = tx.clone();
        let receive = |connected: bool, tx: Sender<(String, String)>| async move {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let peer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let addresses = (socket.local_addr().unwrap(), peer.local_addr().unwrap());
            tx.send((addresses.0.to_string(), addresses.1.to_string()))
                .unwrap();
            assert!(futures::poll!(pin!(socket.recv(&mut [0]))).is_pending());
            yield_now().await;
            if connected {
                socket.connect(addresses.1).await.unwrap();
            }
            drop(socket.recv_from(&mut [0]).await);
        };
        let wait = wait_of(move || receive(false, first));
        let (local, _) = rx.recv().unwrap();
        match wait {
            Wait::Read(socket) => {
                assert_eq!((socket.local(), socket.peer()), (Some(&*local), None));
            }
            other => unreachable!("{other:?}"),
        }
        let wait = wait_of(move || receive(true, tx));
        let (local, peer) = rx.recv().unwrap();
        match wait {
            Wait::Read(socket) => {
                assert_eq!(
                    (socket.local(), socket.peer()),
                    (Some(&*local), Some(&*peer))
                );
            }
            other => unreachable!("{other:?}"),
        }
    });
}

#[test]
fn unix_sockets_and_pipes_wait_with_what_names_they_have() {
    within(|| {
        let path = TempPath::new("tracked-unix");
        let text = path.0.display().to_string();
        let file = path.0.clone();
        let wait = wait_of(move || async move {
            let listener = UnixListener::bind(file).unwrap();
            drop(listener.accept().await);
        });
        match wait {
            Wait::Accept(socket) => assert_eq!(socket.local(), Some(&*text)),
            other => unreachable!("{other:?}"),
        }
        let path = TempPath::new("tracked-peer");
        let listener = std::os::unix::net::UnixListener::bind(&path.0).unwrap();
        let file = path.0.clone();
        let wait = wait_of(move || async move {
            let mut stream = UnixStream::connect(file).await.unwrap();
            drop(stream.read(&mut [0]).await);
        });
        match wait {
            Wait::Read(socket) => {
                let path = path.0.display().to_string();
                assert_eq!((socket.local(), socket.peer()), (None, Some(&*path)));
            }
            other => unreachable!("{other:?}"),
        }
        drop(listener);
        let wait = wait_of(|| async {
            let (_sender, mut receiver) = loopgroup::net::pipe::pipe().unwrap();
            drop(receiver.read(&mut [0]).await);
        });
        match &wait {
            Wait::Read(pipe) => assert_eq!((pipe.local(), pipe.peer()), (None, None)),
            other => unreachable!("{other:?}"),
        }
        assert!(wait.to_string().starts_with("a read from descriptor "));
    });
}

#[test]
fn a_handle_waits_for_its_task() {
    within(|| {
        let group = tracked(2);
        let other = group.spawn_on(1, pending::<()>());
        let id = other.id();
        let task = group.spawn_on(0, async move { drop(other.await) });
        assert_eq!(waiting(&group, task.id()).waits_for(), [Wait::Join(id)]);
        // The same through a waker that is not the task's own.
        let other = group.spawn_on(1, pending::<()>());
        let id = other.id();
        let task = group.spawn_on(0, async move {
            let mut all: futures::stream::FuturesUnordered<_> = [other].into_iter().collect();
            drop(futures::StreamExt::next(&mut all).await);
        });
        assert_eq!(waiting(&group, task.id()).waits_for(), [Wait::Join(id)]);
        let task = group.spawn_on(0, async {
            let mut set: JoinSet<()> = (0..3).map(|_| spawn(pending())).collect();
            set.spawn(async {});
            while set.join_next().await.is_some() {}
        });
        let last = |info: &TaskInfo| info.waits_for() == [Wait::JoinSet(3)];
        eventually("one has ended", || last(&waiting(&group, task.id())));
    });
}

#[test]
fn a_visit_and_a_blocking_job_wait_for_what_they_are() {
    within(|| {
        let group = tracked(2);
        let value = group.loops()[1].bind(|| 7);
        flush(&group.loops()[1]);
        let door = stall(&group.loops()[1]);
        let visited = value.clone();
        let task = group.spawn_on(0, async move {
            assert_eq!(visited.with(|it| *it).await.unwrap(), 7)
        });
        let visits = waiting(&group, task.id()).waits_for().to_vec();
        match &visits[..] {
            [
                Wait::LoopBound {
                    loop_index, task, ..
                },
            ] => {
                assert_eq!(*loop_index, 1);
                let tasks = group.loops()[1].tasks();
                assert_eq!(
                    (tasks[0].id(), tasks[0].state()),
                    (*task, TaskState::Queued)
                );
            }
            other => unreachable!("{other:?}"),
        }
        door.open();
        block_on(task).unwrap();
        let door = Door::new();
        let inside = door.clone();
        let (tx, rx) = channel();
        let task = group.spawn(async move {
            let job = loopgroup::blocking::unblock(move || inside.pass());
            tx.send(job.id()).unwrap();
            job.await.unwrap();
        });
        let job = rx.recv().unwrap();
        assert_eq!(
            waiting(&group, task.id()).waits_for(),
            [Wait::Blocking(job)]
        );
        door.open();
        block_on(task).unwrap();
    });
}

#[test]
fn a_label_is_listed_in_front_of_what_is_inside_and_while_it_waits() {
    within(|| {
        let text = String::from("outer");
        let waits = waits_of(move || label(text, label("inner", sleep(HOUR))));
        let [Wait::Label(outer), Wait::Label(inner), Wait::Sleep { .. }] = &waits[..] else {
            unreachable!("{waits:?}")
        };
        assert_eq!((&**outer, &**inner), ("outer", "inner"));
        // One that is dropped in the same poll is not awaited any more, and neither is its sleep.
        let waits = waits_of(|| async {
            let mut lost = Box::pin(label("lost", sleep(HOUR)));
            assert!(futures::poll!(&mut lost).is_pending());
            drop(lost);
            label("kept", pending::<()>()).await;
        });
        assert_eq!(waits, [Wait::Label("kept".into())]);
        assert_eq!(block_on(label("outside", async { 7 })), 7);
    });
}

#[test]
fn a_channel_with_a_label_waits_as_the_label_says() {
    use futures::channel::mpsc;
    use futures::{SinkExt, StreamExt};
    within(|| {
        let group = tracked(1);
        let (mut jobs, mut queue) = mpsc::channel::<u32>(0);
        let worker = group.spawn(async move {
            let mut sum = 0;
            while let Some(job) = label("the next job", queue.next()).await {
                sum += job;
                label("room for the result", sleep(ms(1))).await;
            }
            sum
        });
        let next_job = [Wait::Label("the next job".into())];
        let waits_for_job = |polls: u64| {
            eventually("it waits for a job", || {
                let tasks = group.tasks();
                tasks[0].waits_for() == next_job && tasks[0].polls() >= polls
            });
            group.tasks()[0].polls()
        };
        let polls = waits_for_job(1);
        block_on(jobs.send(7)).unwrap();
        waits_for_job(polls + 2);
        // The other end: a sender that waits for room.
        let door = stall(group.next());
        jobs.try_send(8).unwrap();
        let other = tracked(1);
        let sender = other.spawn(async move {
            label("room in the queue", jobs.send(9)).await.unwrap();
        });
        let room = [Wait::Label("room in the queue".into())];
        assert_eq!(waiting(&other, sender.id()).waits_for(), room);
        door.open();
        block_on(sender).unwrap();
        assert_eq!(block_on(worker).unwrap(), 24);
    });
}

#[test]
fn a_task_may_wait_for_two_things_at_once() {
    within(|| {
        let waits = waits_of(|| async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let accept = pin!(listener.accept());
            drop(select(accept, sleep(HOUR)).await);
        });
        assert!(
            matches!(&waits[..], [Wait::Accept(_), Wait::Sleep { .. }]),
            "{waits:?}"
        );
        // The branch that has lost is dropped in the poll in which the other one wins.
        let waits = waits_of(|| async {
            let (one, mut other) = UnixStream::pair().unwrap();
            for _ in 0..3 {
                let read = pin!(one.readable());
                let write = pin!(async {
                    yield_now().await;
                    other.write_all(b"").await.unwrap();
                });
                drop(select(read, write).await);
            }
            label("done", pending::<()>()).await;
        });
        assert_eq!(waits, [Wait::Label("done".into())]);
        let many = waits_of(|| async {
            let all = (0..1000).map(|_| sleep(HOUR));
            futures::future::join_all(all).await;
        });
        assert_eq!(many.len(), 32, "no more are kept");
        let both = waits_of(|| async {
            let (mut one, mut other) = loopgroup::io::duplex(1);
            let (mut some, mut more) = ([0; 1], [0; 1]);
            drop(join(one.read(&mut some), other.read(&mut more)).await);
        });
        assert_eq!(both.len(), 1, "the same in words: {both:?}");
    });
}

#[test]
fn other_leaves_say_in_words_what_they_wait_for() {
    within(|| {
        let words = |wait: Wait| match wait {
            Wait::Event(what) => what,
            other => unreachable!("{other:?}"),
        };
        let other = EventLoopGroup::new(1).unwrap();
        let end = other.termination();
        assert!(words(wait_of(|| async { drop(end.await) })).contains("end of a group"));
        assert!(words(wait_of(loopgroup::shutdown_requested)).contains("shutdown request"));
        let signal = wait_of(|| async { drop(loopgroup::signal::ctrl_c().await) });
        assert!(words(signal).contains("signal"));
    });
}

#[test]
fn a_scheduled_closure_is_awaited_as_a_task_and_to_its_end_once_it_is_taken_back() {
    within(|| {
        let group = tracked(2);
        let ev = group.loops()[1].clone();
        let once = ev.schedule(HOUR, || {});
        let id = group.loops()[1].tasks()[0].id();
        let task = group.spawn_on(0, async move { drop(once.await) });
        assert_eq!(waiting(&group, task.id()).waits_for(), [Wait::Join(id)]);
        drop(task);
        let door = Door::new();
        let until = door.clone();
        let (tx, rx) = channel();
        let rule = loopgroup::Repeat::at_fixed_rate(HOUR).starting_in(Duration::ZERO);
        let repeated = ev.repeat(rule, move || {
            tx.send(()).unwrap();
            until.pass();
            std::ops::ControlFlow::<()>::Continue(())
        });
        let repeated = repeated.unwrap();
        rx.recv().unwrap(); // it runs, and is cancelled meanwhile
        repeated.cancel();
        let task = group.spawn_on(0, async move { drop(repeated.await) });
        let info = waiting(&group, task.id());
        let [wait] = info.waits_for() else {
            unreachable!("{info}")
        };
        assert_eq!(wait.to_string(), "the end of a scheduled closure");
        door.open();
        block_on(task).unwrap();
    });
}

#[test]
fn a_host_name_is_awaited_as_a_blocking_job() {
    within(|| {
        let group = tracked(1);
        let ev = group.next();
        // A job that has ended before the first poll of its task is not awaited, but that is rare.
        let awaited = || {
            let (first, last) = (stall(ev), Door::new());
            let until = last.clone();
            let lookup = ev.spawn(loopgroup::net::lookup_host("localhost:80"));
            let behind = ev.spawn(async move { until.pass() });
            first.open();
            // The loop is in the second task: the first one was polled once, whatever its job has done since.
            let is_behind = || by_id(group.tasks())[&behind.id()].state() == TaskState::Running;
            eventually("the look-up was polled", is_behind);
            let waits = by_id(group.tasks()).remove(&lookup.id());
            last.open();
            assert!(block_on(lookup).unwrap().is_ok());
            block_on(behind).unwrap();
            waits.inspect(|info| {
                assert!(matches!(info.waits_for(), [Wait::Blocking(_)]), "{info}");
            })
        };
        let found = (0..100).find_map(|_| awaited());
        assert_eq!(found.map(|info| info.polls()), Some(1));
    });
}

// ---- the end of a record ------------------------------------------------------------------------

#[test]
fn a_record_is_removed_when_its_task_ends_in_whatever_way() {
    within(|| {
        let group = builder().loops(1).on_panic(|_| {}).build().unwrap();
        let ev = group.next().clone();
        let none = || group.tasks().is_empty();
        block_on(group.spawn(async {})).unwrap();
        assert!(none(), "completed");
        block_on(group.spawn(yield_now())).unwrap();
        assert!(none(), "completed after a while");
        assert!(block_on(group.spawn(async { panic!("on purpose") })).is_err());
        assert!(none(), "panicked");
        let task = group.spawn(async {
            yield_now().await;
            panic!("on purpose");
        });
        assert!(block_on(task).is_err());
        assert!(none(), "panicked after a while");
        let aborted = group.spawn(pending::<()>());
        waiting(&group, aborted.id());
        assert!(block_on(aborted.cancel()).is_none());
        assert!(none(), "aborted while it waited");
        let door = stall(&ev);
        let aborted = group.spawn(pending::<()>());
        aborted.abort();
        door.open();
        assert!(block_on(aborted).unwrap_err().is_cancelled());
        assert!(none(), "aborted before its first poll");
        let task = group.spawn(async {
            let _bomb = OnDrop::new(|| panic!("on purpose"));
            pending::<()>().await;
        });
        waiting(&group, task.id());
        assert!(block_on(task.cancel()).is_none());
        assert!(none(), "panicked while it was dropped");
        let waits = ev.schedule(HOUR, || {});
        eventually("it is scheduled", || group.tasks().len() == 1);
        assert!(waits.cancel());
        eventually("its schedule is cancelled", none);
        drop(group.spawn(pending::<()>()));
        drop(group.spawn_with(pending::<()>));
        let door = stall(&ev);
        drop(group.spawn(async {}));
        ev.spawn_detached(async {}).unwrap();
        assert_eq!(group.tasks().len(), 4);
        let end = group.shutdown_now();
        door.open();
        end.wait();
        assert!(none(), "cancelled by the end of the group");
        assert!(block_on(group.spawn(async {})).unwrap_err().is_rejected());
        assert!(block_on(ev.spawn(async {})).unwrap_err().is_rejected());
        assert!(ev.try_spawn(async {}).is_err() && ev.spawn_detached(async {}).is_err());
        assert!(none(), "refused");
    });
}

#[test]
fn a_task_that_is_refused_by_a_full_queue_leaves_no_record() {
    within(|| {
        let bounded = builder().loops(1).max_pending_tasks(2);
        let group = bounded.reject_policy(RejectPolicy::Reject).build().unwrap();
        let ev = group.next();
        let door = stall(ev);
        let accepted = [ev.spawn(async {}), ev.spawn(async {})];
        assert_eq!(group.tasks().len(), 2);
        for _ in 0..10 {
            assert!(block_on(ev.spawn(async {})).unwrap_err().is_rejected());
            assert!(ev.try_spawn(async {}).is_err() && ev.spawn_detached(async {}).is_err());
        }
        assert_eq!(group.tasks().len(), 2);
        door.open();
        accepted
            .into_iter()
            .for_each(|task| block_on(task).unwrap());
        assert!(group.tasks().is_empty());
    });
}

#[test]
fn tasks_of_a_loop_that_gets_no_thread_leave_no_record() {
    within(|| {
        let factory = builder().loops(2).thread_factory(|one| match one.index() {
            0 => {
                thread::spawn(move || one.run());
                Ok(())
            }
            _ => Err(io::Error::other("no thread for this one")),
        });
        let group = factory.build().unwrap();
        let sibling = group.loops()[1].clone();
        assert!(block_on(sibling.spawn(async {})).unwrap_err().is_rejected());
        let from_loop = group.loops()[0].submit(move || {
            drop(sibling.spawn(async {}));
            drop(sibling.try_spawn(async {}));
        });
        block_on(from_loop).unwrap();
        group.shutdown_now().wait();
        assert!(group.tasks().is_empty(), "{:?}", group.tasks());
    });
}

#[test]
fn no_record_is_left_when_spawns_race_with_a_shutdown() {
    within(|| {
        for round in 0..200_u32 {
            let group = tracked(2);
            let start = Door::new();
            let spawner = |mut left: u32| {
                let (group, start) = (group.clone(), start.clone());
                move || {
                    start.pass();
                    while left > 0 {
                        left -= 1;
                        match left % 4 {
                            0 => drop(group.spawn(yield_now())),
                            1 => drop(group.spawn(pending::<()>())),
                            2 => drop(group.spawn_detached(sleep(ms(1)))),
                            _ => drop(group.spawn_with(|| async { drop(spawn(pending::<()>())) })),
                        }
                    }
                }
            };
            let threads = [thread::spawn(spawner(40)), thread::spawn(spawner(40))];
            start.open();
            for _ in 0..round % 50 {
                thread::yield_now();
            }
            let end = match round % 3 {
                0 => group.shutdown_now(),
                1 => group.drain(ms(1)),
                _ => group
                    .shutdown_gracefully_with(Duration::ZERO, ms(1))
                    .unwrap(),
            };
            end.wait();
            threads.into_iter().for_each(|one| one.join().unwrap());
            assert!(
                group.tasks().is_empty(),
                "round {round}: {:?}",
                group.tasks()
            );
            assert_eq!(group.dump().loops()[0].live(), 0);
        }
    });
}

#[test]
fn aborts_from_elsewhere_leave_no_record() {
    within(|| {
        let group = tracked(2);
        let mut left = Vec::new();
        for round in 0..2_000 {
            let task = group.spawn_on(round % 2, async {
                yield_now().await;
                sleep(HOUR).await;
            });
            task.abort();
            left.push(task);
        }
        left.into_iter().for_each(|task| drop(block_on(task)));
        assert!(group.tasks().is_empty());
    });
}

#[test]
fn server_connections_are_listed_and_removed() {
    within(|| {
        let group = tracked(2);
        let server = loopgroup::net::Server::new("127.0.0.1:0").unwrap();
        let server = server.workers(&group);
        let line = line!() + 1;
        let handle = server.serve(|mut stream, _| async move {
            drop(stream.read(&mut [0]).await);
        });
        let handle = handle.unwrap();
        let address = handle.local_addr();
        let clients: Vec<_> = (0..4)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        let reads = || {
            let tasks = group.tasks();
            let reads = |info: &&TaskInfo| matches!(info.waits_for(), [Wait::Read(_)]);
            tasks.iter().filter(reads).cloned().collect::<Vec<_>>()
        };
        eventually("all connections wait to read", || reads().len() == 4);
        assert!(
            reads().iter().all(|info| info.location().line() == line),
            "{:#?}",
            reads()
        );
        let peers: Vec<_> = clients
            .iter()
            .map(|one| one.local_addr().unwrap().to_string())
            .collect();
        for info in reads() {
            let [Wait::Read(socket)] = info.waits_for() else {
                unreachable!("checked above")
            };
            assert!(peers.iter().any(|peer| socket.peer() == Some(peer)));
            assert_eq!(socket.local(), Some(&*address.to_string()));
        }
        let listens = |info: &TaskInfo| matches!(info.waits_for().first(), Some(Wait::Accept(_)));
        eventually("the listeners wait", || group.tasks().iter().any(listens));
        drop(clients);
        eventually("the connections end", || reads().is_empty());
        group.shutdown_now().wait();
        assert!(group.tasks().is_empty());
    });
}

#[test]
fn an_idle_connection_of_turns_waits_to_read_from_its_peer() {
    use loopgroup::net::{Server, Turn};
    async fn turn(mut stream: &TcpStream, _: &mut ()) -> io::Result<Turn> {
        let mut buf = [0; 16];
        let read = stream.read(&mut buf).await?;
        stream.write_all(&buf[..read]).await?;
        Ok(if read > 0 { Turn::Next } else { Turn::Close })
    }
    within(|| {
        let group = tracked(2);
        let server = Server::new("127.0.0.1:0").unwrap().workers(&group);
        // The limit is a second thing to wait for, and no reason to hide the first.
        for limited in [false, true] {
            let server = Server::new("127.0.0.1:0").unwrap().workers(&group);
            let server = if limited {
                server.idle_timeout(HOUR)
            } else {
                server
            };
            let handle = server.serve_turns(|_, _| (), turn).unwrap();
            let mut client = std::net::TcpStream::connect(handle.local_addr()).unwrap();
            let peer = client.local_addr().unwrap().to_string();
            let local = handle.local_addr().to_string();
            let waits = || {
                let tasks = group.tasks().into_iter();
                let of_peer = |wait: &Wait| match wait {
                    Wait::Read(socket) => socket.peer() == Some(&*peer),
                    _ => false,
                };
                let mut found = tasks.filter(|task| task.waits_for().iter().any(of_peer));
                found.next().map(|task| task.waits_for().to_vec())
            };
            // In one look: the next one may find the connection between two waits.
            let idle = |when: &str| {
                let waits_for_its_peer = || match waits().as_deref() {
                    Some([Wait::Read(socket)]) if !limited => socket.local() == Some(&*local),
                    Some([Wait::Read(_), Wait::Sleep { .. }]) => limited,
                    _ => false,
                };
                eventually(when, waits_for_its_peer);
            };
            idle("before the first turn");
            for _ in 0..2 {
                io::Write::write_all(&mut client, b"x").unwrap();
                io::Read::read_exact(&mut client, &mut [0]).unwrap();
                idle("after a turn");
            }
            // The same on the loop that it moves to.
            let moved = handle.move_connections(0, 1, 1) + handle.move_connections(1, 0, 1);
            assert!(moved >= 1);
            idle("after a move");
            drop(client);
            eventually("the connection ends", || handle.connections() == 0);
        }
        drop(server);
    });
}

#[test]
fn an_acceptor_at_the_limit_waits_for_room() {
    within(|| {
        let (boss, workers) = (tracked(1), tracked(1));
        let server = loopgroup::net::Server::new("127.0.0.1:0").unwrap();
        let server = server.boss(&boss).workers(&workers).max_connections(1);
        let handle = server.serve(|mut stream, _| async move {
            drop(stream.read(&mut [0]).await);
        });
        let handle = handle.unwrap();
        let says = |what: &str| {
            let tasks = boss.tasks();
            let waits = tasks.iter().flat_map(TaskInfo::waits_for);
            waits
                .map(Wait::to_string)
                .any(|wait| wait.starts_with(what))
        };
        let (accepts, is_full) = ("a connection at ", "room for another connection");
        eventually("it accepts", || says(accepts) && !says(is_full));
        let connect = || std::net::TcpStream::connect(handle.local_addr()).unwrap();
        let first = connect();
        eventually("it is full", || says(is_full) && !says(accepts));
        let second = connect(); // waits in the queue of the system
        drop(first);
        eventually("the second is served", || handle.accepted() == 2);
        eventually("it is full again", || says(is_full));
        drop(second);
        eventually("there is room again", || says(accepts) && !says(is_full));
        drop(handle);
    });
}

// ---- the dump -----------------------------------------------------------------------------------

/// A dump that sees the first loop in this, and too long to be answered.
fn dump_of_stuck(group: &EventLoopGroup, inside: &str) -> Dump {
    let found = RefCell::new(None);
    eventually("the loop does not answer", || {
        let dump = group.dump();
        let running = dump.loops()[0].running().map(ToString::to_string);
        let sees = running.is_some_and(|text| text.starts_with(inside));
        found.replace((sees && !dump.loops()[0].answered()).then_some(dump));
        found.borrow().is_some()
    });
    found.take().unwrap()
}

#[test]
fn a_dump_names_the_task_that_a_loop_is_stuck_in() {
    within(|| {
        let group = tracked(2);
        let others: Vec<_> = (0..2_000)
            .map(|number| group.spawn_on(number % 2, sleep(HOUR)))
            .collect();
        group.loops().iter().for_each(flush);
        let door = Door::new();
        let until = door.clone();
        let named = group.loops()[0].task().name("stuck");
        let line = line!() + 1;
        let stuck = named.spawn(async move { until.pass() });
        let behind = group.spawn_on(0, async {});
        let dump = dump_of_stuck(&group, &format!("{} \"stuck\" from ", stuck.id()));
        assert!(dump.elapsed() < LONG && dump.taken_at() <= Instant::now());
        let one = &dump.loops()[0];
        let running = one.running().unwrap();
        assert!(running.duration() >= ms(100));
        assert_eq!(
            (running.task_id(), running.name()),
            (Some(stuck.id()), Some("stuck"))
        );
        let place = running.location().unwrap();
        assert_eq!((place.file(), place.line()), (file!(), line));
        assert!(dump.loops()[1].answered());
        assert_eq!(dump.tasks().len(), others.len() + 2);
        let by_id = by_id(dump.tasks().to_vec());
        assert_eq!(by_id[&stuck.id()].state(), TaskState::Running);
        assert_eq!(by_id[&behind.id()].state(), TaskState::Queued);
        assert_eq!(dump.loops()[1].timers(), Some(1_000));
        assert!(dump.loops()[1].next_deadline() > Some(HOUR - LONG));
        let text = dump.to_string();
        let found = text.lines().find(|line| line.contains("DOES NOT ANSWER"));
        assert!(
            found
                .unwrap()
                .contains(&format!("{} \"stuck\"", stuck.id())),
            "{text}"
        );
        assert!(text.contains(&format!("{}:{line}:", file!())));
        assert!(text.contains("tasks by place:"));
        door.open();
        block_on(stuck).unwrap();
        // The handle resolves in the poll, which may be held up before it has returned.
        eventually("it answers", || group.dump().loops()[0].answered());
        drop(others);
    });
}

#[test]
fn a_dump_names_a_closure_a_hook_a_destructor_and_a_main_future() {
    within(|| {
        let group = tracked(1);
        let door = stall(group.next());
        let dump = dump_of_stuck(&group, "a closure from ");
        let running = dump.loops()[0].running().unwrap();
        assert!(running.task_id().is_some() && running.to_string().starts_with("a closure from "));
        door.open();

        let door = Door::new();
        let until = door.clone();
        let task = group.spawn(async move {
            let _guard = OnDrop::new(move || until.pass());
            pending::<()>().await;
        });
        waiting(&group, task.id());
        task.abort();
        let dump = dump_of_stuck(&group, &task.id().to_string());
        assert_eq!(
            dump.loops()[0].running().unwrap().task_id(),
            Some(task.id())
        );
        assert_eq!(dump.tasks()[0].state(), TaskState::Running);
        door.open();
        assert!(block_on(task).is_err());

        let door = Door::new();
        let until = door.clone();
        let ev = group.next();
        let line = line!() + 1;
        ev.add_shutdown_hook(move || until.pass()).unwrap();
        let end = group.drain(HOUR);
        let dump = dump_of_stuck(&group, "a shutdown hook from ");
        let running = dump.loops()[0].running().unwrap();
        assert_eq!(running.location().unwrap().line(), line);
        assert!(running.to_string().starts_with("a shutdown hook from "));
        let shutdown = dump.loops()[0].shutdown().unwrap();
        assert!(shutdown.left() > Some(HOUR - LONG) && shutdown.age() >= ms(100));
        assert!(dump.to_string().contains("shutting down for "), "{dump}");
        door.open();
        end.wait();
        let after = group.dump();
        assert!(after.loops()[0].shutdown().is_none() && after.loops()[0].answered());

        let mut manual = ManualLoop::from_builder(builder()).unwrap();
        let group = manual.event_loop().parent().unwrap();
        let dump = manual.block_on(async move {
            thread::sleep(ms(110));
            group.dump()
        });
        let dump = dump.unwrap();
        let running = dump.loops()[0].running().unwrap();
        assert!(
            running.to_string().starts_with("the main future for "),
            "{running}"
        );
        assert!(!dump.loops()[0].answered() && running.task_id().is_none());
    });
}

#[test]
fn without_records_a_dump_knows_what_the_watchdog_has_seen() {
    within(|| {
        let watched = EventLoopGroup::builder().loops(1).watchdog(ms(20));
        let group = watched.on_stall(|_| {}).build().unwrap();
        let door = Door::new();
        let until = door.clone();
        let task = group.task().name("seen").spawn(async move { until.pass() });
        let dump = dump_of_stuck(&group, &task.id().to_string());
        let running = dump.loops()[0].running().unwrap();
        assert_eq!(
            (running.task_id(), running.name()),
            (Some(task.id()), Some("seen"))
        );
        door.open();
        block_on(task).unwrap();
        eventually("it answers", || group.dump().loops()[0].answered());
    });
}

#[test]
fn a_dump_may_be_taken_anywhere_and_at_any_time() {
    within(|| {
        let counted = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&counted);
        let slot: Arc<Mutex<Option<EventLoopGroup>>> = Arc::default();
        let shared = Arc::clone(&slot);
        let look = move || {
            let group = shared.lock().unwrap().clone().unwrap();
            let (dump, tasks) = (group.dump(), group.tasks());
            taken.fetch_add(1, Ordering::Relaxed);
            assert!(!dump.to_string().is_empty());
            tasks.len()
        };
        let in_handler = look.clone();
        let group = builder()
            .loops(2)
            .on_panic(move |_| _ = in_handler())
            .build()
            .unwrap();
        *slot.lock().unwrap() = Some(group.clone());
        let at_end = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&at_end);
        let in_hook = look.clone();
        let hook = move || seen.store(in_hook() == 1, Ordering::Relaxed);
        group.loops()[0].add_shutdown_hook(hook).unwrap();
        // In a poll, in a closure, in destructors of all kinds, in a thread-local's destructor.
        let in_poll = look.clone();
        assert_eq!(block_on(group.spawn(async move { in_poll() })).unwrap(), 1);
        let in_closure = look.clone();
        group.next().execute(move || _ = in_closure()).unwrap();
        struct Late(Option<Box<dyn FnOnce()>>);
        impl Drop for Late {
            fn drop(&mut self) {
                self.0.take().into_iter().for_each(|call| call());
            }
        }
        thread_local! {
            static LATE: RefCell<Late> = const { RefCell::new(Late(None)) };
        }
        let late = look.clone();
        block_on(group.loops()[0].submit(move || {
            LATE.with(|slot| slot.borrow_mut().0 = Some(Box::new(move || _ = late())));
        }))
        .unwrap();
        let (in_drop, in_value) = (look.clone(), look.clone());
        let task = group.spawn(async move {
            let _guard = OnDrop::new(move || _ = in_drop());
            OnDrop::new(move || _ = in_value())
        });
        eventually("it has ended", || task.is_finished());
        drop(task); // and its value, here
        let in_wake = look.clone();
        let waker = waker_fn(move || _ = in_wake());
        let awaited = group.spawn(yield_now());
        let mut cx = std::task::Context::from_waker(&waker);
        let mut awaited = pin!(awaited);
        while awaited.as_mut().poll(&mut cx).is_pending() {
            thread::yield_now();
        }
        drop(group.spawn(async { panic!("for the handler") }));
        let stays = group.spawn_on(0, {
            let in_cancel = look.clone();
            async move {
                let _guard = OnDrop::new(move || _ = in_cancel());
                pending::<()>().await
            }
        });
        waiting(&group, stays.id());
        let before = counted.load(Ordering::Relaxed);
        assert!(before >= 5, "{before}");
        let end = group.shutdown_gracefully_with(ms(5), LONG).unwrap();
        while !group.is_terminated() {
            look();
        }
        end.wait();
        assert!(
            at_end.load(Ordering::Relaxed),
            "the hook saw the task that waits"
        );
        assert_eq!(look(), 0);
        assert!(counted.load(Ordering::Relaxed) > before + 3);
        slot.lock().unwrap().take();
    });
}

/// A waker that calls a closure.
fn waker_fn(call: impl Fn() + Send + Sync + 'static) -> std::task::Waker {
    struct Call<F>(F);
    impl<F: Fn() + Send + Sync + 'static> std::task::Wake for Call<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Arc::new(Call(call)).into()
}

#[test]
fn readers_on_other_threads_see_every_task_that_stays() {
    within(|| {
        let group = tracked(2);
        let stay: Vec<_> = (0..500)
            .map(|number| group.spawn_on(number % 2, pending::<()>()).id())
            .collect();
        let done = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (group, done, stay) = (group.clone(), Arc::clone(&done), stay.clone());
                thread::spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let by_id = by_id(group.tasks());
                        assert!(stay.iter().all(|id| by_id.contains_key(id)));
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            let churn: Vec<_> = (0..200).map(|_| group.spawn(yield_now())).collect();
            churn.into_iter().for_each(|task| block_on(task).unwrap());
        }
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(group.tasks().len(), stay.len());
    });
}

#[test]
fn names_and_labels_cannot_break_a_line() {
    within(|| {
        let group = builder()
            .loops(1)
            .thread_name(|_| "a\nb".to_owned())
            .build()
            .unwrap();
        let nasty = "one\ntwo\r\u{1b}[31m\u{2028}\t\"<script>\"";
        let task = group
            .task()
            .name(nasty)
            .spawn(label(nasty, pending::<()>()));
        let info = waiting(&group, task.id());
        assert_eq!(info.name(), Some(nasty));
        let text = info.to_string();
        assert!(
            !text.contains(|letter: char| letter.is_control() || letter == '\u{2028}'),
            "{text}"
        );
        assert!(text.contains("one\\ntwo") && text.contains("<script>"));
        let dump = group.dump();
        assert_eq!(dump.to_string().lines().count(), 4, "{dump}");
        assert!(format!("{info:?}").contains("TaskInfo"));
    });
}

// ---- loops of other kinds -----------------------------------------------------------------------

#[test]
fn test_loops_and_manual_loops_list_their_tasks() {
    within(|| {
        let mut test = TestLoop::from_builder(builder()).unwrap();
        let start = test.now();
        let task = test.spawn(async {
            sleep(ms(1500)).await;
            sleep(HOUR).await;
        });
        assert_eq!(test.tasks()[0].state(), TaskState::Queued);
        test.run_until_stalled();
        test.advance(ms(1000));
        let sleeps = |test: &TestLoop, at: Duration, remaining: Duration| match test.tasks()[0]
            .waits_for()
        {
            [Wait::Sleep { until, left, .. }] => {
                assert_eq!((*until, *left), (start + at, remaining));
            }
            other => unreachable!("{other:?}"),
        };
        sleeps(&test, ms(1500), ms(500));
        test.advance(ms(500));
        test.run_until_stalled();
        sleeps(&test, ms(1500) + HOUR, HOUR);
        assert_eq!(test.tasks()[0].last_wake().unwrap().by(), WakeSource::Timer);
        task.abort();
        test.run_until_stalled();
        assert!(test.tasks().is_empty());

        let mut test = TestGroup::from_builder(1, builder().loops(2)).unwrap();
        let task = test
            .group()
            .spawn_on(1, label("simulated", pending::<()>()));
        test.run_until_stalled();
        let tasks = test.group().tasks();
        assert_eq!((tasks[0].id(), tasks[0].loop_index()), (task.id(), 1));
        assert_eq!(tasks[0].waits_for(), [Wait::Label("simulated".into())]);
        assert_eq!(test.group().dump().loops().len(), 2);

        let mut manual = ManualLoop::from_builder(builder()).unwrap();
        let task = manual.event_loop().spawn(pending::<()>());
        manual.block_on(yield_now()).unwrap();
        assert_eq!(manual.event_loop().tasks()[0].id(), task.id());
        drop(manual);

        let listed = loopgroup::run(async {
            drop(spawn(pending::<()>()));
            yield_now().await;
            EventLoop::current().unwrap().tasks().len()
        });
        assert_eq!(listed.unwrap(), 0, "run has no builder, and tracks nothing");
    });
}

#[test]
fn a_process_that_exits_in_a_task_does_not_hang_over_its_records() {
    if is_child() {
        let group = tracked(1);
        drop(group.spawn(pending::<()>()));
        let task = group.spawn(async {
            drop(spawn_local(poll_fn(|_| Poll::<()>::Pending)));
            std::process::exit(7);
        });
        block_on(task).unwrap();
    }
    within(|| {
        let output = in_child("a_process_that_exits_in_a_task_does_not_hang_over_its_records");
        assert_eq!(output.status.code(), Some(7));
    });
}

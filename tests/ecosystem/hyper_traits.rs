//! hyper's traits: reads and writes on our streams, executors that keep their home, timers of the loop.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use hyper::rt::{Executor, Read, ReadBuf, Timer as _, Write};
use loopgroup::compat::hyper::{LocalExecutor, Timer};
use loopgroup::net::{TcpListener, TcpStream, UnixStream};
use loopgroup::testing::TestLoop;
use loopgroup::{EventLoop, EventLoopGroup, time};

use crate::util::{self, Log, Probe, on_a_loop, within};

/// Reads once, into a buffer of this size that was never written to.
async fn read(stream: &mut (impl Read + Unpin), size: usize) -> std::io::Result<Vec<u8>> {
    let mut space = vec![MaybeUninit::uninit(); size];
    let mut buf = ReadBuf::uninit(&mut space);
    std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, buf.unfilled())).await?;
    Ok(buf.filled().to_vec())
}

async fn write(stream: &mut (impl Write + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let written =
            std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, rest)).await?;
        rest = &rest[written..];
    }
    std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_shutdown(cx)).await
}

async fn through<S: Read + Write + Unpin>(mut one: S, mut other: S) -> std::io::Result<()> {
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut got = Vec::new();
    let receive = async {
        // Larger than any scratch buffer, and smaller.
        for size in [1 << 20, 100, 8192].into_iter().cycle() {
            let part = read(&mut other, size).await?;
            assert!(part.len() <= size);
            if part.is_empty() {
                return Ok(());
            }
            got.extend(part);
        }
        unreachable!("a cycle has no end")
    };
    futures::try_join!(write(&mut one, &bytes), receive)?;
    assert!(got == bytes, "what came is not what was sent");
    Ok(())
}

#[test]
fn a_megabyte_and_the_end_go_through_every_kind_of_stream() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        through(client, listener.accept().await?.0).await?;
        let (one, other) = UnixStream::pair()?;
        through(&one, &other).await?;
        let (one, other) = UnixStream::pair()?;
        through(one, other).await?;
        let (one, other) = loopgroup::io::duplex(4096);
        through(one, other).await
    });
}

#[test]
fn several_buffers_go_out_in_one_write() {
    on_a_loop(|| async {
        let (one, other) = UnixStream::pair()?;
        let (mut half, (mut read_half, _keep)) = (one.into_split().1, other.into_split());
        assert!(half.is_write_vectored());
        let buffers = [&b"two "[..], b"", b"words"].map(IoSlice::new);
        let write =
            std::future::poll_fn(|cx| Pin::new(&mut half).poll_write_vectored(cx, &buffers));
        assert_eq!(write.await?, 9);
        assert_eq!(read(&mut read_half, 64).await?, b"two words");
        Ok(())
    });
}

#[test]
fn executed_futures_stay_on_their_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        for home in group.loops() {
            let (send, receive) = oneshot::channel();
            let (log, id) = (Log::new(), group.block_on(home.submit(thread_id)).unwrap());
            let future = Probe::new(&log, async move {
                loopgroup::yield_now().await;
                send.send(()).unwrap();
            });
            Executor::execute(home, future);
            group.block_on(receive).unwrap();
            util::eventually("the drop of the future", || log.drops() == 1);
            log.assert_home(id);
        }
        // On a group: by its chooser.
        let (send, receive) = oneshot::channel();
        Executor::execute(
            &group,
            async move { send.send(EventLoop::current()).unwrap() },
        );
        assert!(
            group
                .loops()
                .contains(&group.block_on(receive).unwrap().unwrap())
        );
    });
}

fn thread_id() -> std::thread::ThreadId {
    std::thread::current().id()
}

#[test]
fn the_local_executor_takes_what_is_not_send() {
    on_a_loop(|| async {
        let (send, receive) = oneshot::channel();
        let text = Rc::new("here");
        LocalExecutor.execute(async move { send.send(text).unwrap() });
        assert_eq!(*receive.await.unwrap(), "here");
        Ok(())
    });
}

#[test]
fn the_local_executor_says_that_there_is_no_loop() {
    within(|| {
        let execute = || LocalExecutor.execute(async {});
        let payload = catch_unwind(AssertUnwindSafe(execute)).unwrap_err();
        let text = payload.downcast_ref::<String>().unwrap();
        assert!(text.contains("needs an event loop around it"), "{text}");
    });
}

#[test]
fn after_a_shutdown_what_is_executed_is_dropped_and_counted() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.start().unwrap();
        group.shutdown_now().wait();
        let (send, receive) = oneshot::channel::<()>();
        Executor::execute(&group, async move { drop(send) });
        let (other_send, other_receive) = oneshot::channel::<()>();
        Executor::execute(group.next(), async move { drop(other_send) });
        assert!(loopgroup::block_on(receive).is_err(), "no hang");
        assert!(loopgroup::block_on(other_receive).is_err(), "no hang");
        assert_eq!(group.termination().wait().rejected(), 2);
    });
}

#[test]
fn the_timer_reads_the_time_of_its_loop() {
    within(|| {
        let hour = Duration::from_secs(3600);
        TestLoop::new().block_on(async move {
            let start = Timer.now();
            Timer.sleep(hour).await;
            assert_eq!(Timer.now() - start, hour);
            Timer.sleep_until(start + 3 * hour).await;
            assert_eq!(Timer.now() - start, 3 * hour);
        });
    });
}

#[test]
fn a_reset_moves_a_sleep_that_is_waited_for() {
    within(|| {
        let hour = Duration::from_secs(3600);
        TestLoop::new().block_on(async move {
            let start = Timer.now();
            let mut sleep = Timer.sleep(100 * hour);
            assert!(futures::poll!(&mut sleep).is_pending());
            Timer.reset(&mut sleep, start + hour);
            assert!(
                sleep.as_mut().downcast_mut_pin::<time::Sleep>().is_some(),
                "the same one"
            );
            sleep.await;
            assert_eq!(Timer.now() - start, hour);
        });
    });
}

#[test]
fn a_sleep_polled_where_there_are_no_timers_says_so() {
    within(|| {
        let mut sleep = Timer.sleep(Duration::from_secs(3600));
        let poll = || util::poll_once(&mut sleep);
        let payload = catch_unwind(AssertUnwindSafe(poll)).unwrap_err();
        let text = payload.downcast_ref::<&str>().unwrap();
        assert!(text.contains("a thread that has no timers"), "{text}");
    });
}

//! Streams in memory: the bytes and the end arrive, a full buffer waits, and an end that is dropped is seen.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::io::{DuplexStream, duplex};
use loopgroup::testing::TestLoop;
use loopgroup::time::{now, sleep};
use loopgroup::{block_on, yield_now};

use crate::util::{LONG, Waiting, WakeCount, group, on_a_loop, panic_of, poll_once, within};

/// A pattern in which a lost or doubled byte shows.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

/// Sends bytes and the end, reads what comes back until the end.
async fn ask(mut stream: DuplexStream, bytes: Vec<u8>) -> std::io::Result<Vec<u8>> {
    let mut back = vec![0; bytes.len()];
    let (mut reader, mut writer) = (&mut stream).split();
    let write = async {
        writer.write_all(&bytes).await?;
        writer.close().await
    };
    let both = futures::join!(write, reader.read_exact(&mut back));
    both.0.and(both.1)?;
    assert_eq!(reader.read(&mut [0]).await?, 0, "the end");
    Ok(back)
}

/// Returns what it reads, until the end.
async fn echo(stream: DuplexStream) -> std::io::Result<u64> {
    let (reader, mut writer) = stream.split();
    futures::io::copy(reader, &mut writer).await
}

#[test]
fn a_megabyte_goes_there_and_back_between_loops_through_a_buffer_of_any_size() {
    within(|| {
        let group = group(2);
        for (max_buf, length) in [(1, 2_000), (7, 20_000), (4096, 1_000_000)] {
            let (one, other) = duplex(max_buf);
            let echoed = group.spawn_on(1, echo(other));
            let back = group.spawn_on(0, ask(one, pattern(length)));
            assert!(block_on(back).unwrap().unwrap() == pattern(length));
            assert_eq!(block_on(echoed).unwrap().unwrap(), length as u64);
        }
        assert!(group.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_write_takes_what_fits_and_waits_for_the_rest() {
    let (mut one, mut other) = duplex(4);
    assert!(matches!(
        poll_once(&mut one.write(b"12345")),
        Poll::Ready(Ok(4))
    ));
    let mut waiting = Waiting::new(one.write(b"5"));
    assert_eq!(waiting.wakes(), 0);
    let mut buf = [0; 3];
    assert!(matches!(
        poll_once(&mut other.read(&mut buf)),
        Poll::Ready(Ok(3))
    ));
    assert_eq!((&buf, waiting.wakes()), (b"123", 1));
    assert!(matches!(waiting.poll(), Poll::Ready(Ok(1))));
    // The queue wraps around here: one read returns both parts.
    let mut buf = [0; 8];
    assert!(matches!(
        poll_once(&mut other.read(&mut buf)),
        Poll::Ready(Ok(2))
    ));
    assert_eq!(&buf[..2], b"45");
    assert!(poll_once(&mut other.read(&mut buf)).is_pending());
}

#[test]
fn several_buffers_are_written_and_read_at_once() {
    let (mut one, mut other) = duplex(8);
    let out = [&b"one "[..], b"", b"two three"].map(IoSlice::new);
    assert!(matches!(
        poll_once(&mut one.write_vectored(&out)),
        Poll::Ready(Ok(8))
    ));
    let (mut first, mut second) = ([0; 3], [0; 16]);
    let mut bufs = [&mut first[..], &mut [], &mut second].map(IoSliceMut::new);
    assert!(matches!(
        poll_once(&mut other.read_vectored(&mut bufs)),
        Poll::Ready(Ok(8))
    ));
    assert_eq!((&first, &second[..5]), (b"one", &b" two "[..]));
}

#[test]
fn a_closed_direction_ends_after_its_bytes_and_the_other_one_continues() {
    on_a_loop(|| async {
        let (mut one, mut other) = duplex(16);
        one.write_all(b"the last").await?;
        one.close().await?;
        one.close().await?; // again: no harm
        let error = one.write(b"!").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert!(error.to_string().contains("this end"), "{error}");
        let mut text = String::new();
        other.read_to_string(&mut text).await?;
        assert_eq!(text, "the last");
        assert_eq!(other.read(&mut [0; 4]).await?, 0, "the end stays");
        other.write_all(b"answer").await?;
        let mut answer = [0; 6];
        one.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"answer");
        Ok(())
    });
}

#[test]
fn a_close_wakes_the_reader_and_a_drop_wakes_both() {
    let (mut one, mut other) = duplex(1);
    let mut buf = [0];
    let mut reading = Waiting::new(other.read(&mut buf));
    assert!(matches!(poll_once(&mut one.close()), Poll::Ready(Ok(()))));
    assert_eq!(reading.wakes(), 1);
    assert!(matches!(reading.poll(), Poll::Ready(Ok(0))));
    drop(reading);

    let (one, other) = duplex(1);
    let (mut reader, mut writer) = other.split();
    assert!(matches!(
        poll_once(&mut writer.write(b"1")),
        Poll::Ready(Ok(1))
    ));
    let mut reading = Waiting::new(reader.read(&mut buf));
    let mut writing = Waiting::new(writer.write(b"2"));
    drop(one);
    assert_eq!((reading.wakes(), writing.wakes()), (1, 1));
    assert!(matches!(reading.poll(), Poll::Ready(Ok(0))));
    let Poll::Ready(Err(error)) = writing.poll() else {
        panic!("there is no reader");
    };
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert!(error.to_string().contains("the other end"), "{error}");
}

#[test]
fn what_was_written_before_a_drop_is_read_after_it() {
    on_a_loop(|| async {
        let (mut one, mut other) = duplex(16);
        one.write_all(b"in flight").await?;
        drop(one);
        let mut text = String::new();
        other.read_to_string(&mut text).await?;
        assert_eq!(text, "in flight");
        let error = other.write(b"late").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        other.flush().await?;
        other.close().await
    });
}

#[test]
fn a_shutdown_in_the_middle_ends_the_stream_for_the_end_on_the_other_loop() {
    within(|| {
        for round in 0..50 {
            let (here, there) = (group(1), group(1));
            let (mut one, mut other) = duplex(64);
            let sending = there.spawn(async move {
                let mut sent = 0_u64;
                loop {
                    other.write_all(&pattern(64)).await.unwrap();
                    sent += 64;
                    if sent > round * 640 {
                        yield_now().await;
                    }
                }
            });
            let receiving = here.spawn(async move {
                let mut all = Vec::new();
                one.read_to_end(&mut all).await.unwrap();
                let error = one.write(b"is anybody there?").await.unwrap_err();
                (all, error.kind())
            });
            while here.next().live_tasks() == 0 {
                std::thread::yield_now();
            }
            let report = there.shutdown_now().wait();
            assert_eq!((report.completed(), report.cancelled()), (0, 1));
            let cancelled: Result<(), _> = block_on(sending);
            assert!(cancelled.unwrap_err().is_cancelled());
            let (all, error) = block_on(receiving).unwrap();
            assert_eq!(error, ErrorKind::BrokenPipe);
            let expected = all
                .chunks(64)
                .all(|chunk| chunk == &pattern(64)[..chunk.len()]);
            assert!(expected, "bytes in order, and none twice");
            assert!(here.drain(LONG).wait().is_clean());
        }
    });
}

#[test]
fn ends_that_are_dropped_at_the_same_time_as_they_are_used_never_hang() {
    within(|| {
        for _ in 0..500 {
            let (mut one, mut other) = duplex(2);
            let peer = std::thread::spawn(move || {
                block_on(async move {
                    let _ = other.write(b"12").await;
                    let _ = other.read(&mut [0]).await;
                })
            });
            block_on(async move {
                let _ = one.read(&mut [0]).await;
                let _ = one.write_all(b"123").await; // the third byte may have no room, or no reader
            });
            peer.join().unwrap();
        }
    });
}

#[test]
fn a_waker_that_panics_is_contained() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let (mut one, mut other) = duplex(4);
    let waker = Waker::from(Arc::new(Panics));
    let mut buf = [0; 4];
    let mut read = Box::pin(other.read(&mut buf));
    assert!(
        read.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    assert!(matches!(
        poll_once(&mut one.write(b"1234")),
        Poll::Ready(Ok(4))
    ));
    assert!(matches!(poll_once(&mut read), Poll::Ready(Ok(4))));
    drop(read);
    assert_eq!(&buf, b"1234");
}

#[test]
fn the_newest_waker_is_woken_and_an_old_one_is_dropped() {
    let (mut one, mut other) = duplex(4);
    let wakers = [WakeCount::new(), WakeCount::new()];
    let mut buf = [0; 4];
    let mut read = Box::pin(other.read(&mut buf));
    for wakes in &wakers {
        let waker = Waker::from(Arc::clone(wakes));
        for _ in 0..2 {
            let mut cx = Context::from_waker(&waker);
            assert!(read.as_mut().poll(&mut cx).is_pending());
        }
    }
    assert_eq!(wakers.each_ref().map(Arc::strong_count), [1, 2]);
    assert!(poll_once(&mut one.write(b"1")).is_ready());
    assert_eq!(wakers.each_ref().map(|wakes| wakes.get()), [0, 1]);
}

#[test]
fn a_stream_that_is_always_ready_lets_others_in() {
    let mut test = TestLoop::new();
    let polls = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = std::rc::Rc::clone(&polls);
    test.block_on(async move {
        let busy = loopgroup::spawn_local(async move {
            let (mut one, mut other) = duplex(1);
            for _ in 0..1_000 {
                one.write_all(b"x").await.unwrap();
                other.read_exact(&mut [0]).await.unwrap();
            }
        });
        let other = loopgroup::spawn_local(async move {
            loop {
                count.set(count.get() + 1);
                yield_now().await;
            }
        });
        busy.await.unwrap();
        drop(other);
    });
    assert!(polls.get() >= 2_000 / 128, "{} turns", polls.get());
}

#[test]
fn it_is_deterministic_in_virtual_time() {
    fn run() -> Vec<(Duration, usize)> {
        let mut test = TestLoop::new();
        test.block_on(async {
            let start = now();
            let (mut one, mut other) = duplex(100);
            let writing = loopgroup::spawn_local(async move {
                for size in 1..=50 {
                    other.write_all(&pattern(size * 7)).await.unwrap();
                    sleep(Duration::from_millis(size as u64 % 5)).await;
                }
            });
            let (mut seen, mut buf) = (Vec::new(), [0; 64]);
            loop {
                let count = one.read(&mut buf).await.unwrap();
                if count == 0 {
                    writing.await.unwrap();
                    return seen;
                }
                seen.push((now() - start, count));
                sleep(Duration::from_millis(count as u64 % 3)).await;
            }
        })
    }
    let first = run();
    assert_eq!(
        first.iter().map(|(_, count)| count).sum::<usize>(),
        (1..=50).sum::<usize>() * 7
    );
    assert_eq!(first, run());
}

#[test]
fn no_room_at_all_is_refused() {
    let text = panic_of(|| duplex(0));
    assert!(text.contains("at least one byte"), "{text}");
    // Only the bytes that are written take memory.
    let (mut one, other) = duplex(usize::MAX);
    assert!(poll_once(&mut one.write(b"few")).is_ready());
    assert_eq!(
        format!("{other:?}"),
        format!(
            "DuplexStream {{ readable: 3, unread_by_peer: 0, max_buf: {} }}",
            usize::MAX
        )
    );
}

//! Pipes deliver what was written, tell of their ends, and outlive the loop they waited on.

use std::io::{self, ErrorKind, Write};
use std::pin::pin;
use std::process::Command;
use std::sync::{Arc, mpsc};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::io::Interest;
use loopgroup::net::pipe::{self, OpenOptions, Receiver, Sender};
use loopgroup::time::timeout;
use loopgroup::{EventLoop, EventLoopGroup, block_on};

use crate::util::{self, LONG, TempPath, on_a_loop, within};

/// A path at which there is a FIFO.
fn fifo(name: &str) -> io::Result<TempPath> {
    let path = TempPath::new(name);
    let made = Command::new("mkfifo").arg(&path.0).status()?;
    assert!(made.success());
    Ok(path)
}

#[test]
fn more_than_a_pipe_holds_passes_through_it_between_two_loops() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let (mut sender, mut receiver) = pipe::pipe().unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        let expected = sent.clone();
        let writing = group.spawn_on(0, async move {
            for chunk in sent.chunks(70_001) {
                sender.write_all(chunk).await?;
            }
            sender.close().await // the drop is the end
        });
        let reading = group.spawn_on(1, async move {
            let mut all = Vec::new();
            receiver.read_to_end(&mut all).await.map(|_| all)
        });
        let all = block_on(reading).unwrap().unwrap();
        block_on(writing).unwrap().unwrap();
        assert!(all == expected, "{} bytes", all.len());
        assert!(group.drain(LONG).wait().is_clean());
    });
}

#[test]
fn each_end_is_told_that_the_other_is_gone() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let (sender, receiver) = pipe::pipe()?;
        let mut buf = [0; 8];
        {
            let mut reading = pin!(receiver.readable());
            assert!(futures::poll!(reading.as_mut()).is_pending());
            sender.try_write(b"last")?;
            drop(sender);
            timeout(LONG, reading).await??;
        }
        assert_eq!((&receiver).read(&mut buf).await?, 4);
        assert_eq!((&receiver).read(&mut buf).await?, 0, "the end");
        assert_eq!(receiver.try_read(&mut buf)?, 0, "and again");

        let (sender, receiver) = pipe::pipe()?;
        while sender.try_write(&[0; 4096]).is_ok() {}
        let writing = loopgroup::spawn_local(async move {
            let mut sender = sender;
            sender.write_all(b"no room").await
        });
        loopgroup::yield_now().await;
        drop(receiver);
        let error = timeout(LONG, writing).await??.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert_eq!(
            here.registered_channels(),
            1,
            "the receiver of the first pipe"
        );
        Ok(())
    });
}

#[test]
fn a_pipe_is_tried_waited_for_and_read_into_many_buffers() {
    on_a_loop(|| async {
        let (sender, receiver) = pipe::pipe()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        assert!(timeout(LONG, sender.ready(both)).await??.is_writable());
        let none = receiver.try_read(&mut [0; 8]).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
        // A wait that is cancelled takes nothing.
        assert!(futures::poll!(pin!((&receiver).read(&mut [0; 8]))).is_pending());
        let parts = [io::IoSlice::new(b"he"), io::IoSlice::new(b"llo")];
        assert_eq!(sender.try_write_vectored(&parts)?, 5);
        assert!(timeout(LONG, receiver.ready(both)).await??.is_readable());
        let (mut one, mut two) = ([0; 2], [0; 8]);
        let mut bufs = [io::IoSliceMut::new(&mut one), io::IoSliceMut::new(&mut two)];
        assert_eq!(receiver.try_read_vectored(&mut bufs)?, 5);
        assert_eq!((&one, &two[..3]), (b"he", &b"llo"[..]));
        // Full, and writable again when it is read.
        let mut queued = 0;
        while let Ok(n) = sender.try_write(&[1; 4096]) {
            queued += n;
        }
        assert!(futures::poll!(pin!(sender.writable())).is_pending());
        (&receiver).read_exact(&mut vec![0; queued]).await?;
        timeout(LONG, sender.writable()).await??;
        let written = (&sender).write_vectored(&parts).await?;
        assert_eq!(written, 5);
        Ok(())
    });
}

#[test]
fn a_pipe_outlives_the_loop_that_it_waited_on() {
    within(|| {
        let (sender, receiver) = pipe::pipe().unwrap();
        let receiver = Arc::new(receiver);
        let first = EventLoopGroup::new(1).unwrap();
        let (tx, rx) = mpsc::channel();
        let shared = Arc::clone(&receiver);
        drop(first.spawn(async move {
            tx.send("waits").unwrap();
            let _ = (&*shared).read(&mut [0; 8]).await; // cancelled with its loop
            unreachable!("nothing was written");
        }));
        rx.recv().unwrap();
        assert!(first.shutdown_now().wait().loops()[0].cancelled() <= 1);
        // Another loop takes it over, with what was written meanwhile.
        sender.try_write(b"late").unwrap();
        let second = EventLoopGroup::new(1).unwrap();
        let task = second.spawn(async move {
            let mut buf = [0; 8];
            let n = (&*receiver).read(&mut buf).await?;
            assert_eq!(
                receiver.event_loop().as_ref(),
                EventLoop::current().as_ref()
            );
            io::Result::Ok(buf[..n].to_vec())
        });
        assert_eq!(block_on(task).unwrap().unwrap(), b"late");
    });
}

#[test]
fn a_pipe_without_a_loop_says_what_is_missing() {
    within(|| {
        let (sender, mut receiver) = pipe::pipe().unwrap();
        let error = block_on(receiver.read(&mut [0; 8])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        drop(sender);
    });
}

#[test]
fn a_fifo_is_opened_at_both_ends_and_says_which_is_missing() {
    on_a_loop(|| async {
        let path = fifo("fifo")?;
        let options = OpenOptions::new();
        let error = options.open_sender(&path.0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENXIO), "no receiver yet");
        let mut receiver = options.open_receiver(&path.0)?;
        assert_eq!(receiver.try_read(&mut [0; 8])?, 0, "no sender yet");
        for text in ["first", "again"] {
            let mut sender = options.open_sender(&path.0)?;
            sender.write_all(text.as_bytes()).await?;
            drop(sender);
            // A receiver that saw an end reads on, once there is another sender.
            let mut read = String::new();
            timeout(LONG, receiver.read_to_string(&mut read)).await??;
            assert_eq!(read, text);
        }
        Ok(())
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_fifo_that_is_open_for_both_needs_no_other_end_and_has_none() {
    on_a_loop(|| async {
        let path = fifo("fifo-both")?;
        let mut sender = OpenOptions::new().read_write(true).open_sender(&path.0)?;
        let receiver = OpenOptions::new().read_write(true).open_receiver(&path.0)?;
        sender.write_all(b"hello").await?;
        drop(sender);
        assert_eq!((&receiver).read(&mut [0; 8]).await?, 5);
        let none = receiver.try_read(&mut [0; 8]).unwrap_err();
        assert_eq!(
            none.kind(),
            ErrorKind::WouldBlock,
            "no end while it is a sender itself"
        );
        Ok(())
    });
}

#[test]
fn what_is_not_a_pipe_is_refused_and_named() {
    within(|| {
        let path = TempPath::new("not-a-pipe");
        std::fs::write(&path.0, "text").unwrap();
        let options = OpenOptions::new();
        let name = path.0.to_str().unwrap();
        for error in [
            options.open_receiver(&path.0).unwrap_err(),
            options.open_sender(&path.0).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(name), "{error}");
        }
        assert_eq!(
            std::fs::read(&path.0).unwrap(),
            b"text",
            "nothing was truncated"
        );
        let file = || std::fs::File::open(&path.0).unwrap();
        assert_eq!(
            Receiver::from_file(file()).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        let fd = std::os::fd::OwnedFd::from(file());
        assert_eq!(
            Sender::try_from(fd).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        let missing = TempPath::new("no-pipe");
        let error = options.open_receiver(&missing.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn ends_go_to_a_child_and_come_back_as_descriptors() {
    on_a_loop(|| async {
        let ((mut to_child, stdin), (stdout, mut from_child)) = (pipe::pipe()?, pipe::pipe()?);
        let mut child = Command::new("cat")
            .stdin(stdin.into_blocking_fd()?)
            .stdout(stdout.into_blocking_fd()?)
            .spawn()?;
        to_child.write_all(b"through a child").await?;
        drop(to_child);
        let mut text = String::new();
        timeout(LONG, from_child.read_to_string(&mut text)).await??;
        assert_eq!(text, "through a child");
        assert!(child.wait()?.success());

        let (sender, receiver) = pipe::pipe()?;
        assert!(futures::poll!(pin!(receiver.readable())).is_pending());
        let mut receiver = Receiver::from_owned_fd(receiver.into_nonblocking_fd())?;
        assert!(
            receiver.event_loop().is_none(),
            "registered anew when it waits"
        );
        let mut file = std::fs::File::from(sender.into_blocking_fd()?);
        file.write_all(b"by the standard library")?;
        drop(file);
        text.clear();
        receiver.read_to_string(&mut text).await?;
        assert_eq!(text, "by the standard library");
        Ok(())
    });
}

#[test]
fn pipes_leave_no_descriptor_behind() {
    util::alone("pipes_leave_no_descriptor_behind", || {
        loopgroup::run(async {
            let here = EventLoop::current().unwrap();
            let before = util::entries("/proc/self/fd");
            for _ in 0..100 {
                let (sender, mut receiver) = pipe::pipe().unwrap();
                assert!(futures::poll!(pin!(receiver.read(&mut [0; 8]))).is_pending());
                receiver.migrate_to(&here).await.unwrap();
                sender.try_write(b"x").unwrap();
                assert_eq!(receiver.read(&mut [0; 8]).await.unwrap(), 1);
            }
            assert_eq!(util::entries("/proc/self/fd"), before);
            assert_eq!(here.registered_channels(), 0);
        })
        .unwrap();
    });
}

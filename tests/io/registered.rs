//! Any descriptor that the system can poll can be awaited, and leaves nothing behind.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use loopgroup::io::{Interest, Registered};
use loopgroup::time::timeout;
use loopgroup::{EventLoop, EventLoopGroup, block_on};

use crate::util::{on_a_loop, within};

/// A pipe: what is written to the second end is read from the first.
fn pipe() -> io::Result<(File, File)> {
    // mio knows how each system makes one that children do not inherit.
    let (sender, receiver) = mio::unix::pipe::new()?;
    sender.set_nonblocking(false)?;
    receiver.set_nonblocking(false)?;
    Ok((OwnedFd::from(receiver).into(), OwnedFd::from(sender).into()))
}

/// Reads until the end.
async fn read_all<T: std::os::fd::AsFd>(from: &Registered<T>) -> io::Result<Vec<u8>>
where
    for<'a> &'a T: Read,
{
    let mut all = Vec::new();
    let mut buf = [0; 1024];
    loop {
        from.readable().await?;
        match from.try_io(Interest::READABLE, |mut io| io.read(&mut buf)) {
            Ok(0) => return Ok(all),
            Ok(n) => all.extend_from_slice(&buf[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn a_pipe_is_read_to_its_end() {
    on_a_loop(|| async {
        let (reader, mut writer) = pipe()?;
        let reader = Registered::new(reader)?;
        let late = timeout(Duration::from_millis(1), reader.readable()).await;
        assert!(late.is_err(), "nothing to read yet");
        let thread = std::thread::spawn(move || writer.write_all(b"through a pipe"));
        assert_eq!(read_all(&reader).await?, b"through a pipe");
        thread.join().unwrap()?;
        Ok(())
    });
}

#[test]
fn the_output_of_a_child_is_awaited() {
    on_a_loop(|| async {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "echo one; echo two"])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = std::os::fd::OwnedFd::from(child.stdout.take().expect("it is piped"));
        let output = Registered::new(std::fs::File::from(output))?;
        assert_eq!(read_all(&output).await?, b"one\ntwo\n");
        assert!(child.wait()?.success());
        Ok(())
    });
}

#[test]
fn a_file_cannot_be_polled_and_says_so() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let file = Registered::new(std::fs::File::open("/proc/self/exe")?)?;
        let error = file.readable().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(here.registered_channels(), 0);
        Ok(())
    });
}

#[test]
fn into_inner_takes_it_out_of_the_selector_and_in_again() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let (reader, mut writer) = pipe()?;
        let reader = Registered::new(reader)?;
        assert!(
            reader.event_loop().is_none(),
            "registered when it has to wait"
        );
        assert!(
            timeout(Duration::from_millis(1), reader.readable())
                .await
                .is_err()
        );
        assert_eq!(reader.event_loop(), Some(here.clone()));
        let inner = reader.into_inner();
        assert_eq!(here.registered_channels(), 0);
        let again = Registered::new(inner)?;
        writer.write_all(b"x")?;
        again.readable().await?;
        Ok(())
    });
}

#[test]
fn a_duplicate_of_a_closed_descriptor_wakes_nobody() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let (reader, mut writer) = pipe()?;
        let duplicate = reader.try_clone()?;
        let reader = Registered::new(reader)?;
        assert!(
            timeout(Duration::from_millis(1), reader.readable())
                .await
                .is_err()
        );
        drop(reader); // out of the selector, although the duplicate keeps the pipe open
        assert_eq!(here.registered_channels(), 0);
        let (other, _writer) = pipe()?; // likely the same number
        let other = Registered::new(other)?;
        let waiting = timeout(Duration::from_millis(20), other.readable());
        writer.write_all(b"for the duplicate only")?;
        assert!(waiting.await.is_err(), "woken by somebody else's bytes");
        drop(duplicate);
        Ok(())
    });
}

#[test]
fn an_error_other_than_would_block_leaves_the_readiness() {
    on_a_loop(|| async {
        let (reader, mut writer) = pipe()?;
        let reader = Registered::new(reader)?;
        writer.write_all(b"x")?;
        reader.readable().await?;
        let failed = reader.try_io(Interest::READABLE, |_| {
            io::Result::<()>::Err(io::ErrorKind::Other.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::Other);
        reader.readable().await?; // still
        let blocked = reader.try_io(Interest::READABLE, |_| {
            io::Result::<()>::Err(io::ErrorKind::WouldBlock.into())
        });
        assert!(blocked.is_err());
        // Cleared: without news it is not tried again.
        let tried = reader.try_io(Interest::READABLE, |_| Ok(()));
        assert_eq!(tried.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        Ok(())
    });
}

#[test]
fn what_was_registered_with_a_loop_that_ended_says_so_elsewhere() {
    within(|| {
        let first = EventLoopGroup::new(1).unwrap();
        let (reader, mut writer) = pipe().unwrap();
        let registered = block_on(first.spawn(async move {
            let reader = Registered::new(reader).unwrap();
            let late = timeout(Duration::from_millis(1), reader.readable()).await;
            assert!(late.is_err());
            reader
        }))
        .unwrap();
        let report = first.shutdown_now().wait();
        assert_eq!(report.channels_closed(), 1);
        let error = block_on(registered.readable()).unwrap_err();
        assert!(error.to_string().contains("ended"), "{error}");
        // It can be moved to a loop that goes on.
        let second = EventLoopGroup::new(1).unwrap();
        let home = second.next().clone();
        writer.write_all(b"x").unwrap();
        block_on(second.spawn(async move {
            let mut registered = registered;
            registered.migrate_to(&home).await.unwrap();
            registered.readable().await.unwrap();
        }))
        .unwrap();
    });
}

#[test]
fn every_socket_lends_its_descriptor() {
    use loopgroup::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsFd, AsRawFd};

    within(|| {
        loopgroup::run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let stream = TcpStream::connect(listener.local_addr()?).await?;
            let udp = UdpSocket::bind("127.0.0.1:0").await?;
            // An option that has no method here, through a crate that has one.
            socket2::SockRef::from(&stream).set_reuse_address(true)?;
            assert!(socket2::SockRef::from(&stream).reuse_address()?);
            let numbers = [listener.as_raw_fd(), stream.as_raw_fd(), udp.as_raw_fd()];
            assert_eq!(numbers[1], stream.as_fd().as_raw_fd());
            let registered = Registered::new(stream.into_std())?;
            assert_eq!(registered.as_raw_fd(), numbers[1]);
            std::io::Result::Ok(())
        })
        .unwrap()
        .unwrap();
    });
}

/// The example of `Registered`: as much as fits, in as many pieces as it comes.
async fn read_whole(
    from: &Registered<std::os::unix::net::UnixStream>,
    text: &mut [u8],
) -> io::Result<()> {
    let mut len = 0;
    while len < text.len() {
        from.readable().await?;
        match from.try_io(Interest::READABLE, |mut from| from.read(&mut text[len..])) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[test]
fn a_message_that_comes_in_pieces_is_whole_in_the_end() {
    within(|| {
        loopgroup::run(async {
            let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
            let ours = Registered::new(ours)?;
            let mut text = [0; 5];
            let mut reading = Box::pin(read_whole(&ours, &mut text));
            for piece in [&b"h"[..], b"el", b"l"] {
                theirs.write_all(piece)?;
                // Read, and waited again, before the next one comes.
                let late = timeout(Duration::from_millis(20), &mut reading).await;
                assert!(late.is_err());
            }
            theirs.write_all(b"o")?;
            reading.await?;
            assert_eq!(&text, b"hello");
            std::io::Result::Ok(())
        })
        .unwrap()
        .unwrap();
    });
}

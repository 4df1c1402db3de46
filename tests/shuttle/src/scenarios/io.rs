//! Real sockets, whose selectors are polled without waiting.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use loopgroup::EventLoopGroup;
use loopgroup::io::{Interest, Registered};
use shuttle_primitives::thread;

use super::NEVER;
use crate::ledger::{End, Ledger};

/// A socket migrates from a loop that ends to one that keeps running, while its peer writes: the byte is
/// read, whenever it arrives.
pub fn migrate_against_close() {
    let ledger = Ledger::default();
    let group = ledger.build(EventLoopGroup::builder().loops(2));
    let (one, mut other) = UnixStream::pair().unwrap();
    let socket = Arc::new(Registered::new(one).unwrap());
    let (first, second) = (group.loops()[0].clone(), group.loops()[1].clone());
    let watching = Arc::clone(&socket);
    let watcher = ledger.spawn_on(&first, async move {
        // Resolves when the socket is readable, or with an error when the loop ends.
        let _ = watching.readable().await;
    });
    let closer = {
        let first = first.clone();
        thread::spawn(move || first.shutdown_now().wait())
    };
    let writer = thread::spawn(move || {
        other.write_all(b"x").unwrap();
        other
    });
    let end = watcher.wait();
    assert!(!matches!(end, End::Panicked), "{end:?}");
    let mut socket = Arc::into_inner(socket).expect("the watcher is gone");
    let reader = ledger.spawn_on(&second.clone(), async move {
        socket.migrate_to(&second).await.unwrap();
        loop {
            socket.readable().await.unwrap();
            let mut byte = [0];
            match socket.try_io(Interest::READABLE, |mut stream| stream.read(&mut byte)) {
                Ok(1) => break assert_eq!(byte, *b"x"),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                unexpected => panic!("{unexpected:?}"),
            }
        }
    });
    assert_eq!(reader.wait(), End::Completed);
    drop(writer.join().unwrap());
    closer.join().unwrap();
    ledger.check(&group.drain(NEVER).wait());
}

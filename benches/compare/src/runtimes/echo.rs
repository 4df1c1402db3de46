//! What the echo servers have in common: where they listen, and the handler.
//!
//! - A handler reads into a buffer of its own, of the size it is told, and writes back what it got.
//! - Sockets are `TCP_NODELAY`. An error ends the connection: clients may reset it.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use futures::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A listener on a port that the system chooses, not blocking.
pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    // As many as may wait with the runtimes that bind for themselves: a client that comes in vain tries again
    // only after a second.
    rustix::net::listen(&listener, 1024).expect("it listens already");
    listener
        .set_nonblocking(true)
        .expect("a socket can be told not to block");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Computes for so long.
pub(crate) fn spend(work: Duration) {
    if !work.is_zero() {
        let start = Instant::now();
        while start.elapsed() < work {
            std::hint::spin_loop();
        }
    }
}

/// Echoes until the peer is done; for runtimes with the traits of the futures crate.
pub(crate) async fn echo(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    buffer: usize,
    work: Duration,
) {
    let mut buffer = vec![0; buffer];
    while let Ok(len @ 1..) = stream.read(&mut buffer).await {
        spend(work);
        if stream.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}

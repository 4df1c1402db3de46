//! quinn's runtime on loopgroup: its tasks on our loops, its timers on theirs, its socket in our selector.
//!
//! - The endpoint's task has one home and every connection's task has one; the socket belongs to
//!   the endpoint's.
//! - After a shutdown of the group quinn's tasks are dropped, and its futures end with an error.

mod socket;

use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use loopgroup::{EventLoopGroup, time};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime};

use crate::quic::socket::Socket;

/// A group for quinn to run on: `Endpoint::new(.., Arc::new(LoopRuntime(group)))`.
#[derive(Clone, Debug)]
pub struct LoopRuntime(pub EventLoopGroup);

impl Runtime for LoopRuntime {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(time::sleep_until(deadline)))
    }

    #[track_caller]
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        drop(self.0.spawn(future)); // refused after a shutdown: quinn sees its task go
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(Socket::new(socket)?))
    }

    fn now(&self) -> Instant {
        time::now()
    }
}

#[derive(Debug)]
struct Timer(time::Sleep);

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.0.reset(deadline);
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

//! quinn's socket: what `quinn-udp` does, in our selector.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use loopgroup::io::{Interest, Registered};
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};

#[derive(Debug)]
pub(super) struct Socket {
    io: Registered<UdpSocket>,
    state: UdpSocketState,
}

impl Socket {
    pub(super) fn new(socket: UdpSocket) -> io::Result<Socket> {
        let state = UdpSocketState::new((&socket).into())?;
        let io = Registered::new(socket)?;
        Ok(Socket { io, state })
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable {
            socket: self,
            wait: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let send = |socket: &UdpSocket| self.state.send(socket.into(), transmit);
        self.io.try_io(Interest::WRITABLE, send)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_readable(cx))?;
            let receive = |socket: &UdpSocket| self.state.recv(socket.into(), bufs, meta);
            match self.io.try_io(Interest::READABLE, receive) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Room to send, for one of many connections that wait for it.
struct Writable {
    socket: Arc<Socket>,
    wait: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = Arc::clone(&self.socket);
        let wait = self
            .wait
            .get_or_insert_with(|| Box::pin(async move { socket.io.writable().await }));
        let room = ready!(wait.as_mut().poll(cx));
        self.wait = None;
        Poll::Ready(room)
    }
}

impl fmt::Debug for Writable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writable").field(&self.socket).finish()
    }
}

//! HTTP/1 connections that move to another loop while they are idle.
//!
//! - hyper gives an idle connection back: told to end gracefully, it writes nothing, and returns the stream
//!   and the bytes that it has read ahead. On the other loop hyper serves the stream anew, and reads these
//!   bytes first. So no request is lost, and none is answered twice.
//! - A connection that is not idle must not be told: its response would say `connection: close`. Idle is one
//!   whose last response is written and whose last request is read completely. The first is known from
//!   [`HttpActivity`]; the second, for a request with a body, from hyper: while the stream is
//!   [held](HeldStream), it tries to read before it is told to end, and does not after.
//! - Before the first request on a loop, a connection moves only if no byte of it has been read there.
//! - Upgraded connections are no longer hyper's, and HTTP/2 connections cannot be given back: both stay.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::compat::hyper::activity::{HttpActivity, HttpPhase};
use crate::net::{Mover, TcpStream};
use crate::sync::Arc;

/// Whether a connection can move.
pub(super) trait Mobility {
    /// Whether it can move at all.
    fn can_move(&self) -> bool;

    /// Whether it is asked to move.
    fn is_asked(&self) -> bool;

    /// Whether it may leave in this phase.
    fn may_leave(&self, phase: HttpPhase, activity: &HttpActivity) -> bool;

    /// Takes the request; `false` if there is nowhere to move to.
    fn accept(&mut self) -> bool;

    /// From now on it does not move.
    fn stay(&mut self);
}

/// The mobility of connections that never move.
#[derive(Debug)]
pub(super) struct Fixed;

impl Mobility for Fixed {
    fn can_move(&self) -> bool {
        false
    }

    fn is_asked(&self) -> bool {
        false
    }

    fn may_leave(&self, _phase: HttpPhase, _activity: &HttpActivity) -> bool {
        false
    }

    fn accept(&mut self) -> bool {
        false
    }

    fn stay(&mut self) {}
}

/// The mobility of connections that move while they are idle.
#[derive(Debug)]
pub(super) struct Moving {
    /// `None` once it stays.
    mover: Option<Mover>,
    /// The number of requests before this loop.
    begun_before: u64,
}

impl Moving {
    pub(super) fn new(mover: Mover, activity: &HttpActivity) -> Moving {
        Moving {
            mover: Some(mover),
            begun_before: activity.begun(),
        }
    }

    /// Returns the mover if the connection leaves.
    pub(super) fn take_leaving(&mut self) -> Option<Mover> {
        self.mover.take_if(|mover| mover.is_leaving())
    }
}

impl Mobility for Moving {
    fn can_move(&self) -> bool {
        self.mover.is_some()
    }

    fn is_asked(&self) -> bool {
        self.mover.as_ref().is_some_and(Mover::is_asked)
    }

    fn may_leave(&self, phase: HttpPhase, activity: &HttpActivity) -> bool {
        if activity.is_last() {
            return false;
        }
        match phase {
            HttpPhase::New | HttpPhase::Idle => true,
            // The bytes are of a head, if there was a request here and it had no body to which they may
            // belong.
            HttpPhase::Head => activity.begun() > self.begun_before && !activity.had_body(),
            HttpPhase::Busy | HttpPhase::Unread => false,
        }
    }

    fn accept(&mut self) -> bool {
        self.mover.as_mut().is_some_and(Mover::accept)
    }

    fn stay(&mut self) {
        self.mover = None;
    }
}

/// What moves along with the stream of a connection.
#[derive(Debug)]
pub(super) struct Luggage {
    /// Read, and not processed.
    pub(super) ahead: Vec<u8>,
    pub(super) activity: Arc<HttpActivity>,
    /// Since when the connection is in its phase.
    pub(super) seen: Option<(HttpPhase, u64, Instant)>,
    /// Whether it has been found to speak HTTP/1.
    pub(super) is_http1: bool,
}

/// A stream that can be held: then reads wait, which is noted, and it is not shut down.
#[derive(Debug)]
pub(super) struct HeldStream {
    pub(super) stream: TcpStream,
    pub(super) activity: Arc<HttpActivity>,
}

impl Read for HeldStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.activity.is_held() {
            self.activity.note_try();
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for HeldStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write(Pin::new(&mut self.stream), cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write_vectored(Pin::new(&mut self.stream), cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        Write::is_write_vectored(&self.stream)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.stream), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.activity.is_held() {
            return Poll::Ready(Ok(()));
        }
        Write::poll_shutdown(Pin::new(&mut self.stream), cx)
    }
}

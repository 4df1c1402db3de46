//! The settings of HTTP connections.

use std::io;
use std::time::Duration;

use hyper::server::conn::{http1, http2};

use crate::compat::hyper::rt::{LocalExecutor, Timer};

/// What a connection has to know of [`Http`](super::Http).
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) http1: http1::Builder,
    pub(super) http2: http2::Builder<LocalExecutor>,
    pub(super) protocols: Protocols,
    /// `None` is no limit.
    pub(super) header_timeout: Option<Duration>,
    /// `None` is no limit.
    pub(super) idle_timeout: Option<Duration>,
    /// `None` is no limit.
    pub(super) request_timeout: Option<Duration>,
    /// How long a client may leave a response unread; `None` is no limit.
    pub(super) write_timeout: Option<Duration>,
}

/// The protocols that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocols {
    Both,
    Http1,
    Http2,
}

impl Settings {
    pub(super) fn new() -> Settings {
        let mut http1 = http1::Builder::new();
        // hyper's own timeout also counts while a connection is idle; ours tells the two apart.
        http1.timer(Timer).header_read_timeout(None);
        let mut http2 = http2::Builder::new(LocalExecutor);
        http2.timer(Timer);
        Settings {
            http1,
            http2,
            protocols: Protocols::Both,
            header_timeout: Some(Duration::from_secs(30)),
            idle_timeout: Some(Duration::from_secs(75)),
            request_timeout: None,
            write_timeout: None,
        }
    }

    /// Rejects protocols whose connections cannot move.
    pub(super) fn check_movable(&self) -> io::Result<()> {
        if self.protocols == Protocols::Http2 {
            let text = "HTTP/2 connections cannot move: omit http2_only, or movable and rebalance";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }

    /// Rejects limits that no connection could keep.
    pub(super) fn check(&self) -> io::Result<()> {
        for (name, limit) in [
            ("header_timeout", self.header_timeout),
            ("idle_timeout", self.idle_timeout),
            ("request_timeout", self.request_timeout),
        ] {
            if limit == Some(Duration::ZERO) {
                let what = match name {
                    "request_timeout" => "answer no request",
                    _ => "end every connection at once",
                };
                let text = format!("{name}(0) would {what}: pass None for no limit");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        }
        Ok(())
    }
}

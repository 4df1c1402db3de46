//! The paths between hosts: how long packets take, and the faults on the way.
//!
//! - A path is directed. Only a path that differs from the default one takes any memory.
//! - A cut path loses what is under way, and what is sent while it is cut.
//! - A held or clogged path keeps what arrives, in order, and hands all of it over at once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::host::HostId;
use super::packet::Packet;

/// What a path between two hosts is like.
///
/// # Examples
///
/// ```
/// use loopgroup::testing::sim::{Link, Simulation};
/// use std::time::Duration;
///
/// let across_the_ocean = Link::default()
///     .latency(Duration::from_millis(80))
///     .jitter(Duration::from_millis(5))
///     .loss(0.01)
///     .bandwidth(1_000_000);
/// let sim = Simulation::builder().link(across_the_ocean).build();
/// # drop(sim);
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// How long a packet takes at least.
    pub latency: Duration,
    /// Each packet takes up to so much longer.
    pub jitter: Duration,
    /// And longer by an exponentially distributed time, whose mean this is: most packets by less, few by much
    /// more.
    pub tail: Duration,
    /// The probability that a packet is lost: a datagram for good, a segment of a stream until it is
    /// sent again.
    pub loss: f64,
    /// The probability that a datagram arrives twice.
    pub duplicate: f64,
    /// The probability that a datagram takes so long that others overtake it.
    pub reorder: f64,
    /// Bytes per second, for each connection; without limit if `None`.
    pub bandwidth: Option<u64>,
    /// The bytes of each of the two buffers, the sender's and the receiver's, of a new connection.
    pub buffer: usize,
}

impl Link {
    /// Sets how long a packet takes at least; 1 ms if this is not called.
    pub fn latency(mut self, latency: Duration) -> Link {
        self.latency = latency;
        self
    }

    /// Sets by how much longer a packet may take.
    pub fn jitter(mut self, jitter: Duration) -> Link {
        self.jitter = jitter;
        self
    }

    /// Sets the mean of an exponentially distributed time by which a packet takes longer still: most take
    /// little longer, and few very much.
    pub fn tail(mut self, mean: Duration) -> Link {
        self.tail = mean;
        self
    }

    /// Sets the share of packets that is lost, between 0 and 1. What is lost of a stream is sent again, after
    /// 200 ms and more.
    pub fn loss(mut self, share: f64) -> Link {
        self.loss = share.clamp(0.0, 1.0);
        self
    }

    /// Sets the share of datagrams that arrives twice, between 0 and 1.
    pub fn duplicate(mut self, share: f64) -> Link {
        self.duplicate = share.clamp(0.0, 1.0);
        self
    }

    /// Sets the share of datagrams that others overtake, between 0 and 1.
    pub fn reorder(mut self, share: f64) -> Link {
        self.reorder = share.clamp(0.0, 1.0);
        self
    }

    /// Sets the bytes per second that each connection has; without limit if this is not called.
    pub fn bandwidth(mut self, bytes_per_second: u64) -> Link {
        self.bandwidth = Some(bytes_per_second);
        self
    }

    /// Sets the size of each buffer of a new connection, at least 1 byte; 64 KiB if this is not called.
    pub fn buffer(mut self, bytes: usize) -> Link {
        self.buffer = bytes.max(1);
        self
    }
}

impl Default for Link {
    fn default() -> Link {
        Link {
            latency: Duration::from_millis(1),
            jitter: Duration::ZERO,
            tail: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            bandwidth: None,
            buffer: 64 * 1024,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Links {
    default: Link,
    paths: BTreeMap<(HostId, HostId), Path>,
}

/// A path that differs from the default one.
#[derive(Debug, Default)]
pub(super) struct Path {
    pub(super) link: Option<Link>,
    pub(super) cut: bool,
    /// How often it was cut.
    pub(super) cuts: u32,
    pub(super) held: bool,
    /// Nothing arrives before then.
    pub(super) clogged: Duration,
    /// What has arrived at the end of a path that lets nothing out.
    pub(super) waiting: VecDeque<Box<Packet>>,
}

impl Path {
    pub(super) fn is_blocked(&self, now: Duration) -> bool {
        self.held || now < self.clogged
    }
}

impl Links {
    pub(super) fn set_default(&mut self, link: Link) {
        self.default = link;
    }

    pub(super) fn get(&self, from: HostId, to: HostId) -> &Link {
        let path = self.path(from, to);
        path.and_then(|path| path.link.as_ref())
            .unwrap_or(&self.default)
    }

    pub(super) fn path(&self, from: HostId, to: HostId) -> Option<&Path> {
        self.paths.get(&(from, to))
    }

    pub(super) fn path_mut(&mut self, from: HostId, to: HostId) -> Option<&mut Path> {
        self.paths.get_mut(&(from, to))
    }

    /// The path, which from now on differs from the default one.
    pub(super) fn own_path(&mut self, from: HostId, to: HostId) -> &mut Path {
        self.paths.entry((from, to)).or_default()
    }

    /// The ends of all paths that differ from the default one.
    pub(super) fn own_paths(&self) -> Vec<(HostId, HostId)> {
        self.paths.keys().copied().collect()
    }
}

//! The configuration that the loops of a group share: validated by the builder, then immutable.

use std::io;
use std::time::Duration;

use crate::clock::Clock;
use crate::random::Seeds;
use crate::sim::SimulatedHost;
use crate::sync::Arc;

/// How a loop waits when it has nothing to do.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, WaitStrategy};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .wait_strategy(WaitStrategy::SpinThenPark(Duration::from_micros(50)))
///     .build()?;
/// assert_eq!(group.block_on(group.spawn(async { 7 })).unwrap(), 7);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Block at once: no CPU while idle. The default.
    #[default]
    Park,
    /// Look for work without blocking for this long, then block; not zero. A submission from another
    /// thread needs no system call while the loop spins.
    ///
    /// While spins of 20 µs or more end without work, the loop skips the spin before more and more of its
    /// waits, up to 63 in a row; a spin that finds work ends that. So two loops that share a core, where each
    /// would spin while the other one waits for the core, are as fast as loops that park, and a loop whose
    /// work is rare uses little more CPU time than one that parks. Shorter spins are never skipped.
    SpinThenPark(Duration),
    /// Never block: each loop uses one core all the time.
    Busy,
}

/// When a loop that is shutting down closes its channels.
///
/// # Examples
///
/// ```
/// use loopgroup::{CloseChannels, EventLoopGroup, net::UnixStream};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .close_channels(CloseChannels::Immediately)
///     .build()?;
/// let (tx, rx) = std::sync::mpsc::channel();
/// let reader = group.spawn(async move {
///     let (one, _other) = UnixStream::pair()?; // never written to
///     one.writable().await?;
///     tx.send(()).unwrap();
///     one.readable().await
/// });
/// rx.recv().unwrap();
/// group.drain(Duration::from_secs(5)).wait();
/// assert!(loopgroup::block_on(reader).unwrap().is_err()); // its socket was closed while it waited
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseChannels {
    /// At the end of the shutdown: handlers can finish talking to their peers. The default.
    #[default]
    AtEnd,
    /// At the start of the shutdown, as Netty does.
    Immediately,
}

/// The settings of a group, shared by its loops.
pub(crate) struct Config {
    /// One name per loop.
    pub(crate) thread_names: Vec<String>,
    pub(crate) thread_stack_size: Option<usize>,
    pub(crate) pin_thread: Option<Box<PinThread>>,
    pub(crate) wait_strategy: WaitStrategy,
    pub(crate) io_ratio: u32,
    /// Whether polls are timed.
    pub(crate) measure_time: bool,
    /// Polls of this length or longer are logged through `tracing`.
    pub(crate) slow_poll: Option<Duration>,
    pub(crate) close_channels: CloseChannels,
    pub(crate) clock: Clock,
    /// The simulated host that the loops are on.
    pub(crate) simulated: Option<Arc<SimulatedHost>>,
    /// How long a loop that is not needed keeps its thread; only in an elastic group.
    pub(crate) patience: Option<Duration>,
    /// For what is random, such as the jitter of a repeated closure.
    pub(crate) seeds: Seeds,
}

/// Pins the calling thread to the core of the loop with this index.
pub(crate) type PinThread = dyn Fn(usize) -> io::Result<()> + Send + Sync;

/// The error for a setting of a builder that makes no sense.
pub(crate) fn invalid_setting(setting: &str, text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{setting}: {text}"))
}

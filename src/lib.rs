//! Event loop groups for async Rust, after Netty and SwiftNIO.
//!
//! A **group** owns N **loops**. A loop is one thread that runs tasks and waits in one selector (epoll or
//! kqueue). A task that starts on a loop stays on that loop for its whole life: every wake queues it
//! there, and every poll and its drop happen there. So there is no work stealing, handlers on one loop
//! need no locks among themselves, and futures need not be `Send`.
//!
//! ```text
//!            EventLoopGroup ── next(): round-robin, least loaded, custom
//!            ┌─────────────┬─────────────┐
//!         loop 0         loop 1        loop 2        one thread each
//!        ┌───────┐      ┌───────┐     ┌───────┐
//!   ────▶│ inbox │      │ inbox │◀────│       │      from other threads: one lock,
//!        │ queue │      │ queue │     │ queue │      at most one wake-up per park
//!        │ tasks │      │ tasks │     │ tasks │      on the loop itself: a plain push
//!        │ mio   │      │ mio   │     │ mio   │      where the loop waits
//!        └───────┘      └───────┘     └───────┘
//!            └─────────────┴─────────────┘
//!            TerminationFuture: one report over all loops
//! ```
//!
//! # A first look
//!
//! ```
//! use loopgroup::EventLoopGroup;
//! use std::time::Duration;
//!
//! let group = EventLoopGroup::new(2)?;
//!
//! // A Send future runs on the next loop, round-robin.
//! let sum = group.spawn(async { (1..=10).sum::<u32>() });
//!
//! // A future that is not Send is created on its loop.
//! let text = group.spawn_with(|| {
//!     let words = std::rc::Rc::new(vec!["one", "home"]);
//!     async move { words.join(" ") }
//! });
//!
//! assert_eq!(group.block_on(sum).unwrap(), 55);
//! assert_eq!(group.block_on(text).unwrap(), "one home");
//!
//! let report = group.drain(Duration::from_secs(5)).wait();
//! assert!(report.is_clean());
//! assert_eq!(report.accepted(), report.completed());
//! # std::io::Result::Ok(())
//! ```
//!
//! # A first server
//!
//! One loop accepts; each connection is assigned to the next loop and stays there. The factory passed to
//! `serve_with` runs once per loop, so the handlers of a loop share values that are not `Send`. A
//! step-by-step version is in [`guide::first_server`].
//!
//! ```no_run
//! use loopgroup::{EventLoopGroup, net::Server, signal};
//! use std::{cell::Cell, io, rc::Rc, time::Duration};
//!
//! fn main() -> io::Result<()> {
//!     let group = EventLoopGroup::builder().build()?; // a loop per core
//!     let server = Server::new("127.0.0.1:7777")?
//!         .workers(&group)
//!         .serve_with(|ev| {
//!             let (index, served) = (ev.index(), Rc::new(Cell::new(0))); // of this loop: no lock
//!             move |stream, peer| {
//!                 served.set(served.get() + 1);
//!                 println!("{peer} is number {} on loop {index}", served.get());
//!                 async move { futures::io::copy(&stream, &mut &stream).await.map(drop) }
//!             }
//!         })?;
//!     println!("listening on {}", server.local_addr());
//!
//!     group.block_on(signal::shutdown())?; // Ctrl-C or SIGTERM; feature "signal"
//!     println!("{}", group.drain(Duration::from_secs(5)).wait()); // waits for the handlers
//!     Ok(())
//! }
//! ```
//!
//! At the shutdown the listener closes, and the reads of open connections end once they have returned what
//! has arrived. So a handler that reads until the end of its stream returns, and the drain ends at once.
//!
//! # Feature flags
//!
//! None is on by default. The traits of `futures` are always implemented.
//!
//! | feature | adds |
//! |---|---|
//! | `signal` | the module `signal`: Ctrl-C, SIGTERM and any other signal as futures and streams |
//! | `tokio-io` | tokio's `AsyncRead` and `AsyncWrite` on streams: tokio-rustls, h2, tokio-util, ... |
//! | `hyper` | HTTP servers, hyper's traits on streams, executors, a timer: hyper, axum; see [`compat`] |
//! | `hyper-client` | hyper-util's pooled client over the crate's sockets |
//! | `inspect` | the module `inspect`: a page that shows loops, tasks, stalls and servers while they run |
//! | `tracing` | events for loops, panics, rejections, slow polls and the phases of a shutdown |
//! | `affinity` | `Builder::pin_cores`: a core for each loop (Linux) |
//! | `peer-cred` | `UnixStream::peer_cred`: the process at the other end (Linux) |
//! | `precise-timers` | [`Builder::precise_timers`] on Linux; elsewhere it needs no feature |
//!
//! The minimum Rust version is 1.85. The crate supports Unix, and is tested on Linux.
//!
//! # The guide
//!
//! | page | topics |
//! |---|---|
//! | [The model](guide::model) | groups, loops, tasks and their home loops; a turn; what is promised |
//! | [A first server](guide::first_server) | from `cargo new` to a chat with a clean shutdown |
//! | [Topologies](guide::topologies) | how many groups and loops to use, and for what |
//! | [Sockets](guide::sockets) | everything that a socket can do, and the rules |
//! | [Settings](guide::settings) | every setting of a group |
//! | [Shutdown](guide::shutdown) | graceful, drain, now; the order of events; the report; recipes |
//! | [Cancel safety](guide::cancel_safety) | what dropping, aborting and cancelling do, for every async function |
//! | [Channels and locks](guide::channels) | those of other crates between loops, and what they cost |
//! | [Other crates](guide::other_crates) | hyper, axum, TLS, WebSockets, and crates that need tokio's runtime |
//! | [Testing](guide::testing) | virtual time, and reproducible orders of events |
//! | [Running it](guide::running_it) | `main`, threads, pinning, signals, pauses, names, logs, limits |
//! | [Look at it](guide::look_at_it) | metrics, Prometheus, stalls, tasks, dumps, traces, the inspector |
//! | [From Netty](guide::from_netty), [from tokio](guide::from_tokio) | names, code side by side, differences |
//! | [When not to use it](guide::when_not_to_use_it) | what other runtimes do better |
//!
//! # Guarantees
//!
//! - **Affinity.** A future is polled and dropped on its home loop only, under every race.
//! - **Accounting.** Every submission is accepted or rejected; a rejected value is handed back or its
//!   handle reports the rejection. Every accepted task completes, panics or is cancelled; its handle
//!   resolves; the [`TerminationReport`] has the counts, and they add up.
//! - **Bounded shutdown.** The timeout holds even if tasks keep waking themselves (but not against
//!   a poll that never returns).
//! - **Contained panics.** A panic in a task, destructor, closure, hook, chooser or waker ends no loop
//!   (unless the program is built with `panic = "abort"`).
//! - **No unsafe code** in this crate: it is forbidden.
//!
//! # Where things are
//!
//! | to | use |
//! |---|---|
//! | create a group | [`EventLoopGroup::new`], [`EventLoopGroup::builder`] |
//! | spawn on any loop | [`EventLoopGroup::spawn`], [`EventLoopGroup::spawn_with`], [`spawn`] |
//! | spawn on one loop | [`EventLoopGroup::spawn_on`], [`EventLoop::spawn`], [`spawn_local`] |
//! | name a task, know its id | [`EventLoopGroup::task`], [`TaskBuilder`], [`task_id`] |
//! | abort a task, wait for many | [`JoinHandle::abort`], [`AbortHandle`], [`JoinSet`] |
//! | run a closure on a loop | [`EventLoop::execute`], [`EventLoop::submit`], [`EventLoop::dispatch`] |
//! | keep a `!Send` value on a loop | [`EventLoop::bind`], [`LoopBound`] |
//! | keep a `!Send` value on every loop | [`EventLoopGroup::per_loop`], [`PerLoop`] |
//! | turn the current thread into a loop | [`run`] |
//! | drive a loop from a GUI, a game or another event loop | [`ManualLoop`] |
//! | run a future with a group, and drain it | [`scope`], [`Builder::scope`] |
//! | wait on an ordinary thread | [`block_on`], [`EventLoopGroup::block_on`] |
//! | serve TCP or Unix sockets with a boss and workers | [`net::Server`] |
//! | serve HTTP | `compat::hyper::serve`, with the feature `hyper` |
//! | sockets and pipes | [`net`], [`io::Registered`] |
//! | proxy a connection | [`io::copy_bidirectional`] |
//! | wait for Ctrl-C, SIGTERM or any other signal | `signal`, with the feature `signal` |
//! | sleep, tick, time out | [`time`] |
//! | run a closure later | [`EventLoop::schedule`], [`EventLoop::schedule_local`] |
//! | run a closure again and again | [`EventLoop::schedule_at_fixed_rate`], [`EventLoop::repeat`] |
//! | observe the loops | [`EventLoopGroup::metrics`], [`EventLoop::metrics`] |
//! | look at the loops in a browser | `inspect::Inspector`, with the feature `inspect` |
//! | learn which task blocks its loop | [`Builder::watchdog`], [`Builder::on_stall`] |
//! | see what the loops did last | [`Builder::flight_recorder`], [`EventLoopGroup::trace`] |
//! | list the tasks, and what they wait for | [`Builder::track_tasks`], [`EventLoopGroup::tasks`], [`EventLoopGroup::dump`], [`label()`] |
//! | test without real time, without sockets | [`testing`], [`io::duplex`] |
//! | end a task when its loop shuts down | [`shutdown_requested`] |
//! | shut down | [`EventLoopGroup::drain`], [`shutdown_gracefully`], [`shutdown_now`] |
//! | do blocking work | [`blocking`] |
//! | wake up for a timer within microseconds | [`Builder::precise_timers`] |
//! | pin each loop to a core | `Builder::pin_cores`, with the feature `affinity` |
//! | use hyper, rustls, tungstenite, ... | [`compat`] |
//!
//! [`shutdown_gracefully`]: EventLoopGroup::shutdown_gracefully
//! [`shutdown_now`]: EventLoopGroup::shutdown_now
//!
//! # Things to know
//!
//! - Dropping a [`JoinHandle`] detaches its task.
//! - Dropping the last [`EventLoopGroup`] handle cancels the tasks that are waiting: to let them finish,
//!   wait for [`drain`](EventLoopGroup::drain).
//! - The first shutdown request sets the terms; only [`shutdown_now`] changes them.
//! - A detached task that is never woken again lives until its loop ends.
//! - When `main` returns, the process ends, even if loops run: wait for a [`TerminationFuture`] first.
//! - After `fork` the child has no loop threads and must not use the group; all descriptors are
//!   close-on-exec.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc(test(attr(deny(warnings), allow(unused_must_use))))]

// The README's example is compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod block_on;
pub mod blocking;
mod builder;
mod chooser;
mod clock;
pub mod compat;
#[cfg(doctest)]
mod compile_fail;
mod config;
mod dump;
mod elastic;
mod endpoint;
mod error;
mod event_loop;
mod group;
pub mod guide;
#[cfg(feature = "inspect")]
#[cfg_attr(docsrs, doc(cfg(feature = "inspect")))]
pub mod inspect;
pub mod io;
mod join_set;
mod label;
mod left_tasks;
mod limit_timer;
mod manual_loop;
mod metrics;
pub mod net;
mod noted;
mod panic;
mod park;
mod per_loop;
#[cfg(feature = "affinity")]
mod pinning;
mod random;
mod reactor;
mod recorder;
mod reject_policy;
mod report;
mod run;
mod shutdown_requested;
#[cfg(feature = "signal")]
#[cfg_attr(docsrs, doc(cfg(feature = "signal")))]
pub mod signal;
mod sim;
mod site;
mod spawn;
mod sync;
mod task;
mod task_builder;
mod task_id;
mod task_info;
mod termination;
pub mod testing;
mod this_thread;
pub mod time;
mod trace;
mod unwind;
mod unwind_safety;
mod wait;
mod waiters;
mod watchdog;
mod yield_now;

pub use block_on::block_on;
pub use builder::Builder;
pub use chooser::least_busy::LeastBusy;
pub use chooser::{Chooser, GroupView, LeastLoaded, PreferCurrent, RoundRobin};
pub use config::{CloseChannels, WaitStrategy};
pub use dump::{Dump, LoopDump, Running, ShutdownDump};
pub use elastic::Elastic;
pub use endpoint::Endpoint;
pub use error::{JoinError, RejectReason, Rejected};
pub use event_loop::EventLoop;
pub use event_loop::bound::LoopBound;
pub use event_loop::hooks::HookId;
pub use event_loop::loop_thread::LoopThread;
pub use event_loop::repeat::Repeat;
pub use event_loop::scheduled::Scheduled;
pub use event_loop::state::LoopState;
pub use event_loop::tracker::{TaskState, WakeSource};
pub use group::{EventLoopGroup, scope};
pub use join_set::JoinSet;
pub use label::{Labelled, label};
pub use left_tasks::{LeftTasks, WaitsFor};
pub use manual_loop::{ManualLoop, Turned};
pub use metrics::histogram::Histogram;
pub use metrics::prometheus::Prometheus;
pub use metrics::{GroupMetrics, LoopMetrics};
pub use panic::{PanicSite, TaskPanic};
pub use per_loop::{MapAll, PerLoop, PerLoopError};
#[cfg(feature = "affinity")]
#[cfg_attr(docsrs, doc(cfg(feature = "affinity")))]
pub use pinning::CorePinning;
pub use recorder::trace::Trace;
pub use reject_policy::{RejectPolicy, RejectVerdict};
pub use report::{EndCause, LoopReport, TerminationReport};
pub use run::run;
pub use shutdown_requested::{ShutdownRequested, shutdown_requested};
pub use spawn::{spawn, spawn_detached, spawn_local, try_spawn, try_spawn_local};
pub use task::abort::AbortHandle;
pub use task::join::{CancelFuture, JoinHandle};
pub use task_builder::{TaskBuilder, task, task_id};
pub use task_id::TaskId;
pub use task_info::{LastWake, TaskInfo};
pub use termination::TerminationFuture;
pub use wait::Wait;
pub use watchdog::stall::{Stall, StallKind};
pub use yield_now::{YieldNow, yield_now};

/// The old name of [`LoopState`].
#[deprecated(since = "0.1.0", note = "renamed to `LoopState`")]
pub type State = LoopState;

/// The old name of [`EndCause`].
#[deprecated(since = "0.1.0", note = "renamed to `EndCause`")]
pub type Cause = EndCause;

/// The old name of [`RejectVerdict`].
#[deprecated(since = "0.1.0", note = "renamed to `RejectVerdict`")]
pub type Verdict = RejectVerdict;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "../fuzz/src/mod.rs"]
pub mod fuzzing;
#[cfg(all(loom, test))]
#[path = "../tests/loom/mod.rs"]
mod models;

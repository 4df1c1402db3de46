//! The guide: the model of event loops, and how to use them.
//!
//! The pages, in reading order:
//!
//! | page | topics |
//! |---|---|
//! | [`model`] | groups, loops, tasks and their home loops; a turn; guarantees |
//! | [`first_server`] | from `cargo new` to a chat server with a clean shutdown |
//! | [`topologies`] | how many groups and loops to use, and for what |
//! | [`sockets`] | all operations of sockets |
//! | [`settings`] | all settings of a group |
//! | [`shutdown`] | graceful, drain, now; the order of events; the report; recipes |
//! | [`cancel_safety`] | what dropping, aborting and cancelling do, for every async function |
//! | [`channels`] | other crates' channels and locks between loops, and what they cost |
//! | [`testing`] | virtual time, and reproducible orders of events |
//! | [`running_it`] | `main`, threads, pinning, metrics, logs, limits |
//! | [`from_netty`] | names, code side by side, differences |
//! | [`from_tokio`] | names, code side by side, differences |
//! | [`when_not_to_use_it`] | what other crates do better |
//!
//! This module contains only text; every example in it is compiled and run with the tests. A first one:
//!
//! ```
//! fn main() -> std::io::Result<()> {
//!     loopgroup::run(async {
//!         let answer = loopgroup::spawn_local(async { 6 * 7 }).await?;
//!         assert_eq!(answer, 42);
//!         Ok(())
//!     })?
//! }
//! ```

// The pages are Markdown files that link to each other as files, so that they can also be read on a
// code host. Markdown uses the first definition of a link: the definitions below, which link to
// modules, override those of the files.

/// Defines a page of the guide: its first line, its link definitions, its text, and the items it covers.
macro_rules! page {
    ($name:ident, $file:literal, $line:literal, $items:literal) => {
        #[doc = $line]
        ///
        /// [a first server]: crate::guide::first_server
        /// [channels]: crate::guide::channels
        /// [running it]: crate::guide::running_it
        /// [shutdown]: crate::guide::shutdown
        /// [testing]: crate::guide::testing
        /// [topologies]: crate::guide::topologies
        /// [when not to use it]: crate::guide::when_not_to_use_it
        ///
        #[doc = include_str!(concat!("../docs/guide/", $file))]
        ///
        /// ----
        ///
        #[doc = concat!("In the reference: ", $items, ".")]
        pub mod $name {}
    };
}

page!(
    model,
    "model.md",
    "Groups, loops, tasks and their home loops; a turn; guarantees.",
    "[`EventLoopGroup`](crate::EventLoopGroup), [`EventLoop`](crate::EventLoop), \
     [`JoinHandle`](crate::JoinHandle), [`run`](crate::run()), [`block_on`](crate::block_on()), \
     [`spawn`](crate::spawn), [`spawn_local`](crate::spawn_local), [`LoopBound`](crate::LoopBound), \
     [`Builder::io_ratio`](crate::Builder::io_ratio)"
);
page!(
    first_server,
    "first_server.md",
    "From `cargo new` to a chat server with a clean shutdown.",
    "[`Server`](crate::net::Server), [`ServerHandle`](crate::net::ServerHandle), \
     [`TcpStream`](crate::net::TcpStream), [`EventLoop::bind`](crate::EventLoop::bind), \
     [`shutdown_requested`](crate::shutdown_requested), \
     [`EventLoopGroup::drain`](crate::EventLoopGroup::drain)"
);
page!(
    topologies,
    "topologies.md",
    "How many groups and loops to use, and for what.",
    "[`Server`](crate::net::Server), [`Server::reuse_port`](crate::net::Server::reuse_port), \
     [`Builder::without_io`](crate::Builder::without_io), [`blocking`](crate::blocking), \
     [`PreferCurrent`](crate::PreferCurrent), [`LeastLoaded`](crate::LeastLoaded), \
     [`EventLoopGroup::loop_for`](crate::EventLoopGroup::loop_for), \
     [`EventLoopGroup::spawn_keyed`](crate::EventLoopGroup::spawn_keyed), \
     [`WaitStrategy`](crate::WaitStrategy)"
);
page!(
    sockets,
    "sockets.md",
    "All operations of sockets.",
    "[`net`](crate::net), [`TcpListener`](crate::net::TcpListener), [`TcpStream`](crate::net::TcpStream), \
     [`UnixStream`](crate::net::UnixStream), [`UdpSocket`](crate::net::UdpSocket), \
     [`UnixDatagram`](crate::net::UnixDatagram), [`Registered`](crate::io::Registered)"
);
page!(
    settings,
    "settings.md",
    "All settings of a group.",
    "[`Builder`](crate::Builder), [`Chooser`](crate::Chooser), [`RejectPolicy`](crate::RejectPolicy), \
     [`RejectVerdict`](crate::RejectVerdict), [`WaitStrategy`](crate::WaitStrategy), \
     [`CloseChannels`](crate::CloseChannels), [`LoopThread`](crate::LoopThread), \
     [`TaskPanic`](crate::TaskPanic)"
);
page!(
    shutdown,
    "shutdown.md",
    "Graceful, drain, now: the order of events, the report, and recipes.",
    "[`EventLoopGroup::drain`](crate::EventLoopGroup::drain), \
     [`shutdown_gracefully_with`](crate::EventLoopGroup::shutdown_gracefully_with), \
     [`shutdown_now`](crate::EventLoopGroup::shutdown_now), [`TerminationFuture`](crate::TerminationFuture), \
     [`TerminationReport`](crate::TerminationReport), [`LoopReport`](crate::LoopReport), \
     [`EndCause`](crate::EndCause), [`add_shutdown_hook`](crate::EventLoop::add_shutdown_hook), \
     [`shutdown_requested`](crate::shutdown_requested), [`CloseChannels`](crate::CloseChannels)"
);
page!(
    cancel_safety,
    "cancel_safety.md",
    "What dropping, aborting and cancelling do, for every async function.",
    "[`JoinHandle`](crate::JoinHandle), [`Scheduled`](crate::Scheduled), [`time`](crate::time), \
     [`net`](crate::net), [`Registered`](crate::io::Registered)"
);
page!(
    channels,
    "channels.md",
    "Other crates' channels and locks between loops, and what they cost.",
    "[`LoopBound`](crate::LoopBound), [`EventLoopGroup::metrics`](crate::EventLoopGroup::metrics), \
     [`GroupMetrics::wakes`](crate::GroupMetrics::wakes), [`WaitStrategy`](crate::WaitStrategy), \
     [`Builder::max_pending_tasks`](crate::Builder::max_pending_tasks)"
);
page!(
    testing,
    "testing.md",
    "Virtual time, and reproducible orders of events.",
    "[`TestLoop`](crate::testing::TestLoop), [`TestGroup`](crate::testing::TestGroup), \
     [`time::now`](crate::time::now), [`UnixStream::pair`](crate::net::UnixStream::pair)"
);
page!(
    running_it,
    "running_it.md",
    "`main`, threads, pinning, metrics, logs and limits.",
    "[`run`](crate::run()), [`EventLoopGroup::block_on`](crate::EventLoopGroup::block_on), \
     [`Builder`](crate::Builder), [`LoopThread`](crate::LoopThread), [`GroupMetrics`](crate::GroupMetrics), \
     [`LoopMetrics`](crate::LoopMetrics), [`TaskPanic`](crate::TaskPanic)"
);
page!(
    from_netty,
    "from_netty.md",
    "For users of Netty: names, code side by side, differences.",
    "[`EventLoopGroup`](crate::EventLoopGroup), [`EventLoop`](crate::EventLoop), \
     [`Builder`](crate::Builder), [`Chooser`](crate::Chooser), \
     [`RejectPolicy`](crate::RejectPolicy), [`Server`](crate::net::Server), \
     [`BlockingGroup`](crate::blocking::BlockingGroup), [`TestLoop`](crate::testing::TestLoop)"
);
page!(
    from_tokio,
    "from_tokio.md",
    "For users of tokio: names, code side by side, differences.",
    "[`run`](crate::run()), [`spawn`](crate::spawn), [`spawn_local`](crate::spawn_local), \
     [`EventLoopGroup::spawn_with`](crate::EventLoopGroup::spawn_with), [`JoinHandle`](crate::JoinHandle), \
     [`JoinError`](crate::JoinError), [`unblock`](crate::blocking::unblock), [`time`](crate::time), \
     [`net`](crate::net), [`TestLoop`](crate::testing::TestLoop)"
);
page!(
    when_not_to_use_it,
    "when_not_to_use_it.md",
    "What other crates do better.",
    "[`Builder::without_io`](crate::Builder::without_io), [`blocking`](crate::blocking)"
);

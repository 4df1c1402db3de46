//! The guide: the model of event loops, and how to use them.
//!
//! The pages, in reading order:
//!
//! | page | topics |
//! |---|---|
//! | [The model](model) | groups, loops, tasks and their home loops; a turn; what is promised |
//! | [A first server](first_server) | from `cargo new` to a chat with idle timeouts and a clean shutdown |
//! | [Topologies](topologies) | how many groups and loops to use, and for what |
//! | [Sockets](sockets) | everything that a socket can do, and the rules |
//! | [Settings](settings) | every setting of a group |
//! | [Shutdown](shutdown) | graceful, drain, now; the order of events; the report; recipes |
//! | [Cancel safety](cancel_safety) | what dropping, aborting and cancelling do, for every async function |
//! | [Channels and locks](channels) | those of other crates between loops, and what they cost |
//! | [Other crates](other_crates) | hyper, axum, TLS, WebSockets, and crates that need tokio's runtime |
//! | [Testing](testing) | virtual time, and reproducible orders of events |
//! | [Simulate it](simulate_it) | whole systems on a network that a seed decides; faults, search, what repeats |
//! | [Running it](running_it) | `main`, threads, pinning, signals, pauses, names, logs, limits |
//! | [Look at it](look_at_it) | metrics, Prometheus, stalls, tasks, dumps, traces, the inspector |
//! | [Balance](balance) | placing by load, pausing, connections that move, elastic groups |
//! | [From Netty](from_netty) | names, code side by side, differences |
//! | [From tokio](from_tokio) | names, code side by side, differences |
//! | [When not to use it](when_not_to_use_it) | what other runtimes do better |
//!
//! This module contains only text. Its Rust examples are compiled with the tests, and most of them are run. A
//! first one:
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

/// Defines a page of the guide: its first line, its link definitions, its text, the items it covers, and its
/// pictures, which are part of the page: the API documentation has no other files.
macro_rules! page {
    ($name:ident, $file:literal, $line:literal, $items:literal $(, $picture:literal: $data:literal)*) => {
        #[doc = $line]
        ///
        /// [a first server]: crate::guide::first_server
        /// [all pages]: crate::guide
        /// [balance]: crate::guide::balance
        /// [cancel safe]: crate::guide::cancel_safety
        /// [cancel safety]: crate::guide::cancel_safety
        /// [channels]: crate::guide::channels
        /// [from Netty]: crate::guide::from_netty
        /// [from tokio]: crate::guide::from_tokio
        /// [look at it]: crate::guide::look_at_it
        /// [other crates]: crate::guide::other_crates
        /// [running it]: crate::guide::running_it
        /// [settings]: crate::guide::settings
        /// [simulate it]: crate::guide::simulate_it
        /// [shutdown]: crate::guide::shutdown
        /// [simulate it]: crate::guide::simulate_it
        /// [sockets]: crate::guide::sockets
        /// [testing]: crate::guide::testing
        /// [the first server]: crate::guide::first_server
        /// [the model]: crate::guide::model
        /// [topologies]: crate::guide::topologies
        /// [when not to use it]: crate::guide::when_not_to_use_it
        $(
            #[doc = concat!(
                "[",
                $picture,
                "]: data:image/png;base64,",
                include_str!(concat!("../docs/guide/pictures/", $data))
            )]
        )*
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
     [`PerLoop`](crate::PerLoop), [`AbortHandle`](crate::AbortHandle), [`TaskId`](crate::TaskId), \
     [`Builder::io_ratio`](crate::Builder::io_ratio)"
);
page!(
    first_server,
    "first_server.md",
    "From `cargo new` to a chat with idle timeouts and a clean shutdown.",
    "[`Server`](crate::net::Server), [`ServerHandle`](crate::net::ServerHandle), \
     [`Server::serve_with`](crate::net::Server::serve_with), [`TcpStream`](crate::net::TcpStream), \
     [`EventLoop::bind`](crate::EventLoop::bind), [`EventLoopGroup::drain`](crate::EventLoopGroup::drain)"
);
page!(
    topologies,
    "topologies.md",
    "How many groups and loops to use, and for what.",
    "[`Server`](crate::net::Server), [`Server::reuse_port`](crate::net::Server::reuse_port), \
     [`Builder::without_io`](crate::Builder::without_io), [`blocking`](crate::blocking), \
     [`PreferCurrent`](crate::PreferCurrent), [`LeastLoaded`](crate::LeastLoaded), \
     [`LeastBusy`](crate::LeastBusy), \
     [`EventLoopGroup::loop_for`](crate::EventLoopGroup::loop_for), \
     [`EventLoopGroup::spawn_keyed`](crate::EventLoopGroup::spawn_keyed), [`PerLoop`](crate::PerLoop), \
     [`WaitStrategy`](crate::WaitStrategy), [`ManualLoop`](crate::ManualLoop)"
);
page!(
    sockets,
    "sockets.md",
    "Everything that a socket can do, and the rules.",
    "[`net`](crate::net), [`TcpListener`](crate::net::TcpListener), [`TcpStream`](crate::net::TcpStream), \
     [`UnixStream`](crate::net::UnixStream), [`UdpSocket`](crate::net::UdpSocket), \
     [`UnixDatagram`](crate::net::UnixDatagram), [`TcpSocket`](crate::net::TcpSocket), \
     [`ConnectError`](crate::net::ConnectError), [`pipe`](crate::net::pipe), \
     [`copy_bidirectional`](crate::io::copy_bidirectional), [`Registered`](crate::io::Registered)"
);
page!(
    settings,
    "settings.md",
    "Every setting of a group.",
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
     [`shutdown_now`](crate::EventLoopGroup::shutdown_now), \
     [`TerminationFuture`](crate::TerminationFuture), [`TerminationReport`](crate::TerminationReport), \
     [`LoopReport`](crate::LoopReport), [`LeftTasks`](crate::LeftTasks), \
     [`ServerHandle::drain`](crate::net::ServerHandle::drain), \
     [`Server::from_stdin`](crate::net::Server::from_stdin), [`EndCause`](crate::EndCause), \
     [`add_shutdown_hook`](crate::EventLoop::add_shutdown_hook), \
     [`shutdown_requested`](crate::shutdown_requested), [`CloseChannels`](crate::CloseChannels)"
);
page!(
    cancel_safety,
    "cancel_safety.md",
    "What dropping, aborting and cancelling do, for every async function.",
    "[`JoinHandle`](crate::JoinHandle), [`AbortHandle`](crate::AbortHandle), [`JoinSet`](crate::JoinSet), \
     [`Scheduled`](crate::Scheduled), [`time`](crate::time), [`net`](crate::net), \
     [`Registered`](crate::io::Registered)"
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
    other_crates,
    "other_crates.md",
    "hyper, axum, TLS, WebSockets, and crates that need tokio's runtime.",
    "[`compat`](crate::compat), [`Builder::on_thread_start`](crate::Builder::on_thread_start), \
     [`Registered`](crate::io::Registered)"
);
page!(
    testing,
    "testing.md",
    "Virtual time, and reproducible orders of events.",
    "[`TestLoop`](crate::testing::TestLoop), [`TestGroup`](crate::testing::TestGroup), \
     [`time::now`](crate::time::now), [`scope`](crate::scope), [`duplex`](crate::io::duplex), \
     [`UnixStream::pair`](crate::net::UnixStream::pair)"
);
page!(
    simulate_it,
    "simulate_it.md",
    "Whole systems on a network that a seed decides: faults, search, and runs that repeat.",
    "[`Simulation`](crate::testing::sim::Simulation), [`Faults`](crate::testing::sim::Faults), \
     [`Link`](crate::testing::sim::Link), [`search`](crate::testing::sim::search()), \
     [`check`](crate::testing::sim::check), [`sometimes`](crate::testing::sim::sometimes)"
);
page!(
    running_it,
    "running_it.md",
    "`main`, threads, pinning, signals, pauses, names, logs and limits.",
    "[`run`](crate::run()), [`EventLoopGroup::block_on`](crate::EventLoopGroup::block_on), \
     [`Builder`](crate::Builder), [`LoopThread`](crate::LoopThread), \
     [`EventLoop::pause`](crate::EventLoop::pause), \
     [`TaskBuilder`](crate::TaskBuilder), [`task_id`](crate::task_id), [`TaskPanic`](crate::TaskPanic)"
);
page!(
    look_at_it,
    "look_at_it.md",
    "Metrics, Prometheus, stalls, tasks, dumps, traces and the inspector.",
    "[`GroupMetrics`](crate::GroupMetrics), [`LoopMetrics`](crate::LoopMetrics), \
     [`Histogram`](crate::Histogram), [`Prometheus`](crate::Prometheus), [`Stall`](crate::Stall), \
     [`TaskInfo`](crate::TaskInfo), [`Wait`](crate::Wait), [`label`](crate::label()), [`Dump`](crate::Dump), \
     [`Trace`](crate::Trace)",
    "picture of the inspector": "inspector.png.base64",
    "picture of the inspector in the dark": "inspector-dark.png.base64"
);
page!(
    balance,
    "balance.md",
    "Placing by load, pausing, connections that move, elastic groups.",
    "[`LeastBusy`](crate::LeastBusy), [`LeastLoaded`](crate::LeastLoaded), \
     [`EventLoop::pause`](crate::EventLoop::pause), \
     [`Server::serve_turns`](crate::net::Server::serve_turns), \
     [`Turn`](crate::net::Turn), [`Server::rebalance`](crate::net::Server::rebalance), \
     [`Rebalance`](crate::net::Rebalance), [`Elastic`](crate::Elastic), \
     [`Builder::elastic`](crate::Builder::elastic)"
);
page!(
    from_netty,
    "from_netty.md",
    "For users of Netty: names, code side by side, differences.",
    "[`EventLoopGroup`](crate::EventLoopGroup), [`EventLoop`](crate::EventLoop), \
     [`Builder`](crate::Builder), [`Chooser`](crate::Chooser), [`RejectPolicy`](crate::RejectPolicy), \
     [`Server`](crate::net::Server), [`BlockingGroup`](crate::blocking::BlockingGroup), \
     [`ManualLoop`](crate::ManualLoop), [`Repeat`](crate::Repeat), [`TestLoop`](crate::testing::TestLoop)"
);
page!(
    from_tokio,
    "from_tokio.md",
    "For users of tokio: names, code side by side, differences.",
    "[`run`](crate::run()), [`spawn`](crate::spawn), [`spawn_local`](crate::spawn_local), \
     [`EventLoopGroup::spawn_with`](crate::EventLoopGroup::spawn_with), \
     [`JoinHandle`](crate::JoinHandle), [`JoinError`](crate::JoinError), [`JoinSet`](crate::JoinSet), \
     [`unblock`](crate::blocking::unblock), [`time`](crate::time), [`net`](crate::net), \
     [`TestLoop`](crate::testing::TestLoop)"
);
page!(
    when_not_to_use_it,
    "when_not_to_use_it.md",
    "What other crates do better.",
    "[`Builder::without_io`](crate::Builder::without_io), [`blocking`](crate::blocking)"
);

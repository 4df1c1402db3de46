//! The inspector: a page that shows the loops of a program while it runs.
//!
//! ```
//! use loopgroup::{EventLoopGroup, inspect::Inspector};
//!
//! let workers = EventLoopGroup::builder().loops(2).measure_time(true).build()?;
//! let inspector = Inspector::new().watch("workers", &workers).serve("127.0.0.1:0")?;
//! println!("{}", inspector.url()); // to be opened in a browser
//! # inspector.stop();
//! # std::io::Result::Ok(())
//! ```
//!
//! Per loop, the page has a lane with its busy time line and its queue, live; then which loop wakes which,
//! how long polls take, the tasks, stalls while they happen, servers, timers, and a shutdown with what it
//! still waits for. It is one document, without anything from elsewhere. `cargo run --example inspect` in
//! this repository starts a busy program to look at.
//!
//! The inspector has a loop of its own, on a thread of its own: a loop that stands still is seen standing
//! still. It takes figures only while a page is open, or when it is asked.
//!
//! # What there is to see
//!
//! Everything that costs nothing is always there. The rest is a matter of the watched group's settings, and
//! the page says so where it is missing:
//!
//! | setting of the watched group | shows |
//! |---|---|
//! | none | lanes, queues, wakes, counts, servers, shutdown |
//! | [`measure_time`](crate::Builder::measure_time) | histograms of polls and of waits, the longest poll |
//! | [`track_tasks`](crate::Builder::track_tasks) | the tasks, what each waits for, what a shutdown waits for; queues, timers |
//! | [`watchdog`](crate::Builder::watchdog) | the poll that does not return, while it does not |
//! | [`flight_recorder`](crate::Builder::flight_recorder) | traces, to download and to open in Perfetto |
//!
//! # Routes
//!
//! | route | answers with |
//! |---|---|
//! | `/` | the page |
//! | `/metrics` | the metrics of all watched groups for Prometheus |
//! | `/api/snapshot` | everything the page shows, as JSON |
//! | `/api/stream` | the same, four times a second, as server-sent events |
//! | `/api/tasks` | tasks of a `group`, by `loop`, `state` and text `q`; `sort`, `order`, `offset`, `limit` (up to 200) |
//! | `/api/dump` | [`EventLoopGroup::dump`](crate::EventLoopGroup::dump) as text; of a `group`, or of all |
//! | `/api/trace` | [`EventLoopGroup::trace`](crate::EventLoopGroup::trace) of the last `seconds`, 10 by default; of a `group`, or of all |
//!
//! The JSON is made for the page of the same version; its fields may change.
//!
//! # Who may look
//!
//! Programs of this machine. The page shows names of tasks, places in the source and addresses of peers, so
//! the inspector treats every request as hostile until it has shown otherwise:
//!
//! - It listens on loopback addresses alone, unless [`Inspector::allow_remote`] sets a token. From then on
//!   every request needs the token.
//! - Without a token, the `Host` of a request must be `localhost`, `127.0.0.1` or `[::1]`, with the port: a
//!   site that has its name resolve to this machine (DNS rebinding) is refused.
//! - A foreign `Origin`, and a fetch by another site (`Sec-Fetch-Site`), are refused. A link to the page
//!   works; nothing else may be loaded from elsewhere.
//! - `GET` and `HEAD` alone. No request changes anything.
//! - The page allows its own script and style by their hashes, and neither frames, forms nor connections to
//!   other origins. Names of tasks are text, never markup.
//! - Connections, streams, sizes and times are limited, and a client that does not read is closed after 10 s;
//!   the watched groups do not notice a flood. During a flood, a new page may have to wait for its turn.
//!
//! The connection is not encrypted: use a tunnel, or a proxy with TLS, on a network that is not trusted.

mod answer;
mod guard;
mod handle;
mod inspector;
mod page;
mod permit;
mod picture;
mod query;
mod routes;
mod shown;
mod source;
mod stream;
mod studio;
mod tasks;
mod token;
mod watched;

pub use handle::InspectorHandle;
pub use inspector::Inspector;

//! The traits of tokio and hyper, servers on hyper, and the events of `tracing`.

mod http_server;
mod hyper_traits;
mod tokio_io;
mod tracing;

#[path = "../util/mod.rs"]
mod util;

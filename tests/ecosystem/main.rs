//! The traits of tokio and hyper, and the events of `tracing`.

mod hyper_traits;
mod tokio_io;
mod tracing;

#[path = "../util/mod.rs"]
mod util;

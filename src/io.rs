//! Readiness of any descriptor; sockets are in `net`.

pub use mio::Interest;

pub use crate::reactor::registered::Registered;

//! Sockets deliver what was sent, wake who waits, and fail with a clear error.

mod adversity;
mod bad_input;
mod connecting;
mod copy;
mod crowds;
mod datagrams;
mod duplex;
mod guide_promises;
mod io_regressions;
mod nonblocking;
mod pipes;
mod registered;
mod socket_options;
mod tcp;
mod udp;
mod unix;

#[path = "../util/mod.rs"]
mod util;

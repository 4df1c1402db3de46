//! A simulated network: hosts, links and sockets that behave as a kernel's do, in virtual time, on one
//! thread.
//!
//! - A [`Network`] knows nothing of loops, tasks or wakers: it has sockets, a clock that only
//!   [`Network::advance`] moves, and selectors that it reports edges to, as epoll does.
//! - A seed decides everything: two networks with the same seed and the same calls have the same trace.
//! - The cost of an event is that of an ordered map; there is state per socket and per pair of hosts
//!   whose link was changed, and none per pair of hosts.
//!
//! ```text
//! Socket ── read, write, … ──► Kernel ── packets ──► Queue ── arrive, fire ──► Kernel ── edges ──► Selector
//! ```

mod bell;
mod claims;
mod closing;
mod datagrams;
mod draws;
mod errno;
mod family;
mod faults;
mod handshake;
mod host;
mod input;
mod kernel;
mod letters;
mod link;
mod listener;
mod net_event;
mod network;
mod output;
mod packet;
mod picture;
mod ports;
mod queue;
mod record;
mod selector;
mod sending;
mod simulated_host;
mod socket;
mod socket_id;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod transfer;
mod udp;
mod unix;
mod unix_datagrams;

pub(crate) use self::bell::{Awake, Bell};
pub(crate) use self::host::HostId;
pub use self::link::Link;
pub(crate) use self::net_event::{NetEvent, What};
pub(crate) use self::network::{HostNet, Network};
pub(crate) use self::selector::{Ready, ReadyEvent, Selector};
pub(crate) use self::simulated_host::{MAIN, Nursery, SimulatedHost};
pub(crate) use self::socket::Socket;

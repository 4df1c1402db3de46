//! The floor: the same workloads by hand, without futures, tasks, handles or accounting.
//!
//! - A queue of boxed closures at home ([`queue`]), a locked list with an eventfd from outside ([`mailbox`]),
//!   and epoll through mio. What a runtime costs above this is what its promises cost.
//! - It is no runtime: nothing here could be used for anything else than its workload.

pub(crate) mod across;
pub(crate) mod echo;
pub(crate) mod mailbox;
pub(crate) mod pending;
pub(crate) mod queue;
pub(crate) mod timers;

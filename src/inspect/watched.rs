//! The groups and servers that an inspector looks at.
//!
//! - A group is not kept from ending: what is held of it does not count as a handle of the user's.
//! - When a group has ended, its last picture is taken, and the group is released: its threads and its loops
//!   cost nothing any more, and the page still shows what became of them.
//!
//! ```text
//!   Alive ──followed to its end (follow)──▶ Ended
//! ```

use std::fmt;
use std::time::Instant;

use futures::future::{Either, select};

use crate::dump::Dump;
use crate::group::handle::EventLoopGroup;
use crate::inspect::picture::{GroupPicture, ServerPicture};
use crate::inspect::source;
use crate::inspect::tasks::{Question, TasksPicture};
use crate::metrics::GroupMetrics;
use crate::net::ServerProbe;
use crate::recorder::trace::Trace;
use crate::shutdown_requested::shutdown_requested;
use crate::sync::{self, Arc, Mutex};

/// A group, under its name.
pub(super) struct WatchedGroup {
    pub(super) name: String,
    life: Mutex<Life>,
}

enum Life {
    Alive(EventLoopGroup),
    Ended(Arc<Last>),
}

/// What is kept of a group that has ended.
#[derive(Debug)]
struct Last {
    picture: GroupPicture,
    metrics: GroupMetrics,
    trace: Trace,
    dump: Dump,
    at: Instant,
}

impl WatchedGroup {
    pub(super) fn new(name: String, group: &EventLoopGroup) -> WatchedGroup {
        WatchedGroup {
            name,
            life: Mutex::new(Life::Alive(group.observer())),
        }
    }

    /// Whether it is this group.
    pub(super) fn is(&self, group: &EventLoopGroup) -> bool {
        match &*self.life.lock() {
            Life::Alive(known) => Arc::ptr_eq(known.core(), group.core()),
            Life::Ended(_) => false,
        }
    }

    /// Waits for the end of the group, and releases it; or for that of the inspector.
    pub(super) async fn follow(&self) {
        let Ok(group) = self.current() else {
            return;
        };
        // The future would keep the threads of the group; it is gone before the group is.
        let end = group.termination();
        if let Either::Right(_) = select(end, shutdown_requested()).await {
            return;
        }
        let last = Last {
            picture: source::group(&self.name, &group),
            metrics: group.metrics(),
            trace: group.trace(),
            dump: group.dump(),
            at: sync::now(),
        };
        let before = std::mem::replace(&mut *self.life.lock(), Life::Ended(Arc::new(last)));
        // With no lock held: the group may own destructors of the user's.
        drop((before, group));
    }

    pub(super) fn picture(&self) -> GroupPicture {
        match self.current() {
            Ok(group) => source::group(&self.name, &group),
            Err(last) => {
                let mut picture = last.picture.clone();
                picture.ended_ago = Some(last.at.elapsed().as_secs_f64());
                picture
            }
        }
    }

    pub(super) fn metrics(&self) -> GroupMetrics {
        match self.current() {
            Ok(group) => group.metrics(),
            Err(last) => last.metrics.clone(),
        }
    }

    /// The tasks that a question asks for.
    pub(super) fn tasks(&self, question: &Question) -> TasksPicture {
        match self.current() {
            Ok(group) => source::tasks(&self.name, &group, question),
            Err(last) => {
                let tracked = last.picture.settings.track_tasks;
                question.answer(&self.name, tracked, &[])
            }
        }
    }

    /// What the group is doing, or was when it had ended.
    pub(super) fn dump(&self) -> Dump {
        match self.current() {
            Ok(group) => group.dump(),
            Err(last) => last.dump.clone(),
        }
    }

    /// What the flight recorder has; empty without one.
    pub(super) fn trace(&self) -> Trace {
        let trace = match self.current() {
            Ok(group) => group.trace(),
            Err(last) => last.trace.clone(),
        };
        trace.named(&*self.name)
    }

    /// The group, or what is left of it.
    fn current(&self) -> Result<EventLoopGroup, Arc<Last>> {
        match &*self.life.lock() {
            Life::Alive(group) => Ok(group.clone()),
            Life::Ended(last) => Err(Arc::clone(last)),
        }
    }
}

impl fmt::Debug for WatchedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchedGroup").field(&self.name).finish()
    }
}

/// A server, under its name.
#[derive(Debug)]
pub(super) struct WatchedServer {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) probe: ServerProbe,
}

impl WatchedServer {
    pub(super) fn picture(&self) -> ServerPicture {
        source::server(&self.name, &self.address, &self.probe)
    }
}

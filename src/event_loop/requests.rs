//! What handles ask of the tasks of a loop: to end, or to tell when they have ended.
//!
//! - A task is *marked* to be aborted while it is queued: the loop cancels it when its turn comes, before it
//!   is polled. A task that waits is cancelled at once. A mark is removed when its task ends, in whatever way.
//! - A request from another thread names a task that may have ended since, or that may still be in the inbox.
//!   The loop looks for it, and looks once more after it has emptied its inbox. A task that it does not find
//!   then has ended.
//! - A task is found by its address, among those that wait, or by its id, among those that are queued. The
//!   id decides: an address is used again.
//! - Nothing here is touched while no handle asks for anything.

use std::collections::{HashMap, HashSet};

use crate::sync::{Arc, AtomicU8, Ordering};
use crate::task_id::{AbortTarget, TaskId};

/// What a handle asks of a task.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) target: AbortTarget,
    pub(crate) wish: Wish,
}

#[derive(Debug)]
pub(crate) enum Wish {
    /// To end.
    Abort,
    /// To tell when it has ended.
    Watch(Arc<EndFlag>),
}

/// Whether a task has ended, as an abort handle knows it.
#[derive(Debug, Default)]
pub(crate) struct EndFlag(AtomicU8);

const WATCHED: u8 = 1;
const ENDED: u8 = 2;

impl EndFlag {
    /// Records that the loop knows of the flag: from here on it is exact.
    fn set_watched(&self) {
        self.0.fetch_or(WATCHED, Ordering::Release);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.0.load(Ordering::Acquire) & WATCHED != 0
    }

    pub(crate) fn set_ended(&self) {
        self.0.fetch_or(ENDED, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire) & ENDED != 0
    }
}

/// The requests that a loop has taken; loop thread only.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    marked: HashSet<TaskId>,
    watched: HashMap<TaskId, Vec<Arc<EndFlag>>>,
    /// Requests whose task was not found, to be looked at again when the inbox is empty.
    unfound: Vec<Request>,
}

impl Requests {
    /// Marks a task that is queued.
    pub(crate) fn mark(&mut self, id: TaskId) {
        self.marked.insert(id);
    }

    /// Whether a task was marked; it no longer is.
    pub(crate) fn take_mark(&mut self, id: TaskId) -> bool {
        self.marked.remove(&id)
    }

    /// Has the end of a task told to a handle.
    pub(crate) fn watch(&mut self, id: TaskId, flag: Arc<EndFlag>) {
        flag.set_watched();
        self.watched.entry(id).or_default().push(flag);
    }

    /// Whether there is something to do when a task ends.
    pub(crate) fn is_empty(&self) -> bool {
        self.marked.is_empty() && self.watched.is_empty()
    }

    /// Records that a task has ended.
    pub(crate) fn ended(&mut self, id: TaskId) {
        self.marked.remove(&id);
        for flag in self.watched.remove(&id).into_iter().flatten() {
            flag.set_ended();
        }
    }

    /// Keeps a request whose task was not found.
    pub(crate) fn defer(&mut self, request: Request) {
        self.unfound.push(request);
    }

    pub(crate) fn has_unfound(&self) -> bool {
        !self.unfound.is_empty()
    }

    pub(crate) fn take_unfound(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.unfound)
    }
}

impl Request {
    /// Drops a request whose task has ended.
    pub(crate) fn ended(self) {
        match self.wish {
            Wish::Abort => {}
            Wish::Watch(flag) => {
                flag.set_watched();
                flag.set_ended();
            }
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // The loop has ended, and every task with it.
        for request in self.take_unfound() {
            request.ended();
        }
        for flag in self.watched.drain().flat_map(|(_, flags)| flags) {
            flag.set_ended();
        }
    }
}

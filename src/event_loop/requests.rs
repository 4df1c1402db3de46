//! What handles ask of the tasks of a loop: to end, or to tell when they have ended.
//!
//! - A request names its task by address and by id. It is kept by address, since that is what the live table
//!   and a queued task have in common; the id decides, since an address is used again.
//! - A task with a request is looked at before it is polled, and again when it ends. A task that waits is
//!   woken for that. So nothing has to be searched for, wherever the task is: in a queue, in the inbox, in
//!   the live table, or on its way there on another thread.
//! - A request whose task had ended before the loop took it is found out when another task is polled or
//!   ends at that address, or when the loop comes to rest: a task that is neither queued nor live has
//!   ended.
//! - Nothing here is touched while no handle asks for anything.

use std::collections::HashMap;

use crate::sync::{Arc, AtomicBool, Ordering};
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

impl Wish {
    /// Tells a handle that its task has ended.
    pub(crate) fn ended(self) {
        if let Wish::Watch(flag) = self {
            flag.0.store(true, Ordering::Release);
        }
    }

    /// Whether nothing depends on it any more: the abort handle was dropped.
    fn is_obsolete(&self) -> bool {
        matches!(self, Wish::Watch(flag) if Arc::strong_count(flag) == 1)
    }
}

/// Whether a task has ended, as an abort handle knows it.
#[derive(Debug, Default)]
pub(crate) struct EndFlag(AtomicBool);

impl EndFlag {
    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The requests that a loop has taken; loop thread only.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    by_address: HashMap<usize, Vec<(TaskId, Wish)>>,
}

impl Requests {
    pub(crate) fn add(&mut self, Request { target, wish }: Request) {
        let wishes = self.by_address.entry(target.address).or_default();
        wishes.retain(|(_, wish)| !wish.is_obsolete());
        wishes.push((target.id, wish));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Looks at a task that is about to be polled; returns whether it is to be aborted. Requests for an
    /// earlier task at its address are over.
    pub(crate) fn look(&mut self, task: AbortTarget) -> bool {
        let Some(wishes) = self.by_address.get_mut(&task.address) else {
            return false;
        };
        let mut abort = false;
        for (id, wish) in std::mem::take(wishes) {
            match wish {
                wish if id != task.id => wish.ended(),
                Wish::Abort => abort = true,
                watch @ Wish::Watch(_) => wishes.push((id, watch)),
            }
        }
        if wishes.is_empty() {
            self.by_address.remove(&task.address);
        }
        abort
    }

    /// Records that the task at an address has ended.
    pub(crate) fn ended(&mut self, address: usize) {
        let wishes = self.by_address.remove(&address);
        for (_, wish) in wishes.into_iter().flatten() {
            wish.ended();
        }
    }

    /// Ends the requests of tasks that do not live; while no task is queued.
    pub(crate) fn retain(&mut self, lives: impl Fn(usize) -> bool) {
        self.by_address.retain(|&address, wishes| {
            let lives = lives(address);
            if !lives {
                wishes.drain(..).for_each(|(_, wish)| wish.ended());
            }
            lives
        });
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // The loop has ended, and every task with it.
        self.retain(|_| false);
    }
}

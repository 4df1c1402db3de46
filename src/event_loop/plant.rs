//! How a connection's task comes to its loop: made there, and counted when it is sent for.

use std::future::Future;
use std::panic::Location;

use crate::error::{RejectReason, Rejected};
use crate::event_loop::EventLoop;
use crate::event_loop::context;
use crate::event_loop::shared::Shared;
use crate::sync::Arc;
use crate::task;
use crate::task::join::JoinHandle;
use crate::task::planted::Planted;

impl EventLoop {
    /// Makes a future on this loop and runs it there, detached, in the name of another place.
    ///
    /// As a plain local task, which is smaller than the stand-in of `spawn_with`, and one task in the books: what
    /// travels is a message that makes it. A refusal is not in the books: another loop may take it.
    pub(crate) fn offer_start<I, F>(
        &self,
        init: I,
        location: &'static Location<'static>,
    ) -> Result<(), Rejected<I>>
    where
        I: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let shared = &self.shared;
        let mut init = Some(init);
        let mut take = || init.take().expect("the closure is taken once");
        let started = shared.admit().and_then(|()| {
            let at_home = context::with_home(shared, |local| {
                let open = local.shared.is_open();
                open.then(|| local.push_main(planted(shared, take(), location)))
            });
            match at_home {
                Some(Some(())) => Ok(()),
                Some(None) => {
                    shared.cancel_admission();
                    Err(RejectReason::ShutDown)
                }
                None => shared.plant_with(|| {
                    let init = take();
                    Box::new(move |local| local.plant(planted(&local.shared, init, location)))
                }),
            }
        });
        started.map_err(|reason| Rejected::new(take(), reason))
    }
}

/// Makes a task that makes its own future, on its home's thread.
fn planted<I, F>(
    home: &Arc<Shared>,
    init: I,
    location: &'static Location<'static>,
) -> task::Runnable
where
    I: FnOnce() -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    let (runnable, task) = task::new_local(home, Planted::new(init), location);
    drop(JoinHandle::of_task(task));
    runnable
}

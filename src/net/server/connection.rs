//! A connection of a server, from the accept to the end of its handler.
//!
//! - A connection is a [`PendingConnection`] until its handler is called, and a [`ServedConnection`]
//!   from then on. It is counted exactly once at its end: rejected, aborted, failed or completed.
//! - Acceptors and connections hold the [`ServerCore`]; the server ends after that is dropped, and after the
//!   last handler was.
//! - A loop that has no handler passes the connection to the next loop that may have one. Each such loop
//!   is asked once, so a connection is served or rejected; it never circulates.

use std::future::Future;
use std::net::SocketAddr;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::event_loop::context;
use crate::event_loop::enqueue::Admission;
use crate::event_loop::local::Local;
use crate::event_loop::shared::AtShutdown;
use crate::group::core::GroupCore;
use crate::io::control::Control;
use crate::net::server::handlers::Handlers;
use crate::net::server::hooks::{ConnectionEnd, ConnectionWatch, ServerHooks};
use crate::net::server::limits::{TimeLimits, TimeWatch};
use crate::net::server::listener::Listener;
use crate::net::server::open::OpenKey;
use crate::net::server::outcome::{ErrorRef, Outcome, Returned as _};
use crate::net::server::state::{Lifetime, ServerState};
use crate::panic::PanicSite;
use crate::sync::{Arc, Ordering, Weak};
use crate::this_thread;

/// What acceptors and connections share.
pub(super) struct ServerCore<P> {
    /// `None` only during the drop.
    handlers: Option<P>,
    pub(super) state: Arc<ServerState>,
    pub(super) hooks: ServerHooks,
    pub(super) limits: TimeLimits,
    /// Whether reads end with the shutdown of their loop.
    end_reads: bool,
    /// The group that serves.
    pub(super) workers: Weak<GroupCore>,
    /// Where the server was started.
    pub(super) location: &'static Location<'static>,
    /// Dropped last.
    _lifetime: Arc<Lifetime>,
}

impl<P> ServerCore<P> {
    pub(super) fn new(
        handlers: P,
        lifetime: Arc<Lifetime>,
        hooks: ServerHooks,
        limits: TimeLimits,
        workers: Weak<GroupCore>,
        location: &'static Location<'static>,
        end_reads: bool,
    ) -> ServerCore<P> {
        ServerCore {
            handlers: Some(handlers),
            state: Arc::clone(&lifetime.0),
            hooks,
            limits,
            workers,
            location,
            end_reads,
            _lifetime: lifetime,
        }
    }

    pub(super) fn handlers(&self) -> &P {
        self.handlers.as_ref().expect("taken only by the drop")
    }
}

impl<P> ServerCore<P> {
    /// Enters a connection in the list of this thread's loop, which ends its reads when it shuts down.
    fn enter(&self, local: &Local, control: Control) -> OpenKey {
        let open = &self.state.open[local.shared.index];
        if self.end_reads && open.is_to_follow() {
            let state: Arc<dyn AtShutdown> = self.state.clone();
            local.tell_at_shutdown(Arc::downgrade(&state));
            // The loop has told its observers already, or is about to.
            if local.shared.state().is_shutting_down() {
                open.end_reads();
            }
        }
        open.enter(control)
    }

    /// Starts the time limits of a connection, if there are any.
    pub(super) fn start_limits<L: Listener>(&self, stream: &L::Stream) -> Option<Box<TimeWatch>> {
        (!self.limits.is_none()).then(|| {
            // Use is recorded by readiness, so the stream has to be registered. If it cannot be, the first
            // operation that has to wait says why.
            let _ = L::register(stream);
            Box::new(self.limits.start(L::control(stream)))
        })
    }
}

impl<P> Drop for ServerCore<P> {
    fn drop(&mut self) {
        // The handler is dropped before the server counts as ended. Its destructor is user code, and
        // this drop may run while the last connection unwinds from a panic.
        let (site, location) = (PanicSite::Destructor, Some(self.location));
        context::panics_in_drop().drop(site, location, self.handlers.take());
        let hooks = std::mem::take(&mut self.hooks);
        context::panics_in_drop().drop(site, location, hooks);
    }
}

/// An accepted connection whose handler has not been called yet; dropped, it counts as rejected.
pub(super) struct PendingConnection<P>(Option<Arc<ServerCore<P>>>);

impl<P> PendingConnection<P> {
    /// Counts an accepted connection; the caller has acquired the limit for it.
    pub(super) fn new(core: &Arc<ServerCore<P>>) -> PendingConnection<P> {
        core.state.connection_accepted();
        PendingConnection(Some(Arc::clone(core)))
    }

    pub(super) fn core(&self) -> &Arc<ServerCore<P>> {
        self.0.as_ref().expect("taken only when it is served")
    }

    /// Begins to serve the connection, on this thread's loop.
    pub(super) fn begin(
        mut self,
        local: &Local,
        control: Control,
        peer: Option<SocketAddr>,
    ) -> ServedConnection<P> {
        let watch = self.core().hooks.watch(peer);
        let key = self.core().enter(local, control);
        ServedConnection {
            core: self.0.take(),
            loop_index: local.shared.index,
            key,
            watch,
        }
    }
}

impl<P> Drop for PendingConnection<P> {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            core.state.connection_ended(&core.state.rejected);
        }
    }
}

/// Calls the handler, on the worker loop.
pub(super) fn serve<L, P, F>(
    stream: L::Stream,
    peer: L::Addr,
    pending: PendingConnection<P>,
) -> ServeFuture<F, P>
where
    L: Listener,
    P: Handlers<Handler: Fn(L::Stream, L::Addr) -> F>,
    F: Future<Output: Outcome> + 'static,
{
    let core = Arc::clone(pending.core());
    let local = context::current().expect("a connection is started by a task of a loop");
    let here = local.shared.index;
    let Some(handler) = core.handlers().here() else {
        pass_on::<L, P, F>(here, stream, peer, pending);
        return ServeFuture::passed_on();
    };
    let connection = pending.begin(&local, L::control(&stream), L::peer(&peer));
    let limits = core.start_limits::<L>(&stream);
    let future = handler.get()(stream, peer);
    ServeFuture {
        future: Some(future),
        connection: Some(connection),
        limits,
    }
}

/// Passes a connection to the next loop that may have a handler; if none takes it, it is rejected.
#[cold]
fn pass_on<L, P, F>(here: usize, stream: L::Stream, peer: L::Addr, pending: PendingConnection<P>)
where
    L: Listener,
    P: Handlers<Handler: Fn(L::Stream, L::Addr) -> F>,
    F: Future<Output: Outcome> + 'static,
{
    let core = Arc::clone(pending.core());
    let Some(group) = core.workers.upgrade() else {
        return;
    };
    let mut refused = None;
    let mut start = move || serve::<L, P, F>(stream, peer, pending);
    let (before, from) = group.loops.split_at(here);
    for one in from.iter().chain(before).skip(1) {
        if !core.handlers().may_serve(one.index()) {
            continue;
        }
        start = match one.offer_local(start, Admission::New, core.location) {
            Ok(()) => return,
            Err(rejected) => {
                refused = Some((one, rejected.reason()));
                rejected.into_inner()
            }
        };
    }
    if let Some((one, reason)) = refused {
        one.shared().note_refusal(reason, core.location);
    }
}

/// A connection whose handler has been called; dropped before [`end`](Self::end), it counts as aborted.
pub(super) struct ServedConnection<P> {
    core: Option<Arc<ServerCore<P>>>,
    loop_index: usize,
    key: OpenKey,
    watch: Option<Box<ConnectionWatch>>,
}

impl<P> ServedConnection<P> {
    /// Notes that the connection is served by this thread's loop from now on; `false` if it was already.
    pub(super) fn move_here(&mut self, local: &Local, control: Control) -> bool {
        let here = local.shared.index;
        if here == self.loop_index {
            return false;
        }
        let core = self.core();
        // First in the new list: it is never in none, so no end of reads passes it by.
        let key = core.enter(local, control);
        core.state.open[self.loop_index].leave(self.key);
        (self.loop_index, self.key) = (here, key);
        true
    }

    /// Looks at the time limits, when the handler waits.
    pub(super) fn poll_limits(&self, limits: &mut TimeWatch, cx: &mut Context<'_>) {
        if limits.poll_expired(cx).is_ready() {
            // The handler is woken: it waits for the connection, or will fail to.
            let timed_out = &self.core().state.timed_out;
            timed_out.fetch_add(1, Ordering::Release);
        }
    }

    pub(super) fn loop_index(&self) -> usize {
        self.loop_index
    }

    /// Reports the error of the handler, and returns how the connection has ended by itself.
    pub(super) fn judge(&self, error: Option<ErrorRef<'_>>) -> ConnectionEnd {
        let how = match error {
            None => ConnectionEnd::Completed,
            Some(error) => {
                self.core().hooks.error(self.watch.as_deref(), error);
                ConnectionEnd::Failed
            }
        };
        // Whatever the handler made of it: the end of the loop has closed a channel under it.
        if is_interrupted() {
            ConnectionEnd::Aborted
        } else {
            how
        }
    }

    pub(super) fn end(&mut self, how: ConnectionEnd) {
        let Some(core) = self.core.take() else {
            return;
        };
        let state = &core.state;
        state.open[self.loop_index].leave(self.key);
        if let Some(watch) = &self.watch {
            core.hooks.ended(watch, how);
        }
        state.connection_ended(match how {
            ConnectionEnd::Completed => &state.completed,
            ConnectionEnd::Failed => &state.failed,
            ConnectionEnd::Aborted => &state.aborted,
        });
    }

    pub(super) fn core(&self) -> &Arc<ServerCore<P>> {
        self.core.as_ref().expect("taken only at the end")
    }
}

impl<P> Drop for ServedConnection<P> {
    fn drop(&mut self) {
        self.end(ConnectionEnd::Aborted);
    }
}

/// Whether the end of the loop has closed a channel for which the task that is polled waited.
fn is_interrupted() -> bool {
    let interrupted = |local: &Local| {
        let leftovers = local.leftovers.borrow();
        leftovers.closed && this_thread::task().is_some_and(|id| leftovers.is_interrupted(id))
    };
    context::with_local(interrupted).unwrap_or(false)
}

pin_project_lite::pin_project! {
    /// A handler's future and its connection, which ends only once the future is dropped: what the
    /// future holds, such as the stream, may live longer than its last poll.
    pub(super) struct ServeFuture<F, P> {
        #[pin]
        future: Option<F>,
        connection: Option<ServedConnection<P>>,
        limits: Option<Box<TimeWatch>>,
    }
}

impl<F, P> ServeFuture<F, P> {
    /// The connection is served elsewhere.
    fn passed_on() -> ServeFuture<F, P> {
        ServeFuture {
            future: None,
            connection: None,
            limits: None,
        }
    }
}

impl<F: Future<Output: Outcome>, P> Future for ServeFuture<F, P> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let (Some(future), Some(connection)) =
            (this.future.as_mut().as_pin_mut(), this.connection.as_mut())
        else {
            return Poll::Ready(());
        };
        let Poll::Ready(outcome) = future.poll(cx) else {
            if let Some(limits) = this.limits {
                connection.poll_limits(limits, cx);
            }
            return Poll::Pending;
        };
        let how = connection.judge(outcome.error());
        this.future.set(None);
        connection.end(how);
        // An error is user code as well: its destructor may panic, which is the task's panic.
        drop(outcome);
        *this.connection = None;
        Poll::Ready(())
    }
}

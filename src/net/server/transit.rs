//! A connection under way to another loop: how it leaves one, arrives at the other, or returns.
//!
//! - A task never moves. The task of a connection that moves ends, and a new one begins on the other loop,
//!   with the stream, what is left of the time limits, and the place in the server's books: the connection
//!   is counted once, however often it moves.
//! - A stream under way is registered with no loop. What happens to it meanwhile, the system remembers: the
//!   registration with the new loop reports bytes, an end or an error as a first registration does.
//! - A loop that rejects a connection, or accepts it and then ends without starting its task, gives it back
//!   to the loop it came from; if that has ended as well, the connection is aborted.
//!
//! ```text
//!   served ──pack──▶ under way ──unpack──▶ served by a new task, on the other loop
//!     ▲                │   │ dropped: sent to the first loop
//!     └────unpack──────┘   └──unpack──▶ served by a new task, on the first loop
//!          rejected
//! ```

use std::future::Future;

use crate::event_loop::context;
use crate::event_loop::enqueue::Admission;
use crate::event_loop::handle::EventLoop;
use crate::group::core::GroupCore;
use crate::net::server::connection::ServedConnection;
use crate::net::server::limits::TimeWatch;
use crate::net::server::listener::Listener;
use crate::net::server::mobile::MobileSeat;
use crate::sync::{Arc, Mutex, Ordering, Weak};

/// A connection that is served by no task, with all that moves along.
pub(super) trait Travels: Sized + Send + 'static {
    /// What its server serves with.
    type Handlers: 'static;

    /// Its place in the books.
    fn served(&self) -> &ServedConnection<Self::Handlers>;

    /// Takes it off this thread's loop.
    fn pack(&mut self);

    /// Puts it on this thread's loop.
    fn unpack(&mut self);

    /// Serves it on this thread's loop: until its end, or until it moves.
    fn run(self) -> impl Future<Output = ()> + 'static;
}

/// Moves a connection to another loop; returns it if it stays on this one.
pub(super) fn depart<T: Travels>(mut connection: T, target: &EventLoop) -> Option<Box<T>> {
    connection.pack();
    let transit = Transit {
        connection: Arc::new(Mutex::new(Some(connection))),
        origin: EventLoop::current(),
    };
    let mut back = send(target, transit).err()?;
    back.unpack();
    Some(back)
}

/// The loop to move to, if it is another one that stays.
pub(super) fn destination(
    workers: &Weak<GroupCore>,
    here: usize,
    index: usize,
) -> Option<EventLoop> {
    let group = workers.upgrade()?;
    let target = group.loops.get(index)?;
    let may_move = index != here && !target.state().is_shutting_down();
    may_move.then(|| target.clone())
}

/// Takes a stream and its limits off this thread's loop.
pub(super) fn detach<L: Listener>(stream: &mut L::Stream, limits: &mut Option<Box<TimeWatch>>) {
    L::detach(stream);
    if let Some(limits) = limits {
        limits.disarm();
    }
}

/// Puts a stream on this thread's loop, and its connection in the books and lists of that.
pub(super) fn attach<L: Listener, P>(
    stream: &L::Stream,
    has_limits: bool,
    served: &mut ServedConnection<P>,
    seat: &mut MobileSeat,
) {
    if has_limits {
        // As at its start: use is recorded by readiness.
        let _ = L::register(stream);
    }
    let local = context::current().expect("a connection is served by a task of a loop");
    if served.move_here(&local, L::control(stream)) {
        seat.change(local.shared.index);
        let moves = &served.core().state.moves;
        moves.fetch_add(1, Ordering::Release);
    }
}

/// Dropped before it has arrived, a connection returns to its origin.
struct Transit<T: Travels> {
    /// Taken when it arrives, or when it is rejected.
    connection: Arc<Mutex<Option<T>>>,
    /// `None` on the way back.
    origin: Option<EventLoop>,
}

/// Sends a connection to a loop; returns it if the loop rejects it.
fn send<T: Travels>(target: &EventLoop, transit: Transit<T>) -> Result<(), Box<T>> {
    let under_way = Arc::clone(&transit.connection);
    let admission = match transit.origin {
        Some(_) => Admission::New,
        None => Admission::Back,
    };
    let location = {
        let connection = under_way.lock();
        let connection = connection.as_ref().expect("it has not arrived yet");
        connection.served().core().location
    };
    let arrive = move || {
        let mut connection = transit.take().expect("it arrives once");
        connection.unpack();
        connection.run()
    };
    let Err(rejected) = target.offer_local(arrive, admission, location) else {
        return Ok(());
    };
    let back = under_way.lock().take();
    drop(rejected);
    Err(Box::new(
        back.expect("a rejected connection has not arrived"),
    ))
}

impl<T: Travels> Transit<T> {
    fn take(&self) -> Option<T> {
        self.connection.lock().take()
    }
}

impl<T: Travels> Drop for Transit<T> {
    fn drop(&mut self) {
        let Some(origin) = self.origin.take() else {
            return;
        };
        if self.connection.lock().is_some() {
            let back = Transit {
                connection: Arc::clone(&self.connection),
                origin: None,
            };
            // Rejected there as well, it is dropped, which aborts it.
            drop(send(&origin, back));
        }
    }
}

//! The traits of `futures`: executors for generic libraries, and fused handles for `select!`.
//!
//! - `Spawn` on a group uses the group's chooser; on a loop it spawns on that loop.
//! - `LocalSpawn` works on the loop's own thread only, and returns an error elsewhere.
//! - `SpawnError` has a single kind, "shut down", which is returned for every rejection.

use futures::future::{FusedFuture, FutureObj, LocalFutureObj};
use futures::task::{LocalSpawn, Spawn, SpawnError};

use crate::event_loop::handle::EventLoop;
use crate::group::handle::EventLoopGroup;
use crate::spawn::try_spawn_local;
use crate::task::join::JoinHandle;

impl Spawn for EventLoopGroup {
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        self.next().spawn_obj(future)
    }

    fn status(&self) -> Result<(), SpawnError> {
        shutdown_unless(!self.is_shutdown())
    }
}

impl Spawn for EventLoop {
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        match self.try_spawn(future) {
            Ok(handle) => {
                drop(handle);
                Ok(())
            }
            Err(_) => Err(SpawnError::shutdown()),
        }
    }

    fn status(&self) -> Result<(), SpawnError> {
        shutdown_unless(!self.state().is_shutdown())
    }
}

impl LocalSpawn for EventLoop {
    fn spawn_local_obj(&self, future: LocalFutureObj<'static, ()>) -> Result<(), SpawnError> {
        self.status_local()?;
        match try_spawn_local(future) {
            Ok(handle) => {
                drop(handle);
                Ok(())
            }
            Err(_) => Err(SpawnError::shutdown()),
        }
    }

    fn status_local(&self) -> Result<(), SpawnError> {
        shutdown_unless(self.in_event_loop() && !self.state().is_shutdown())
    }
}

fn shutdown_unless(accepting: bool) -> Result<(), SpawnError> {
    if accepting {
        Ok(())
    } else {
        Err(SpawnError::shutdown())
    }
}

impl<T> FusedFuture for JoinHandle<T> {
    fn is_terminated(&self) -> bool {
        self.is_joined()
    }
}

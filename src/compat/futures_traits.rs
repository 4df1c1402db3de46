//! The traits of `futures`: executors that libraries are generic over, and handles for `select!`.
//!
//! - `Spawn` on a group chooses by the group's chooser; on a loop it stays on that loop.
//! - `LocalSpawn` works on the loop's own thread only, and says so elsewhere.
//! - `SpawnError` knows one reason, "shut down": it stands for every refusal.

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
        accepting(!self.is_shutdown())
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
        accepting(!self.state().is_shutdown())
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
        accepting(self.in_event_loop() && !self.state().is_shutdown())
    }
}

fn accepting(accepting: bool) -> Result<(), SpawnError> {
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

//! The runtimes, and what a workload may ask of one.
//!
//! - A runtime is a marker type with [`Spawn`]: functions without `self`, as in user code that finds its
//!   runtime around it.
//! - Beside the trait each has functions of its own, `run` and `run_then_drop`. They are not in a
//!   trait since their bounds differ: a future for a work-stealing runtime must be `Send`, and that
//!   it is can be told only where the runtime is known. [`with_runtime!`] is that place.
//! - A runtime that has no way to be given work from another thread is fed through a channel ([`fed`]).

mod compio;
pub(crate) mod echo;
mod fed;
pub(crate) mod floor;
mod futures;
mod glommio;
pub(crate) mod loopgroup;
mod monoio;
pub(crate) mod smol;
mod smol_local;
pub(crate) mod tokio_current;
mod tokio_local;
pub(crate) mod tokio_multi;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Instant;

#[cfg(feature = "full")]
pub(crate) use self::{compio::Compio, glommio::Glommio, monoio::Monoio};
pub(crate) use self::{
    futures::Futures, loopgroup::Loopgroup, smol::Smol, smol_local::SmolLocal,
    tokio_current::TokioCurrent, tokio_local::TokioLocal, tokio_multi::TokioMulti,
};

/// What code finds around it on the loop that runs it.
pub(crate) trait Spawn: 'static {
    /// Resolves when the task is done. What it resolves to differs, and no workload looks at it.
    type Handle<T: Send + 'static>: Future;
    /// One loop on a thread of its own.
    type Loop: Remote;

    fn spawn<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static;

    /// Spawns a task that nobody waits for.
    fn detach<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static;

    /// The runtime's own way to let others go first.
    fn yield_now() -> impl Future<Output = ()> + Send {
        yield_once()
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()>;

    /// Spawns a task that sleeps, then calls; nobody waits for it.
    fn detach_at(deadline: Instant, call: impl FnOnce() + Send + 'static);
}

/// A loop that is given work from outside; its thread ends with the process.
pub(crate) trait Remote: Send + Sync + 'static {
    /// Resolves when the task is done. What it resolves to differs, and no workload looks at it.
    type Handle<T: Send + 'static>: Future + Send;

    fn start() -> Self;

    /// Spawns a task, with the handle that a user gets.
    fn spawn_joined<F>(&self, future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static;

    /// Spawns a task and drops its handle.
    fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static;

    /// Spawns a task that has no handle to begin with, if the runtime has such a way.
    fn spawn_detached<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn(future);
    }

    /// Has the loop call a closure: a future that is ready at once, where there is nothing else.
    fn execute(&self, call: impl FnOnce() + Send + 'static) {
        self.spawn(async move { call() });
    }
}

/// An echo server on one thread, until the process ends.
pub(crate) trait Serve {
    /// Starts it, with handlers that have a buffer of so many bytes each; says where it listens.
    fn serve(buffer: usize) -> SocketAddr;
}

/// Wakes itself and is pending once: the yield of runtimes that have none of their own.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await
}

macro_rules! runtimes {
    ($($variant:ident = $name:literal,)*) => {
        /// Everything that can stand in a column.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Runtime { $($variant,)* }

        impl Runtime {
            pub(crate) const ALL: &[Runtime] = &[$(Runtime::$variant,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Runtime::$variant => $name,)* }
            }
        }
    };
}

runtimes! {
    Loopgroup = "loopgroup",
    LoopgroupSpin = "loopgroup-spin",
    LoopgroupPrecise = "loopgroup-precise",
    LoopgroupBoss = "loopgroup-boss",
    LoopgroupUnmoved = "loopgroup-unmoved",
    LoopgroupPinned = "loopgroup-pinned",
    LoopgroupEven = "loopgroup-even",
    LoopgroupElastic = "loopgroup-elastic",
    Floor = "floor",
    FloorSpin = "floor-spin",
    TokioCurrent = "tokio-current",
    TokioLocal = "tokio-local",
    TokioMulti = "tokio-multi",
    Smol = "smol",
    SmolLocal = "smol-local",
    Futures = "futures",
    Monoio = "monoio",
    Glommio = "glommio",
    Compio = "compio",
    Netty = "netty",
    Redis = "redis",
}

impl Runtime {
    pub(crate) fn named(name: &str) -> Option<Runtime> {
        Runtime::ALL.iter().copied().find(|it| it.name() == name)
    }

    /// Whether it is loopgroup or the floor, and so no peer to be beaten.
    pub(crate) fn is_peer(self) -> bool {
        let name = self.name();
        !name.starts_with("loopgroup") && !name.starts_with("floor")
    }

    /// Whether work from other threads reaches it only through a channel.
    pub(crate) fn is_fed(self) -> bool {
        use Runtime::{Compio, Futures, Glommio, Monoio, SmolLocal, TokioLocal};
        matches!(
            self,
            TokioLocal | SmolLocal | Futures | Monoio | Glommio | Compio
        )
    }

    /// Whether it is only there to show spinning, in workloads that wait.
    pub(crate) fn spins(self) -> bool {
        matches!(self, Runtime::LoopgroupSpin | Runtime::FloorSpin)
    }

    /// Whether it is only there to show precise timers.
    pub(crate) fn is_precise(self) -> bool {
        self == Runtime::LoopgroupPrecise
    }

    /// Whether it is only there as a whole program.
    pub(crate) fn is_program(self) -> bool {
        matches!(self, Runtime::LoopgroupBoss | Runtime::Redis)
    }

    /// Whether it is only there to show what moving connections is good for.
    pub(crate) fn is_placement(self) -> bool {
        matches!(
            self,
            Runtime::LoopgroupUnmoved
                | Runtime::LoopgroupPinned
                | Runtime::LoopgroupEven
                | Runtime::LoopgroupElastic
        )
    }

    /// Whether it takes part only in some workloads.
    pub(crate) fn is_variant(self) -> bool {
        self.spins() || self.is_precise() || self.is_program() || self.is_placement()
    }

    /// The feature that it needs, if any.
    pub(crate) fn feature(self) -> Option<&'static str> {
        use Runtime::{Compio, Glommio, LoopgroupBoss, LoopgroupPinned, Monoio, Netty, Redis};
        match self {
            Monoio | Glommio | Compio | Netty => Some("full"),
            LoopgroupBoss | LoopgroupPinned | Redis => Some("programs"),
            _ => None,
        }
    }

    /// Whether this build has it.
    pub(crate) fn is_built(self) -> bool {
        match self.feature() {
            Some("full") => cfg!(feature = "full"),
            Some(_) => cfg!(feature = "programs"),
            None => true,
        }
    }
}

/// What the runtimes on io_uring make of this system.
#[cfg(feature = "full")]
pub(crate) fn drivers() -> String {
    let (monoio, compio) = (monoio::driver(), compio::driver());
    format!("monoio runs on {monoio}, compio on {compio}, glommio on io_uring, Netty on NIO")
}

#[cfg(not(feature = "full"))]
pub(crate) fn drivers() -> String {
    "All on epoll".into()
}

/// Why a runtime cannot do a workload, where that is known beforehand.
pub(crate) fn refusal(runtime: Runtime, workload: &str) -> Option<&'static str> {
    match (runtime, workload) {
        (Runtime::Futures, "w7.churn" | "w7.lateness" | "w8" | "w10.idle" | "w10.rate") => {
            Some(futures::NO_DRIVER)
        }
        (Runtime::Monoio, "w3") => {
            Some("a task that yields runs again at once: tasks take no turns")
        }
        (Runtime::Smol | Runtime::SmolLocal, "w14") => Some(smol::NO_END),
        (Runtime::TokioMulti, "w5") => {
            Some("tasks have no loop of their own: both run on one worker")
        }
        _ => None,
    }
}

/// Evaluates an expression with `$R` standing for the runtime's type.
///
/// # Panics
///
/// If it has none: for the floor, for variants of others, and for what is not in this build.
macro_rules! with_runtime {
    ($runtime:expr, $R:ident => $body:expr) => {{
        macro_rules! on {
            ($type:ident) => {{
                type $R = $crate::runtimes::$type;
                $body
            }};
        }
        use $crate::runtimes::Runtime;
        match $runtime {
            Runtime::Loopgroup => on!(Loopgroup),
            Runtime::TokioCurrent => on!(TokioCurrent),
            Runtime::TokioLocal => on!(TokioLocal),
            Runtime::TokioMulti => on!(TokioMulti),
            Runtime::Smol => on!(Smol),
            Runtime::SmolLocal => on!(SmolLocal),
            Runtime::Futures => on!(Futures),
            #[cfg(feature = "full")]
            Runtime::Monoio => on!(Monoio),
            #[cfg(feature = "full")]
            Runtime::Glommio => on!(Glommio),
            #[cfg(feature = "full")]
            Runtime::Compio => on!(Compio),
            other => unreachable!("{} has no type", other.name()),
        }
    }};
}
pub(crate) use with_runtime;

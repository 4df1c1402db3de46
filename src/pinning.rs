//! CPU affinity: pins the thread of each loop to a core.
//!
//! - `build` checks the requested cores against those that the process may use: an invalid core is an
//!   error there, instead of a thread that silently runs on another one.
//! - The system has an affinity mask per thread, but none per process. The mask of the process is here
//!   the union of its threads' masks: neither a pinned main thread nor a pinned thread that builds a
//!   group narrows it.
//! - A thread pins itself before it does anything else. If that fails (the allowed set has changed
//!   since), the loop ends as `Failed` and its report has the error.

use std::io;

use crate::builder::{Builder, invalid};
use crate::config::PinThread;

/// Which core each loop runs on; see [`Builder::pin_cores`].
///
/// # Examples
///
/// ```
/// use loopgroup::{CorePinning, EventLoopGroup};
///
/// assert_eq!(CorePinning::default(), CorePinning::None);
/// let no_cores = EventLoopGroup::builder().pin_cores(CorePinning::List(Vec::new()));
/// assert!(no_cores.build().is_err()); // a list needs at least one core
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorePinning {
    /// No pinning: the system schedules the threads on any core. The default.
    #[default]
    None,
    /// Loop 0 on the first core that the process may use, loop 1 on the next, and so on, cyclically.
    /// The process may use the cores of all its threads together: a pinned thread does not reduce them
    /// unless it is the only thread. In that case, build the group before pinning the thread.
    RoundRobin,
    /// Loop 0 on the first core of the list, loop 1 on the next, and so on, cyclically. Cores have the
    /// system's numbers.
    List(Vec<usize>),
}

#[cfg_attr(docsrs, doc(cfg(feature = "affinity")))]
impl Builder {
    /// Pins the thread of each loop to a core; the default does not. Linux only.
    ///
    /// Pinned loops keep their caches and their proximity to a device's interrupts; but a loop cannot
    /// move away from a core that other threads keep busy. Threads that are started on a loop inherit
    /// its core: those that its tasks start, and also those of a
    /// [`BlockingGroup`](crate::blocking::BlockingGroup), of [`unblock`](crate::blocking::unblock) or
    /// of another group that is first used there. Use these once from a thread that is not pinned, to
    /// give them all cores. A thread of a [`thread_factory`](Builder::thread_factory) stays pinned
    /// after its loop has ended.
    ///
    /// If a core is removed from the allowed set between `build` and the start of its loop's thread,
    /// the loop ends as [`Failed`](crate::EndCause::Failed); if it is removed later, the loop continues.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) returns `InvalidInput` if the list is empty or contains a core that the
    /// process may not use (`sched_getaffinity` of all its threads: containers and `taskset` restrict it),
    /// and `Unsupported` on systems other than Linux.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{CorePinning, EventLoopGroup};
    ///
    /// let pinning = CorePinning::List(vec![100_000]);
    /// let error = EventLoopGroup::builder().pin_cores(pinning).build().unwrap_err();
    /// assert!(error.to_string().starts_with("pin_cores: "), "{error}");
    /// # #[cfg(target_os = "linux")] {
    /// let group = EventLoopGroup::builder()
    ///     .loops(2)
    ///     .pin_cores(CorePinning::RoundRobin)
    ///     .build()?;
    /// group.start()?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn pin_cores(mut self, pinning: CorePinning) -> Builder {
        self.pin_plan = match pinning {
            CorePinning::None => None,
            pinning => Some(Box::new(move |loops| assign_cores(pinning, loops))),
        };
        self
    }
}

/// Assigns a core to each of `loops` loops; returns the function that pins the thread of a loop.
fn assign_cores(pinning: CorePinning, loops: usize) -> io::Result<Box<PinThread>> {
    let allowed = system::allowed_cores()?;
    let wanted = match pinning {
        CorePinning::List(list) => list,
        _ => allowed.clone(),
    };
    if wanted.is_empty() {
        return Err(invalid("pin_cores", "a list needs at least one core"));
    }
    if let Some(core) = wanted.iter().find(|core| !allowed.contains(core)) {
        let text = format!("core {core} is none of those that this process may use: {allowed:?}");
        return Err(invalid("pin_cores", &text));
    }
    let cores: Vec<usize> = wanted.into_iter().cycle().take(loops).collect();
    Ok(Box::new(move |index| system::pin(cores[index])))
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;

    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    /// The cores that any thread of the process may use.
    pub(super) fn allowed_cores() -> io::Result<Vec<usize>> {
        let mut sets = vec![sched_getaffinity(Pid::from_raw(0))?];
        // Threads that end in the meantime are skipped; without /proc, only the calling thread counts.
        let threads = std::fs::read_dir("/proc/self/task");
        let names = threads.into_iter().flatten().flatten();
        let ids = names.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
        sets.extend(ids.filter_map(|id| sched_getaffinity(Pid::from_raw(id)).ok()));
        let is_allowed = |&core: &usize| sets.iter().any(|set| set.is_set(core).unwrap_or(false));
        Ok((0..CpuSet::count()).filter(is_allowed).collect())
    }

    /// Restricts the calling thread to this core.
    pub(super) fn pin(core: usize) -> io::Result<()> {
        let this_thread = Pid::from_raw(0);
        let mut set = CpuSet::new();
        set.set(core)?;
        sched_setaffinity(this_thread, &set).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("cannot pin to core {core}: {error}"))
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    pub(super) fn allowed_cores() -> io::Result<Vec<usize>> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "pin_cores: this system has no way to pin a thread to a core",
        ))
    }

    pub(super) fn pin(_: usize) -> io::Result<()> {
        allowed_cores().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EndCause, EventLoopGroup};

    #[test]
    fn a_loop_that_cannot_be_pinned_fails_and_says_so() {
        let mut builder = EventLoopGroup::builder().loops(1);
        builder.pin_plan = Some(Box::new(|_| {
            Ok(Box::new(|index| {
                Err(io::Error::other(format!("no core for loop {index}")))
            }))
        }));
        let group = builder.build().unwrap();
        // The task is accepted or refused, depending on when the loop ends; its handle always resolves.
        let error = group.block_on(group.spawn(async {})).unwrap_err();
        assert!(error.is_cancelled() || error.is_rejected());
        let report = group.termination().wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Failed);
        let error = report.loops()[0].error().unwrap();
        assert_eq!(error.to_string(), "no core for loop 0");
    }
}

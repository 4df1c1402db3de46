//! A copy of what the recorders of groups have on their tapes.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use crate::group::handle::EventLoopGroup;
use crate::recorder::process::{LoopTrace, ProcessTrace};
use crate::recorder::tape::{Recorder, Tape};
use crate::recorder::{chrome, lane};
use crate::sync::Arc;

/// What the loops of a group did last, as their [flight recorder](crate::Builder::flight_recorder) has it;
/// see [`EventLoopGroup::trace`].
///
/// It is a copy: what the loops do afterwards does not change it. As Chrome's trace JSON it opens in
/// [Perfetto](https://ui.perfetto.dev), which runs in the browser and sends nothing away. There a group is a
/// process and a loop a thread, with
///
/// - its turns, and in them the polls of tasks and the calls of closures, each with the name of the task or
///   the place of its spawn, and with its id;
/// - its waits, as `park`;
/// - an arrow from each wake by a loop, and each spawn by a task, to the poll that followed, also if that is
///   on another loop;
/// - marks for timers that fired, sockets that became ready and connections that were accepted.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().loops(2).flight_recorder(10_000).build()?;
/// group.block_on(group.spawn(async { loopgroup::yield_now().await })).unwrap();
///
/// let trace = group.trace();
/// assert!(trace.events() > 0);
/// std::fs::write(std::env::temp_dir().join("loops.json"), trace.to_chrome_json())?;
/// assert!(trace.last(Duration::from_secs(60)).events() <= trace.events());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Default)]
pub struct Trace {
    processes: Vec<ProcessTrace>,
}

impl Trace {
    /// Creates a trace without loops, for the traces of several groups.
    ///
    /// # Examples
    ///
    /// ```
    /// let trace = loopgroup::Trace::new();
    /// assert_eq!((trace.loops(), trace.events(), trace.is_empty()), (0, 0, true));
    /// ```
    pub fn new() -> Trace {
        Trace::default()
    }

    /// Adds the loops of another trace, as a process or several of their own. All groups of the process have
    /// one time, so that wakes between groups are shown as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, Trace};
    ///
    /// let make = || EventLoopGroup::builder().loops(1).flight_recorder(1_000).build();
    /// let (acceptors, workers) = (make()?, make()?);
    /// let trace = Trace::new()
    ///     .with(acceptors.trace().named("acceptors"))
    ///     .with(workers.trace().named("workers"));
    /// assert_eq!(trace.loops(), 2);
    /// assert!(trace.to_chrome_json().contains("\"workers\""));
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use = "this returns the trace with the other one in it"]
    pub fn with(mut self, other: Trace) -> Trace {
        self.processes.extend(other.processes);
        self
    }

    /// Sets the name of the group, which a viewer shows; the default is `group`. See
    /// [`with`](Trace::with) for an example.
    #[must_use = "this returns the trace with the name"]
    pub fn named(mut self, name: impl Into<String>) -> Trace {
        let name = name.into();
        for process in &mut self.processes {
            process.name.clone_from(&name);
        }
        self
    }

    /// Returns how many loops there are.
    pub fn loops(&self) -> usize {
        self.processes.iter().map(|one| one.loops.len()).sum()
    }

    /// Returns how many events there are. A poll has two: it begins and it ends.
    pub fn events(&self) -> usize {
        self.all().map(|one| one.records.len()).sum()
    }

    /// Returns whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.events() == 0
    }

    /// Returns what happened in the last `duration` before the trace was taken, or before its recorder was
    /// frozen, and what had begun earlier and not ended by then.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestLoop, EventLoopGroup};
    /// use std::time::Duration;
    ///
    /// let mut test = TestLoop::from_builder(EventLoopGroup::builder().flight_recorder(1_000))?;
    /// let poll_once = |test: &mut TestLoop| {
    ///     test.spawn(async {});
    ///     test.run_until_stalled();
    /// };
    /// poll_once(&mut test);
    /// test.advance(Duration::from_secs(3600));
    /// let before = test.group().trace().events();
    /// poll_once(&mut test);
    /// let trace = test.group().trace();
    /// let last = trace.last(Duration::from_secs(1));
    /// assert!(last.events() < trace.events());
    /// assert!(last.events() >= trace.events() - before);
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use = "this returns a part of the trace"]
    pub fn last(&self, duration: Duration) -> Trace {
        let mut trace = self.clone();
        for process in &mut trace.processes {
            for one in &mut process.loops {
                one.records = lane::last(&one.records, process.until, duration);
            }
        }
        trace
    }

    /// Returns the trace in the trace event format of Chrome: JSON, for [Perfetto](https://ui.perfetto.dev)
    /// and other viewers.
    ///
    /// Names of tasks are data, whatever characters they have: the text is valid JSON without control
    /// characters, and does not contain `</`, so that it ends no script of a page that it is put into.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?; // without a recorder
    /// let json = group.trace().to_chrome_json();
    /// assert_eq!(json, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn to_chrome_json(&self) -> String {
        let mut text = Vec::new();
        chrome::write(&self.processes, &mut text).expect("memory can be written to");
        String::from_utf8(text).expect("it is written in strings alone")
    }

    /// Writes the text of [`to_chrome_json`](Trace::to_chrome_json), which is some 100 bytes per event,
    /// without keeping it in memory.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::fs::File;
    ///
    /// let group = loopgroup::EventLoopGroup::builder().loops(1).flight_recorder(1_000).build()?;
    /// group.block_on(group.spawn(async {})).unwrap();
    /// let mut file = File::create(std::env::temp_dir().join("loops-written.json"))?;
    /// group.trace().write_chrome_json(&mut file)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn write_chrome_json(&self, out: &mut impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        chrome::write(&self.processes, &mut out)?;
        out.flush()
    }

    fn all(&self) -> impl Iterator<Item = &LoopTrace> {
        self.processes.iter().flat_map(|one| &one.loops)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("loops", &self.loops())
            .field("events", &self.events())
            .finish_non_exhaustive()
    }
}

impl EventLoopGroup {
    /// Returns what the loops of the group did last: a copy of its
    /// [flight recorder](crate::Builder::flight_recorder), or an empty trace if it has none.
    ///
    /// Any thread, no hop: the loops go on, and one that is stuck for ever is shown in the poll that it is
    /// in. The trace can also be taken when the group has ended. It is not taken at one instant of all
    /// loops, but loop after loop, within the time that it takes to copy the recorder.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    ///
    /// let group = EventLoopGroup::builder().loops(1).flight_recorder(1_000).build()?;
    /// let (release, held) = std::sync::mpsc::channel::<()>();
    /// let stuck = group.task().name("stuck").spawn(async move { held.recv().unwrap_or(()) });
    /// let shows_it = || {
    ///     let json = group.trace().to_chrome_json();
    ///     json.lines().any(|line| line.contains("\"stuck\"") && line.contains("\"unfinished\":true"))
    /// };
    /// while !shows_it() {
    ///     std::thread::yield_now(); // until the poll has begun
    /// }
    /// drop(release);
    /// group.block_on(stuck).unwrap();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn trace(&self) -> Trace {
        let Some(recorder) = self.recorder() else {
            return Trace::new();
        };
        let loops = self.tapes().map(|(name, tape)| {
            let (records, names) = tape.read();
            LoopTrace {
                thread_name: name.clone(),
                records,
                names: Arc::new(names),
            }
        });
        let process = ProcessTrace {
            name: "group".to_owned(),
            loops: loops.collect(),
            until: recorder.frozen().unwrap_or_else(|| recorder.now()),
        };
        Trace {
            processes: vec![process],
        }
    }

    /// Freezes the [flight recorder](crate::Builder::flight_recorder): from here on the loops record nothing,
    /// and what they have recorded is kept until it is [resumed](EventLoopGroup::resume_recorder). Has no
    /// effect if it is frozen, or if there is none. Any thread.
    ///
    /// The watchdog does the same when it finds a stall, see
    /// [`freeze_on_stall`](crate::Builder::freeze_on_stall).
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::builder().loops(1).flight_recorder(1_000).build()?;
    /// group.freeze_recorder();
    /// assert!(group.is_recorder_frozen());
    /// group.block_on(group.spawn(async {})).unwrap();
    /// assert!(group.trace().is_empty());
    /// group.resume_recorder();
    /// group.block_on(group.spawn(async {})).unwrap();
    /// assert!(!group.trace().is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn freeze_recorder(&self) {
        if let Some(recorder) = self.recorder() {
            recorder.freeze();
        }
    }

    /// Has the flight recorder record again, after it was frozen by
    /// [`freeze_recorder`](EventLoopGroup::freeze_recorder) or by a stall. What was recorded before stays
    /// until it is overwritten.
    pub fn resume_recorder(&self) {
        if let Some(recorder) = self.recorder() {
            recorder.resume();
        }
    }

    /// Returns whether the flight recorder is frozen; `false` if there is none.
    pub fn is_recorder_frozen(&self) -> bool {
        self.recorder()
            .is_some_and(|recorder| recorder.frozen().is_some())
    }

    fn recorder(&self) -> Option<&Recorder> {
        self.tapes().map(|(_, tape)| &*tape.recorder).next()
    }

    /// The tapes of the loops, and the names of their threads.
    fn tapes(&self) -> impl Iterator<Item = (&String, &Tape)> {
        self.core().loops.iter().filter_map(|one| {
            let shared = one.shared();
            let name = &shared.config.thread_names[shared.index];
            shared.tape.as_deref().map(|tape| (name, tape))
        })
    }
}

//! How a simulation ends: its report, or what went wrong, when, and how to see it again.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// What the future of a host or client may return: nothing, or a result whose error ends the simulation. It
/// may also never return.
pub trait Outcome {
    #[doc(hidden)]
    fn into_error(self) -> Option<String>;
}

impl Outcome for () {
    fn into_error(self) -> Option<String> {
        None
    }
}

impl Outcome for Never {
    fn into_error(self) -> Option<String> {
        self
    }
}

/// The type `!`, which has no name yet: a program may never return.
type Never = <fn() -> ! as Returns>::Output;

/// Names the output of a function pointer.
pub trait Returns {
    /// What it returns.
    type Output;
}

impl<T> Returns for fn() -> T {
    type Output = T;
}

impl<E: fmt::Display> Outcome for Result<(), E> {
    fn into_error(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// How a simulation has gone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimReport {
    pub(super) seed: u64,
    pub(super) elapsed: Duration,
    pub(super) turns: u64,
    pub(super) trace: u64,
}

impl SimReport {
    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns how much virtual time has passed.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns how many turns of loops were run.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Returns a hash over everything that has happened: two runs of one seed have the same.
    pub fn trace(&self) -> u64 {
        self.trace
    }
}

impl fmt::Display for SimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SimReport {
            seed,
            elapsed,
            turns,
            trace,
        } = self;
        write!(
            f,
            "seed {seed}: {elapsed:?} of virtual time in {turns} turns, trace {trace:016x}"
        )
    }
}

/// Why a simulation has ended before its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimErrorKind {
    /// A host or client has returned an error.
    Failed,
    /// A host or client, or a task of theirs, has panicked.
    Panicked,
    /// The polls of a host or client have waited for real time, half a second or more: virtual time stands
    /// still meanwhile. Found on Linux, a few times in each second.
    RealTime,
    /// The clients have not ended within the longest time that was allowed.
    TimeLimit,
    /// Nothing will ever happen any more, and the clients have not ended.
    Stuck,
}

/// A simulation that has failed: what, when, where, and the last that was seen on the network.
#[derive(Clone)]
pub struct SimError(pub(super) Box<Failure>);

#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) kind: SimErrorKind,
    pub(super) seed: u64,
    pub(super) at: Duration,
    pub(super) host: Option<String>,
    pub(super) text: String,
    pub(super) waiting: Vec<String>,
    pub(super) faults: Vec<String>,
    pub(super) events: Vec<String>,
    pub(super) diagram: String,
}

impl SimError {
    /// Returns what kind of failure it is.
    pub fn kind(&self) -> SimErrorKind {
        self.0.kind
    }

    /// Returns the seed that shows it again.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Returns the virtual time at which it happened.
    pub fn at(&self) -> Duration {
        self.0.at
    }

    /// Returns the name of the host or client that failed, if it was one.
    pub fn host(&self) -> Option<&str> {
        self.0.host.as_deref()
    }

    /// Returns what the host, the client or the panic said.
    pub fn message(&self) -> &str {
        &self.0.text
    }

    /// Returns the last events of the network, a line each, the latest at the end.
    pub fn last_events(&self) -> &[String] {
        &self.0.events
    }

    /// Returns the last events of the network as a picture (SVG): hosts from left to right, time from top to
    /// bottom, and an arrow for each packet.
    pub fn diagram(&self) -> &str {
        &self.0.diagram
    }

    /// Returns the faults that had happened, a line each.
    pub fn faults(&self) -> &[String] {
        &self.0.faults
    }
}

impl SimError {
    /// Whether it is the same failure, as far as can be seen: the time and numbers may differ.
    pub(super) fn is_like(&self, other: &SimError) -> bool {
        let words = |failure: &Failure| -> String {
            let letters = failure.text.chars().filter(|one| !one.is_ascii_digit());
            letters.collect()
        };
        let (one, other) = (&*self.0, &*other.0);
        one.kind == other.kind && one.host == other.host && words(one) == words(other)
    }
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failure = &*self.0;
        write!(f, "seed {}, after {:?}: ", failure.seed, failure.at)?;
        if let Some(host) = &failure.host {
            write!(f, "{host:?} ")?;
        }
        let what = match failure.kind {
            SimErrorKind::Failed => "failed: ",
            SimErrorKind::Panicked => "panicked: ",
            SimErrorKind::RealTime | SimErrorKind::TimeLimit | SimErrorKind::Stuck => "",
        };
        write!(f, "{what}{}", failure.text)?;
        for (title, lines) in [
            ("still waiting", &failure.waiting),
            ("faults", &failure.faults),
            ("the last events of the network", &failure.events),
        ] {
            if !lines.is_empty() {
                write!(f, "\n{title}:")?;
            }
            for line in lines {
                write!(f, "\n    {line}")?;
            }
        }
        Ok(())
    }
}

// Without the picture, and readable: this is what `unwrap` prints.
impl fmt::Debug for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for SimError {}

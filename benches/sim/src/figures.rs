//! What one run takes: by the clock on the wall, and of a core.

use std::time::{Duration, Instant};

pub(crate) struct Figures {
    pub(crate) real: Duration,
    /// Of this thread, on which a simulation runs from its beginning to its end. What else runs on the
    /// machine lengthens `real`, and this hardly. Linux tells it; elsewhere it is `real`.
    pub(crate) cpu: Duration,
    /// Answers that have arrived.
    pub(crate) heartbeats: u64,
}

impl Figures {
    pub(crate) fn of(run: impl FnOnce() -> u64) -> Figures {
        let (start, cpu) = (Instant::now(), cpu());
        let heartbeats = run();
        let real = start.elapsed();
        let cpu = cpu.and_then(|before| Some(self::cpu()? - before));
        Figures {
            real,
            cpu: cpu.unwrap_or(real),
            heartbeats,
        }
    }
}

/// The first number of the file is nanoseconds on a core.
fn cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

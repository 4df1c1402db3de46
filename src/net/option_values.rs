//! Values of socket options as the system represents them.
//!
//! - Options are C ints, and some of them bytes. A value that does not fit is clamped or rounded up where
//!   that means the same, and an error elsewhere. It is never truncated, which may mean something else.

use std::io;
use std::time::Duration;

/// The largest option value that the system accepts: truncation of a larger value may give 0.
pub(super) const MAX_OPTION: usize = i32::MAX as usize;

/// Rounds up to whole seconds: rounded down to zero, a linger time would mean a reset.
pub(super) fn whole_seconds(time: Duration) -> Duration {
    let fraction = u64::from(time.subsec_nanos() > 0);
    let seconds = time.as_secs().saturating_add(fraction);
    Duration::from_secs(seconds.min(MAX_OPTION as u64))
}

/// Returns a value that fits into a byte, or an error that names it.
pub(super) fn one_byte(name: &str, value: u32) -> io::Result<u32> {
    if value <= u32::from(u8::MAX) {
        return Ok(value);
    }
    let text = format!("a {name} has one byte: {value} is more than 255");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

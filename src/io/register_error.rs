//! The error of a descriptor that cannot be wrapped, with the descriptor.

use std::error::Error;
use std::fmt;
use std::io;

/// The error of [`Registered::try_new`](crate::io::Registered::try_new), with the value that was given.
///
/// # Examples
///
/// ```
/// use loopgroup::io::{RegisterError, Registered};
///
/// /// Falls back to the blocking value.
/// fn wrap<T: std::os::fd::AsFd>(io: T) -> Result<Registered<T>, T> {
///     Registered::try_new(io).map_err(|failed: RegisterError<T>| {
///         eprintln!("{}", failed.error());
///         failed.into_inner()
///     })
/// }
/// assert!(wrap(std::net::UdpSocket::bind("127.0.0.1:0")?).is_ok());
/// # std::io::Result::Ok(())
/// ```
pub struct RegisterError<T> {
    error: io::Error,
    io: T,
}

impl<T> RegisterError<T> {
    pub(super) fn new(error: io::Error, io: T) -> RegisterError<T> {
        RegisterError { error, io }
    }

    /// Returns the error of the operating system.
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.io
    }

    /// Returns the error and the value.
    pub fn into_parts(self) -> (io::Error, T) {
        (self.error, self.io)
    }
}

impl<T> fmt::Debug for RegisterError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegisterError").field(&self.error).finish()
    }
}

impl<T> fmt::Display for RegisterError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the descriptor cannot be made non-blocking: {}",
            self.error
        )
    }
}

impl<T> Error for RegisterError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// Returns the error of the operating system, as it was.
impl<T> From<RegisterError<T>> for io::Error {
    fn from(failed: RegisterError<T>) -> io::Error {
        failed.error
    }
}

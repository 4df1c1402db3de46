//! The errors of a kernel, as the numbers of this system, so that kinds and texts are the real ones.

use std::io;

pub(super) use libc::{
    EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EBADF, ECONNREFUSED, ECONNRESET, EDESTADDRREQ,
    EEXIST, EHOSTUNREACH, EINVAL, EMSGSIZE, ENETDOWN, ENETUNREACH, ENOENT, ENOTCONN, EOPNOTSUPP,
    EPIPE, EPROTOTYPE, ETIMEDOUT,
};

/// The error with this number.
pub(super) fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// A failure with this number.
pub(super) fn fail<T>(code: i32) -> io::Result<T> {
    Err(error(code))
}

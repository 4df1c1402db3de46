//! How bytes are given to a stream socket of the system.
//!
//! - A write to a closed peer is an error and no signal.
//! - A few small buffers are copied together and sent by the cheaper call.

use std::os::fd::AsFd;

use socket2::SockRef;

/// The most buffers that the system accepts in one vectored call (`IOV_MAX`).
const MAX_BUFFERS: usize = 1024;

/// The number of bytes requested by a vectored call; fewer means that it was short. Buffers beyond the
/// limit do not count, since the call ignores them.
pub(super) fn requested(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.take(MAX_BUFFERS).sum()
}

/// Up to here, copying the buffers together costs less than a list of them costs the system: the head and the
/// body of a small HTTP response, say.
const FLAT: usize = 512;

/// Makes a write to a closed peer return an error instead of raising `SIGPIPE`. Apple's systems have a
/// socket option for it, which is set when the socket is created.
#[cfg(not(target_vendor = "apple"))]
const NO_SIGNAL: libc::c_int = libc::MSG_NOSIGNAL;
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: libc::c_int = 0;

/// Writes a buffer, without `SIGPIPE`.
pub(super) fn write(socket: &impl AsFd, buf: &[u8]) -> std::io::Result<usize> {
    SockRef::from(socket).send_with_flags(buf, NO_SIGNAL)
}

/// Writes at most [`MAX_BUFFERS`] buffers, without `SIGPIPE`.
pub(super) fn write_vectored(
    socket: &impl AsFd,
    bufs: &[std::io::IoSlice<'_>],
) -> std::io::Result<usize> {
    if requested(bufs.iter().map(|buf| buf.len())) <= FLAT {
        return write_flat(socket, bufs);
    }
    let bufs = &bufs[..bufs.len().min(MAX_BUFFERS)];
    SockRef::from(socket).send_vectored_with_flags(bufs, NO_SIGNAL)
}

/// Writes buffers that are small together as one.
fn write_flat(socket: &impl AsFd, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
    let (mut flat, mut len) = ([0; FLAT], 0);
    for buf in bufs.iter().take(MAX_BUFFERS) {
        flat[len..len + buf.len()].copy_from_slice(buf);
        len += buf.len();
    }
    write(socket, &flat[..len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{IoSlice, Read};
    use std::os::unix::net::UnixStream;

    #[test]
    fn vectored_writes_of_every_size_arrive_in_order() {
        let bytes: Vec<u8> = (0..2 * FLAT).map(|place| place as u8).collect();
        for len in [0, 1, 105, FLAT - 1, FLAT, FLAT + 1, 2 * FLAT] {
            for cut in [0, 1, len / 2, len] {
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                let (head, tail) = bytes[..len].split_at(cut.min(len));
                let bufs = [head, &[], tail].map(IoSlice::new);
                assert_eq!(write_vectored(&ours, &bufs).unwrap(), len);
                drop(ours);
                let mut read = Vec::new();
                theirs.read_to_end(&mut read).unwrap();
                assert_eq!(read, &bytes[..len]);
            }
        }
    }

    #[test]
    fn buffers_beyond_the_most_that_a_call_takes_are_left_to_the_next() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut bufs = vec![IoSlice::new(&[]); MAX_BUFFERS];
        bufs.push(IoSlice::new(&[1; FLAT]));
        assert_eq!(write_vectored(&ours, &bufs).unwrap(), 0);
    }
}

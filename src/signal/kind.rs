//! Which signal: its number, with a name.
//!
//! - Any number is a kind; whether a process can listen for it is checked by [`on`](crate::signal::on).

use std::fmt;
use std::io;

use signal_hook::consts::FORBIDDEN;
use signal_hook::low_level::signal_name;

/// A signal, by its number.
///
/// The constants are the signals that programs listen for; [`From`] takes the number of any other one, such
/// as `libc::SIGTSTP`. Numbers differ between systems, names do not.
///
/// # Examples
///
/// ```
/// use loopgroup::signal::SignalKind;
///
/// let kind = SignalKind::from(15);
/// assert_eq!(kind, SignalKind::TERMINATE);
/// assert_eq!((kind.as_raw(), kind.to_string()), (15, "SIGTERM".into()));
/// assert_eq!(SignalKind::from(64).to_string(), "signal 64");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SignalKind(i32);

impl SignalKind {
    /// `SIGALRM`: a timer of the system has expired.
    pub const ALARM: SignalKind = SignalKind(libc::SIGALRM);
    /// `SIGCHLD`: a child process has ended or stopped.
    pub const CHILD: SignalKind = SignalKind(libc::SIGCHLD);
    /// `SIGHUP`: the terminal was closed; servers read their configuration again.
    pub const HANGUP: SignalKind = SignalKind(libc::SIGHUP);
    /// `SIGINT`: Ctrl-C; see also [`ctrl_c`](crate::signal::ctrl_c).
    pub const INTERRUPT: SignalKind = SignalKind(libc::SIGINT);
    /// `SIGPIPE`: a write to a pipe or socket that nobody reads. Rust programs ignore it by default.
    pub const PIPE: SignalKind = SignalKind(libc::SIGPIPE);
    /// `SIGQUIT`: Ctrl-\; its default effect is a core dump.
    pub const QUIT: SignalKind = SignalKind(libc::SIGQUIT);
    /// `SIGTERM`: a supervisor requests the end; see also [`terminate`](crate::signal::terminate).
    pub const TERMINATE: SignalKind = SignalKind(libc::SIGTERM);
    /// `SIGUSR1`: its meaning is the program's own.
    pub const USER_DEFINED1: SignalKind = SignalKind(libc::SIGUSR1);
    /// `SIGUSR2`: its meaning is the program's own.
    pub const USER_DEFINED2: SignalKind = SignalKind(libc::SIGUSR2);
    /// `SIGWINCH`: the size of the terminal has changed.
    pub const WINDOW_CHANGE: SignalKind = SignalKind(libc::SIGWINCH);

    /// Returns the number of the signal.
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    /// Refuses signals that have no number or cannot be handled by a flag.
    pub(super) fn check(self) -> io::Result<()> {
        let why = match self.0 {
            ..=0 => "signals have numbers above 0",
            libc::SIGKILL | libc::SIGSTOP => "the system does not let a process handle it",
            // The instruction that failed would be run again, and fail again, when the handler returns.
            libc::SIGBUS => "it reports a fault of the program itself",
            signal if FORBIDDEN.contains(&signal) => "it reports a fault of the program itself",
            _ => return Ok(()),
        };
        let text = format!("cannot listen for {self}: {why}");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

impl From<i32> for SignalKind {
    fn from(signal: i32) -> SignalKind {
        SignalKind(signal)
    }
}

impl From<SignalKind> for i32 {
    fn from(kind: SignalKind) -> i32 {
        kind.0
    }
}

impl fmt::Display for SignalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match signal_name(self.0) {
            Some(name) => f.pad(name),
            None => f.pad(&format!("signal {}", self.0)),
        }
    }
}

impl fmt::Debug for SignalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignalKind({self})")
    }
}

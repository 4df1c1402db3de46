//! What a turn returns: how its connection continues, or an error.

use std::fmt;

use crate::net::server::outcome::ErrorRef;

/// How a connection continues after a turn; see [`Server::serve_turns`](super::Server::serve_turns).
///
/// # Examples
///
/// A turn for lines, of which several may arrive together:
///
/// ```
/// use loopgroup::net::Turn;
///
/// /// Takes the first line of what has arrived.
/// fn take_line(received: &mut Vec<u8>) -> Option<Vec<u8>> {
///     let end = received.iter().position(|byte| *byte == b'\n')?;
///     Some(received.drain(..=end).collect())
/// }
///
/// let mut received = b"one\ntwo\nthr".to_vec();
/// let mut next = || match take_line(&mut received) {
///     Some(_line) if received.contains(&b'\n') => Turn::Again, // there is another whole line
///     _ => Turn::Next,
/// };
/// assert_eq!((next(), next()), (Turn::Again, Turn::Next));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Turn {
    /// The next turn begins when something arrives: bytes, the end of the stream or an error.
    Next,
    /// The next turn begins at once: the state already holds what it needs. A turn that has read more than
    /// one request returns it; with [`Turn::Next`] the rest would wait for bytes that may never come.
    Again,
    /// The connection is over, and is closed.
    Close,
}

/// The output of a turn: a [`Turn`], or a `Result` of one whose error can be displayed.
///
/// An error closes the connection, counts it as [`failed`](super::ServerReport::failed) and is passed to
/// [`Server::on_error`](super::Server::on_error). The trait is sealed.
///
/// # Examples
///
/// ```
/// use loopgroup::net::{TcpStream, Turn, TurnOutcome};
///
/// async fn greet(stream: &TcpStream, _state: &mut ()) -> std::io::Result<Turn> {
///     stream.try_write(b"hello\n")?;
///     Ok(Turn::Close)
/// }
///
/// fn outcome<T: TurnOutcome>(_turn: impl AsyncFn(&TcpStream, &mut ()) -> T) {}
/// outcome(greet);
/// ```
#[diagnostic::on_unimplemented(
    message = "a turn returns a `Turn` or a `Result` of one, not `{Self}`",
    label = "the future of this turn returns `{Self}`",
    note = "end the turn with `Turn::Next`, or with `Ok::<_, std::io::Error>(Turn::Next)`"
)]
pub trait TurnOutcome: TurnResult {}

impl TurnOutcome for Turn {}
impl<E: fmt::Display + 'static> TurnOutcome for Result<Turn, E> {}

/// How the connection continues, and the error if it does not.
pub trait TurnResult {
    #[doc(hidden)]
    fn result(&self) -> Result<Turn, ErrorRef<'_>>;
}

impl TurnResult for Turn {
    fn result(&self) -> Result<Turn, ErrorRef<'_>> {
        Ok(*self)
    }
}

impl<E: fmt::Display + 'static> TurnResult for Result<Turn, E> {
    fn result(&self) -> Result<Turn, ErrorRef<'_>> {
        self.as_ref().copied().map_err(|error| ErrorRef {
            text: error,
            value: error,
        })
    }
}

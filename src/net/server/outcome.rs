//! What a handler returns: nothing, or a result whose error is counted and reported.

use std::any::Any;
use std::fmt;

/// The output of a handler: `()`, or `Result<(), E>` for an error that can be displayed.
///
/// An error counts the connection as [`failed`](super::ServerReport::failed) and is passed to
/// [`Server::on_error`](super::Server::on_error); the server continues. The trait is sealed.
///
/// # Examples
///
/// ```
/// use futures::io::{AsyncReadExt, AsyncWriteExt};
/// use loopgroup::{EventLoopGroup, net::Server};
///
/// let group = EventLoopGroup::new(1)?;
/// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|mut stream, _| async move {
///     let mut number = [0; 4];
///     stream.read_exact(&mut number).await?; // an error ends the connection
///     stream.write_all(&number).await
/// })?;
/// let client = std::net::TcpStream::connect(server.local_addr())?;
/// drop(client); // it has sent too little
/// while server.connections() > 0 || server.accepted() < 1 {
///     std::thread::yield_now();
/// }
/// server.stop();
/// assert_eq!(group.block_on(server).failed(), 1);
/// # std::io::Result::Ok(())
/// ```
pub trait Outcome: Sealed {}

impl<T: Sealed> Outcome for T {}

/// The error behind an [`Outcome`].
pub trait Sealed {
    #[doc(hidden)]
    fn error(&self) -> Option<ErrorRef<'_>>;
}

impl Sealed for () {
    fn error(&self) -> Option<ErrorRef<'_>> {
        None
    }
}

impl<E: fmt::Display + 'static> Sealed for Result<(), E> {
    fn error(&self) -> Option<ErrorRef<'_>> {
        let error = self.as_ref().err()?;
        Some(ErrorRef {
            text: error,
            value: error,
        })
    }
}

impl Sealed for Never {
    fn error(&self) -> Option<ErrorRef<'_>> {
        None
    }
}

/// The type `!`, which has no name yet: a handler may never return.
type Never = <fn() -> ! as Returns>::Output;

/// Names the output of a function pointer.
pub trait Returns {
    /// What it returns.
    type Output;
}

impl<T> Returns for fn() -> T {
    type Output = T;
}

/// An error of any type.
#[derive(Clone, Copy)]
pub struct ErrorRef<'a> {
    pub(super) text: &'a dyn fmt::Display,
    pub(super) value: &'a dyn Any,
}

impl fmt::Debug for ErrorRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.text, f)
    }
}

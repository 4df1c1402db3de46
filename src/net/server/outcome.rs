//! What a handler returns: nothing, or a result whose error is counted and reported.

use std::any::Any;
use std::fmt;

/// The output of a handler: `()`, or a `Result` whose error can be displayed.
///
/// An error counts the connection as [`failed`](super::ServerReport::failed) and is passed to
/// [`Server::on_error`](super::Server::on_error); the server continues. The value of a result is `()`; or
/// a number or two, such as the bytes that a copy has moved, which are ignored; or another result, as of
/// a [`timeout`](crate::time::timeout), whose error counts as well. For any other value, end the handler
/// with `.map(drop)`: nothing would look at it. The trait is sealed.
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
///
/// The last expression may be the result of a copy, also inside of a timeout:
///
/// ```
/// use loopgroup::{EventLoopGroup, net::Server, time::timeout};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::new(1)?;
/// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|stream, _| async move {
///     timeout(Duration::from_secs(60), futures::io::copy(&stream, &mut &stream)).await
/// })?;
/// server.stop();
/// # std::io::Result::Ok(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a handler returns `()` or a `Result`, not `{Self}`",
    label = "the future of this handler returns `{Self}`",
    note = "end the handler with `;`, or with `Ok::<(), std::io::Error>(())`"
)]
pub trait Outcome: Returned {}

impl Outcome for () {}
impl Outcome for Never {}
impl<T: Returned, E: fmt::Display + 'static> Outcome for Result<T, E> {}

/// What a handler may return, by itself or inside of a result, and the error in it.
#[diagnostic::on_unimplemented(
    message = "a handler does not return a `{Self}` inside of its `Result`",
    label = "the future of this handler returns a `Result` of `{Self}`",
    note = "nothing would look at that value: end the handler with `.map(drop)`, or with `Ok(())`"
)]
pub trait Returned {
    #[doc(hidden)]
    fn error(&self) -> Option<ErrorRef<'_>> {
        None
    }
}

impl<T: Returned, E: fmt::Display + 'static> Returned for Result<T, E> {
    fn error(&self) -> Option<ErrorRef<'_>> {
        match self {
            Ok(value) => value.error(),
            Err(error) => Some(ErrorRef {
                text: error,
                value: error,
            }),
        }
    }
}

impl Returned for () {}
impl Returned for Never {}

// What reads, writes and copies return. Not every type: a result inside of a value would go unnoticed.
impl Returned for usize {}
impl Returned for u64 {}
impl Returned for (u64, u64) {}

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

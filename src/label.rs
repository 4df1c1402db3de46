//! A label for a future: what a task waits for in the user's words.
//!
//! - It is noted when the future returns `Pending`, in front of what the future itself waits for, and only
//!   while the loop [lists its tasks](crate::Builder::track_tasks).
//! - A future that is dropped takes its note back, if that is of the poll that is under way: a branch of a
//!   `select` that has lost is not awaited any more.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::noted::{self, Text};
use crate::this_thread;

/// Gives a future a label, which the list of tasks shows as [`Wait::Label`](crate::Wait::Label) while a task
/// waits for it: for channels, locks and whatever else this crate does not know.
///
/// It is polled as without the label, and costs nothing unless its group
/// [tracks its tasks](crate::Builder::track_tasks). Labels may be nested, and are then listed from the outer
/// one to the inner one.
///
/// # Cancel safety
///
/// That of the future.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, Wait, label};
/// use std::future::pending;
///
/// let group = EventLoopGroup::builder().loops(1).track_tasks(true).build()?;
/// let task = group.spawn(label("a job from the queue", pending::<()>()));
/// group.block_on(group.spawn(async {})).unwrap(); // behind the task, which waits by now
/// assert!(matches!(&group.tasks()[0].waits_for(), [Wait::Label(text)] if text == "a job from the queue"));
/// # drop(task);
/// # std::io::Result::Ok(())
/// ```
pub fn label<F: Future>(label: impl Into<Cow<'static, str>>, future: F) -> Labelled<F> {
    Labelled {
        future,
        label: Text::from(label.into()),
        noted: 0,
    }
}

pin_project! {
    /// The future of [`label`].
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{Labelled, label};
    /// use std::future::{Ready, ready};
    ///
    /// let labelled: Labelled<Ready<u32>> = label("nothing", ready(7));
    /// assert_eq!(loopgroup::block_on(labelled), 7);
    /// ```
    #[must_use = "futures do nothing unless awaited"]
    pub struct Labelled<F> {
        #[pin]
        future: F,
        label: Text,
        // The number of its last note; zero if there is none.
        noted: u64,
    }

    impl<F> PinnedDrop for Labelled<F> {
        fn drop(this: Pin<&mut Self>) {
            if this.noted != 0 && this_thread::notes_waits() {
                noted::retract_label(this.noted);
            }
        }
    }
}

impl<F: Future> Future for Labelled<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if !this_thread::notes_waits() {
            return this.future.poll(cx);
        }
        noted::retract_label(*this.noted); // of an earlier call in the same poll
        let position = noted::position();
        let polled = this.future.poll(cx);
        if polled.is_pending() {
            *this.noted = noted::label(position, this.label.clone());
        }
        polled
    }
}

impl<F: fmt::Debug> fmt::Debug for Labelled<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Labelled")
            .field("label", &self.label)
            .field("future", &self.future)
            .finish()
    }
}

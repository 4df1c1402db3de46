//! One event loop: its two halves, its life, its turns, and the handle by which others use it.
//!
//! | file | is about |
//! |---|---|
//! | [`shared`], [`local`] | the half that any thread may reach, and the half of the loop's own thread |
//! | [`inbox`] | how other threads reach the loop |
//! | [`lifecycle`], [`terms`], [`hooks`], [`state`] | what the loop is doing, and what was asked of it |
//! | [`context`], [`number`] | which loop runs on this thread, and which loop has a number |
//! | [`launch`], [`loop_thread`], [`parking`] | how the loop gets its thread, and gives it back |
//! | [`run`], [`rest`], [`flow`], [`pace`], [`budget`] | a turn, the wait after it, and how far each may go |
//! | [`shutdown`], [`ending`] | how the loop ends |
//! | [`enqueue`], [`submit`], [`closures`], [`runs`], [`bound`], [`spares`], [`arena`] | what can be submitted |
//! | [`scheduled`], [`scheduled_local`], [`repeat`], [`course`] | closures that run later |
//! | [`counters`], [`live`], [`leftovers`] | the books |
//! | [`observer`], [`waits`], [`tracker`] | what is noted of polls and tasks, for those who look |
//! | [`requests`] | what handles ask of tasks |
//! | [`main_future`] | the future of `loopgroup::run` |

pub(crate) mod arena;
pub(crate) mod bound;
pub(crate) mod budget;
pub(crate) mod closures;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod course;
pub(crate) mod ending;
pub(crate) mod enqueue;
pub(crate) mod flow;
pub(crate) mod handle;
pub(crate) mod hooks;
pub(crate) mod inbox;
pub(crate) mod launch;
pub(crate) mod leftovers;
pub(crate) mod lifecycle;
pub(crate) mod live;
pub(crate) mod local;
pub(crate) mod loop_thread;
pub(crate) mod main_future;
pub(crate) mod number;
pub(crate) mod observer;
pub(crate) mod pace;
pub(crate) mod parking;
pub(crate) mod place;
pub(crate) mod repeat;
pub(crate) mod requests;
pub(crate) mod rest;
pub(crate) mod run;
pub(crate) mod run_queue;
pub(crate) mod runs;
pub(crate) mod scheduled;
pub(crate) mod scheduled_local;
pub(crate) mod shared;
pub(crate) mod shutdown;
pub(crate) mod spares;
pub(crate) mod spin;
pub(crate) mod state;
pub(crate) mod submit;
pub(crate) mod terms;
pub(crate) mod tracker;
pub(crate) mod waits;

pub use handle::EventLoop;

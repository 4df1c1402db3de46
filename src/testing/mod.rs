//! Loops that a test drives by hand: no thread, no real time, no waiting.
//!
//! [`TestLoop`] is one loop; [`TestGroup`] is several loops whose turns are interleaved by a seed, so that
//! an order of events that causes a failure can be reproduced. Both run the production code: the same
//! turn, timers and shutdown. Only the clock is stopped until the test advances it, and nothing runs
//! until the test drives the loop.
//!
//! ```
//! use loopgroup::testing::TestLoop;
//! use loopgroup::time::sleep;
//! use std::time::Duration;
//!
//! let mut test = TestLoop::new();
//! let task = test.spawn(async {
//!     sleep(Duration::from_secs(3600)).await;
//!     "an hour later"
//! });
//! test.run_until_stalled();
//! assert!(!task.is_finished());
//! test.advance(Duration::from_secs(3600)); // takes microseconds
//! assert_eq!(test.block_on(task).unwrap(), "an hour later");
//! ```

mod driven_loop;
pub mod sim;
mod test_group;
mod test_loop;

pub use test_group::TestGroup;
pub use test_loop::TestLoop;

//! What the compiler refuses, each beside what it takes: the two differ in one place.
//!
//! Nothing of this is built: the examples are the whole of it, and run with the others.
//!
//! A future that is spawned travels to its loop, so it holds nothing that must stay on a thread:
//!
//! ```
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! let shared = std::sync::Arc::new(1);
//! group.spawn(async move { *shared });
//! ```
//! ```compile_fail
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! let shared = std::rc::Rc::new(1);
//! group.spawn(async move { *shared });
//! ```
//!
//! It may outlive whoever spawns it, and its waker may outlive everybody, so it borrows nothing:
//!
//! ```
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! let text = String::new();
//! group.spawn(async move { text.len() });
//! ```
//! ```compile_fail,E0373
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! let text = String::new();
//! group.spawn(async { text.len() });
//! ```
//!
//! A future that is made on its loop may hold what stays there, but what it returns comes back:
//!
//! ```
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! group.spawn_with(|| async { *std::rc::Rc::new(1) });
//! ```
//! ```compile_fail,E0277
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! group.spawn_with(|| async { std::rc::Rc::new(1) });
//! ```
//!
//! Nothing of a value that is bound to a loop leaves the loop, neither a share nor a borrow of it:
//!
//! ```
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! let bound = group.next().bind(|| std::rc::Rc::new(1));
//! bound.with(|value| **value);
//! ```
//! ```compile_fail,E0277
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! let bound = group.next().bind(|| std::rc::Rc::new(1));
//! bound.with(|value| value.clone());
//! ```
//! ```compile_fail
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! let bound = group.next().bind(|| std::rc::Rc::new(1));
//! bound.with(|value| &**value);
//! ```
//!
//! The handle of a local task travels if its output may:
//!
//! ```
//! loopgroup::run(async {
//!     let handle = loopgroup::spawn_local(async { std::sync::Arc::new(1) });
//!     std::thread::spawn(move || drop(handle)).join().unwrap();
//! })
//! .unwrap();
//! ```
//! ```compile_fail,E0277
//! loopgroup::run(async {
//!     let handle = loopgroup::spawn_local(async { std::rc::Rc::new(1) });
//!     std::thread::spawn(move || drop(handle)).join().unwrap();
//! })
//! .unwrap();
//! ```

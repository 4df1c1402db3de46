//! Code that the compiler must reject, each next to a variant that it accepts; the two differ in one
//! place.
//!
//! This module contains only examples, which run as doctests.
//!
//! A spawned future is sent to its loop, so it must be `Send`:
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
//! It may outlive its caller, and its waker may outlive the task, so it must not borrow:
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
//! A future that is created on its loop need not be `Send`, but its output is sent back:
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
//! A value that is bound to a loop cannot leave it, neither as a clone nor as a borrow:
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
//! A handler returns nothing or a result, and nothing that would get lost in it:
//!
//! ```
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! # let server = loopgroup::net::Server::new("127.0.0.1:0").unwrap().workers(&group);
//! server.serve(|_, _| async { std::io::Result::Ok(7_u64) });
//! ```
//! ```compile_fail,E0277
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! # let server = loopgroup::net::Server::new("127.0.0.1:0").unwrap().workers(&group);
//! server.serve(|_, _| async { 7_u64 });
//! ```
//! ```compile_fail,E0277
//! # let group = loopgroup::EventLoopGroup::new(1).unwrap();
//! # let server = loopgroup::net::Server::new("127.0.0.1:0").unwrap().workers(&group);
//! server.serve(|_, _| async { std::io::Result::Ok(Some(std::io::Result::Ok(7_u64))) });
//! ```
//!
//! The handle of a local task is `Send` if its output is:
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

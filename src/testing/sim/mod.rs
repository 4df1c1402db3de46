//! Whole systems in virtual time: hosts with loops, a network between them, and faults, as a seed has them.
//!
//! The programs are those of production, unchanged: the sockets of [`net`](crate::net), its
//! [`Server`](crate::net::Server), timers, tasks, groups and [`blocking`](crate::blocking) are simulated
//! where they are made on a loop of a simulated host, and the system's everywhere else. There is no feature
//! to enable and no type to exchange.
//!
//! ```
//! use futures::io::{AsyncReadExt, AsyncWriteExt};
//! use loopgroup::net::{Server, TcpStream};
//! use loopgroup::testing::sim::Simulation;
//! use std::io;
//! use std::time::Duration;
//!
//! let mut sim = Simulation::seeded(7);
//! sim.host("server", |_| async {
//!     let workers = loopgroup::EventLoopGroup::new(2)?; // simulated loops, of this host
//!     let server = Server::new("0.0.0.0:7")?.workers(&workers).serve(|mut stream, _| async move {
//!         let mut request = [0; 4];
//!         while stream.read_exact(&mut request).await.is_ok() {
//!             stream.write_all(&request).await.unwrap();
//!         }
//!     })?;
//!     server.await;
//!     io::Result::Ok(())
//! });
//! sim.client("client", async {
//!     let mut stream = TcpStream::connect("server:7").await?;
//!     for _ in 0..100 {
//!         stream.write_all(b"ping").await?;
//!         stream.read_exact(&mut [0; 4]).await?;
//!     }
//!     io::Result::Ok(())
//! });
//! // The network fails for ten seconds: TCP sends again what was lost.
//! sim.at(Duration::from_millis(50), |sim| sim.partition("server", "client"));
//! sim.at(Duration::from_millis(10_050), |sim| sim.repair("server", "client"));
//! let report = sim.run().unwrap();
//! assert!(report.elapsed() > Duration::from_secs(10)); // of virtual time, within milliseconds
//! ```
//!
//! [`search`] runs many seeds and shrinks the first failure, [`check`] proves that a program depends on
//! nothing but its seed, and [`sometimes`] shows which situations the runs have reached.
//!
//! # What leaks
//!
//! A run is a function of its seed as long as its program is. What depends on more, and what to use instead:
//!
//! | leak | instead |
//! |---|---|
//! | `HashMap`, `HashSet`: the order of iteration | `BTreeMap`, or [`FixedHasher`] |
//! | `Instant::now`, `SystemTime::now` | [`time::now`](crate::time::now) |
//! | `rand::rng`, `getrandom` | [`random`], or a generator that is seeded with it |
//! | threads, and crates that have some | tasks; [`blocking::unblock`](crate::blocking::unblock) |
//! | `std::thread::sleep` | [`time::sleep`](crate::time::sleep) |
//! | `futures::select!`, `stream_select!` | `select_biased!` |
//! | `tokio::select!` | `biased;` as its first line |
//! | `tokio::sync::watch` | another channel, or `Notify` |
//! | statics that survive a run | state of the host |
//! | files | an `Rc` that survives the lives of its host, as a disk does |
//!
//! [`check`] finds what else there is.

mod by_hand;
mod diagram;
mod faults;
mod here;
mod machine;
mod outcome;
mod picture;
mod plans;
mod replay;
mod search;
mod search_report;
mod shrink;
mod simulation;
mod world;

pub use crate::sim::Link;
pub use faults::{Fault, FaultKind, Faults};
pub use here::{FixedHasher, host_name, now, random, remove_socket, sometimes};
pub use machine::Host;
pub use outcome::{Outcome, SimError, SimErrorKind, SimReport};
pub use search::{check, check_with, search, search_with, try_search, try_search_with};
pub use search_report::SearchReport;
pub use shrink::FoundFailure;
pub use simulation::{Simulation, SimulationBuilder};

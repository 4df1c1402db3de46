//! The same workloads on loopgroup and on its peers, each measurement in a process of its own.
//!
//! ```text
//! compare [options]                        the parent: plans, runs children in rounds, reports
//!    └─ compare child <runtime> <workload> [key=value ...]      one measurement, one line of JSON
//!          └─ compare load <kind> [key=value ...]               the clients of the servers (W8 to W10, W16)
//!          └─ wrk, h2load, redis-benchmark                      the clients of whole programs
//!          └─ resp, redis-server                                programs that are not in this process
//!          └─ compare spin                                      what keeps a core busy in W17
//!    └─ compare-mimalloc child ...                             the same with another allocator
//!    └─ compare spin                                           one per core, with --awake
//! ```
//!
//! `README.md` says what each workload measures, and how to read the noise. This is a library because there
//! are two programs of it: an allocator is chosen when a program is built.

pub mod alloc;
mod catalogue;
mod child;
mod latch;
mod load;
mod options;
mod params;
mod parent;
#[cfg(feature = "programs")]
mod programs;
mod report;
mod runtimes;
mod slot;
mod stats;
mod sys;
mod workloads;

use std::process::ExitCode;

/// Does what the command line says.
pub fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    match args.peek().map(String::as_str) {
        Some("child") => child::main(args.skip(1)),
        Some("spin") => parent::awake::spin(),
        Some("load") => load::main(args.skip(1)),
        _ => match options::Options::parse(args) {
            Ok(options) => parent::main(&options),
            Err(text) => {
                eprintln!("{text}");
                ExitCode::from(2)
            }
        },
    }
}

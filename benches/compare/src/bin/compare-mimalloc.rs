//! The comparison with mimalloc: the parent runs children of this program for the rows that say so.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    compare::main()
}

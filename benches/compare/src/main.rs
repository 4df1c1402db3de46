//! The comparison, with the system's allocator, which counts for the workloads that measure memory.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: compare::alloc::Counting = compare::alloc::Counting;

fn main() -> ExitCode {
    compare::main()
}

//! The registration table beside a model: `fuzz/src/table.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| loopgroup::fuzzing::table(data));

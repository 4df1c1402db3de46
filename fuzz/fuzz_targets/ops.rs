//! Operations on a group beside a model: `src/fuzzing/ops.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| loopgroup::fuzzing::ops(data));

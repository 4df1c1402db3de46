//! Operations on a group beside a model: `fuzz/src/ops.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| loopgroup::fuzzing::ops(data));

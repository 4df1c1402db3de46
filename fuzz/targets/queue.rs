//! The timer queue beside a model: `fuzz/src/queue.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| loopgroup::fuzzing::queue(data));

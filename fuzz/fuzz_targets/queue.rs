//! The timer queue beside a model: `src/fuzzing/queue.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| loopgroup::fuzzing::queue(data));

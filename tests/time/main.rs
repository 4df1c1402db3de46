//! Timers and scheduled closures fire on time, in real and in virtual time.

mod driving;
mod precise;
mod repeating;
mod scheduling;
mod timers;
mod virtual_time;

#[path = "../util/mod.rs"]
mod util;

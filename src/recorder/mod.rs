//! The flight recorder: what the loops of a group did last, and how a viewer gets to see it.
//!
//! - Every loop of a group with a [recorder](crate::Builder::flight_recorder) has a [`tape`]: a
//!   [`ring`] of fixed size that only its thread writes, through a [`pen`]. The newest records replace the
//!   oldest ones.
//! - Any thread reads the tapes at any time, without a lock that a loop could wait for and without the help
//!   of the loops: a loop that is stuck for ever can be looked at.
//! - A recorder can be frozen, by hand or by the watchdog: what came before a stall is kept until somebody
//!   has looked at it.
//! - A [`Trace`](trace::Trace) is a copy of the tapes; [`chrome`] writes it for Perfetto.
//!
//! ```text
//!   loop thread ── pen ──▶ tape (ring, names) ──read──▶ trace ── lane, chrome ──▶ JSON
//!   watchdog, user ──freeze, resume──▶ recorder
//! ```

pub(crate) mod chrome;
pub(crate) mod event;
pub(crate) mod json;
pub(crate) mod lane;
pub(crate) mod names;
pub(crate) mod pen;
pub(crate) mod process;
pub(crate) mod ring;
pub(crate) mod tape;
pub(crate) mod trace;

//! A group of loops: what they share, how work reaches them, how they end together.
//!
//! | file | is about |
//! |---|---|
//! | [`handle`] | `EventLoopGroup`, the user's handle |
//! | [`core`] | the loops, and which one is next |
//! | [`spawn`] | submissions to the next loop, or to another one if that closes meanwhile |
//! | [`end`] | the end of a group, decided once for all loops |
//! | [`parent`] | what the loops ask of their group |
//! | [`entered`] | the group of a thread inside `group.block_on` |
//! | [`scope`] | a group for the length of one future |

pub(crate) mod core;
pub(crate) mod end;
pub(crate) mod entered;
pub(crate) mod handle;
pub(crate) mod parent;
pub(crate) mod scaler;
pub(crate) mod scope;
pub(crate) mod spawn;

pub use handle::EventLoopGroup;
pub use scope::scope;

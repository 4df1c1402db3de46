//! The promises hold in thousands of seeded lives, races, states and networks.

mod accounting;
mod chaos;
mod group_ends;
mod integrity;
mod simulation;
mod state_matrix;
mod wake_and_drop;

#[path = "../util/mod.rs"]
mod util;

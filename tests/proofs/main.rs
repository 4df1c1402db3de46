//! The promises hold in thousands of seeded lives, races, states and networks.

mod accounting;
mod calm;
mod chaos;
mod group_ends;
mod integrity;
mod large_dump;
mod simulation;
mod state_matrix;
mod wake_and_drop;

#[path = "../util/mod.rs"]
mod util;

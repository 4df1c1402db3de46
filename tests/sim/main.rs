//! Whole systems in virtual time: the same programs as in production, on a network that a seed decides.

mod fault_plans;
mod hosts;
mod kernel_rules;
mod scaling;
mod searches;
mod sim_regressions;
mod systems;

#[path = "../util/mod.rs"]
mod util;

//! Traits of other crates on our types, one file per crate.

mod futures_traits;

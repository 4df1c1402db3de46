//! What a node keeps: a journal on a disk, and the log and the key-value store that are made from it.

mod disk;
mod journal;
mod log;
mod machine;
mod record;

pub use disk::{Disk, FileDisk, MemoryDisk};
pub use journal::Journal;
pub use machine::Machine;

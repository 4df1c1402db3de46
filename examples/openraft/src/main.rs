//! A node of the store, as a process.
//!
//! ```sh
//! cargo run -- 1 JOURNAL ADDRESS1 ADDRESS2 ADDRESS3   # node 1 of three, with its journal in that file
//! ```

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::rc::Rc;

use openraft_on_loops::{node, store::FileDisk};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(Ok(id)), Some(journal)) = (arguments.next().map(|id| id.parse()), arguments.next())
    else {
        return Err(io::Error::other(
            "usage: openraft-on-loops ID JOURNAL ADDRESS...",
        ));
    };
    let addresses: BTreeMap<u64, String> = (1..).zip(arguments).collect();
    let disk = Rc::new(FileDisk::open(Path::new(&journal))?);
    // Nodes with the same seed would stand for election at the same time.
    let seed = RandomState::new().hash_one(id);
    loopgroup::run(node::run(id, addresses, disk, seed))?
}

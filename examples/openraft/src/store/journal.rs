//! The journal of a node: a record per change, as a line of JSON, and the state after all of them.
//!
//! A change is made to the disk first and to the state after that, by the same function that reads the
//! journal after a restart: what a node has promised is what it finds again. The file never gets shorter.

use std::cell::{Ref, RefCell};
use std::io;
use std::rc::Rc;

use crate::store::Disk;
use crate::store::record::{Record, State};

/// The journal of a node. A clone is the same journal.
#[derive(Clone, Debug)]
pub struct Journal(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    disk: Rc<dyn Disk>,
    state: RefCell<State>,
}

impl Journal {
    /// Reads the journal that is on a disk.
    pub fn open(disk: Rc<dyn Disk>) -> io::Result<Journal> {
        let mut state = State::default();
        for record in serde_json::Deserializer::from_slice(&disk.read()?).into_iter() {
            state.change(record?);
        }
        let state = RefCell::new(state);
        Ok(Journal(Rc::new(Shared { disk, state })))
    }

    pub fn state(&self) -> Ref<'_, State> {
        self.0.state.borrow()
    }

    /// Makes a change, which is safe when this returns. openraft awaits it before it asks for the next.
    pub async fn write(&self, record: Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        self.0.disk.append(line).await?;
        self.0.state.borrow_mut().change(record);
        Ok(())
    }
}

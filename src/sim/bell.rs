//! How a network tells the driver of a simulation that a loop has to run.
//!
//! - A bell that has been rung adds its number to [`Awake`] once, until it is answered.
//! - A bell takes no lock but that of its [`Awake`].

use crate::sync::{Arc, AtomicBool, Mutex, Ordering};

/// The bell of one loop; its clones are the same bell.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Arc<Rope>);

#[derive(Debug)]
struct Rope {
    number: usize,
    rung: AtomicBool,
    awake: Arc<Awake>,
}

impl Bell {
    /// Makes the bell of loop `number`.
    pub(crate) fn new(number: usize, awake: Arc<Awake>) -> Bell {
        Bell(Arc::new(Rope {
            number,
            rung: AtomicBool::new(false),
            awake,
        }))
    }

    pub(crate) fn number(&self) -> usize {
        self.0.number
    }

    /// Rings: the loop has something to do.
    pub(crate) fn ring(&self) {
        // AcqRel pairs with the swap in `answer`: what was done before a ring is seen by who answers it.
        if !self.0.rung.swap(true, Ordering::AcqRel) {
            self.0.awake.0.lock().push(self.0.number);
        }
    }

    pub(crate) fn was_rung(&self) -> bool {
        self.0.rung.load(Ordering::Acquire)
    }

    /// Resets the bell: the next ring adds the loop to the awake ones again.
    pub(crate) fn answer(&self) {
        self.0.rung.swap(false, Ordering::AcqRel);
    }
}

/// The numbers of the loops whose bells have been rung, in the order of the rings.
#[derive(Debug, Default)]
pub(crate) struct Awake(Mutex<Vec<usize>>);

impl Awake {
    pub(crate) fn new() -> Awake {
        Awake(Mutex::new(Vec::new()))
    }

    /// Moves the numbers to the end of `into`.
    pub(crate) fn take(&self, into: &mut Vec<usize>) {
        into.append(&mut self.0.lock());
    }
}

//! How many of a kind there may be at a time: streams, and answers that are long.

use std::cell::Cell;
use std::rc::Rc;

/// Counts what is there; of one loop.
#[derive(Debug)]
pub(super) struct Permits {
    given: Rc<Cell<usize>>,
    most: usize,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit(Rc<Cell<usize>>);

impl Permits {
    pub(super) fn new(most: usize) -> Permits {
        let given = Rc::default();
        Permits { given, most }
    }

    /// How many there are.
    pub(super) fn given(&self) -> usize {
        self.given.get()
    }

    /// One more; `None` if there are too many.
    pub(super) fn take(&self) -> Option<Permit> {
        let given = self.given.get();
        (given < self.most).then(|| {
            self.given.set(given + 1);
            Permit(Rc::clone(&self.given))
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_than_permitted() {
        let permits = Permits::new(2);
        let (one, two) = (permits.take(), permits.take());
        assert!(one.is_some() && two.is_some() && permits.take().is_none());
        drop(one);
        assert_eq!(permits.given(), 1);
        assert!(permits.take().is_some());
    }
}

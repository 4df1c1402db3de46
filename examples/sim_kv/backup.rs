//! A node that has what the primary says.

use std::{cell::RefCell, io, rc::Rc};

use crate::wire::{Answer, Node, Question, Store, serve};

/// What it has, and the primary's connection: of those on which a primary has spoken, the last one accepted.
///
/// What is on its way on an earlier one, from this primary or from the one before its restart, is refused: it
/// might undo what has been acknowledged since.
#[derive(Default)]
pub(crate) struct Backup(pub(crate) RefCell<(Store, u64)>);

pub(crate) async fn backup(address: &str) -> io::Result<()> {
    serve(address, Rc::<Backup>::default()).await
}

impl Node for Backup {
    async fn answer(&self, connection: u64, question: Question) -> io::Result<Answer> {
        let (store, session) = &mut *self.0.borrow_mut();
        let answer = match question {
            _ if connection < *session => return Err(io::Error::other("not any more")),
            Question::Fetch => Answer::State(store.clone()),
            Question::Install(given) => {
                *store = given;
                Answer::Done
            }
            _ => return Err(io::Error::other("not a backup's business")),
        };
        *session = connection;
        Ok(answer)
    }
}

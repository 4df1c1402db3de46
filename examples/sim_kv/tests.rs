//! What faults alone hardly reach.

use crate::backup::Backup;
use crate::wire::{Node, Question, Store};

#[test]
fn what_was_on_its_way_on_a_former_connection_is_refused() {
    let written = Store {
        writes: 1,
        ..Store::default()
    };
    let backup = Backup::default();
    let answer = |connection, question| loopgroup::block_on(backup.answer(connection, question));
    answer(1, Question::Install(Store::default())).unwrap();
    answer(2, Question::Fetch).unwrap();
    answer(1, Question::Fetch).unwrap_err();
    answer(2, Question::Install(written)).unwrap();
    answer(1, Question::Install(Store::default())).unwrap_err();
    assert_eq!(backup.0.borrow().0.writes, 1);
}

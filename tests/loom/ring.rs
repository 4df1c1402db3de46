//! The ring of a flight recorder: a reader that races with the writer.

use super::explore;
use crate::recorder::ring::Ring;
use crate::sync::{Arc, thread};

#[test]
fn a_record_that_is_read_is_one_that_was_written() {
    explore(|| {
        let ring = Arc::new(Ring::new(2).unwrap());
        let write = |number: u64| ring.push([number, number + 10, number + 20]);
        write(0);
        let looked_at = Arc::clone(&ring);
        let reader = thread::spawn(move || {
            for [one, other, third] in looked_at.read() {
                assert_eq!(
                    (one + 10, one + 20),
                    (other, third),
                    "two records are mixed"
                );
            }
        });
        // The second of these takes the place of the record that may be read just now.
        write(1);
        write(2);
        reader.join().unwrap();
        assert_eq!(ring.read(), [[2, 12, 22]]);
    });
}

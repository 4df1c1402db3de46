//! The names of tasks that a tape refers to, by number.
//!
//! - A record has room for a number, not for a name. The table keeps the last [`MOST`] names that were added,
//!   cut to [`LONGEST`] bytes: its memory is bounded whatever names there are.
//! - A number is that of one name only. One that was forgotten has none any more, and its task is shown
//!   without.

use std::collections::{HashMap, VecDeque};

use crate::sync::Arc;

/// The most names that are kept, and the most bytes of a name.
pub(crate) const MOST: usize = 1024;
const LONGEST: usize = 128;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<Arc<str>, u32>,
    /// The oldest one first; numbers are consecutive.
    names: VecDeque<(u32, Arc<str>)>,
    last: u32,
}

impl Names {
    /// Returns the number of a name, which is not zero.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        let name = shortened(name);
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.names.len() == MOST {
            let oldest = self.names.pop_front();
            oldest.and_then(|(_, name)| self.numbers.remove(&name));
        }
        // After four thousand million names the numbers begin again; by then the old records are gone.
        self.last = self.last.checked_add(1).unwrap_or(1);
        let name: Arc<str> = name.into();
        self.names.push_back((self.last, Arc::clone(&name)));
        self.numbers.insert(name, self.last);
        self.last
    }

    /// Returns a copy of the table.
    pub(crate) fn all(&self) -> HashMap<u32, Arc<str>> {
        self.names.iter().cloned().collect()
    }
}

/// The beginning of a name that is too long.
fn shortened(name: &str) -> &str {
    let mut end = name.len().min(LONGEST);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_a_number_has_one_name() {
        let mut names = Names::default();
        let numbers = ["one", "two", "one"].map(|name| names.number(name));
        assert_eq!(numbers, [1, 2, 1]);
        let all = names.all();
        assert_eq!((&*all[&1], &*all[&2], all.len()), ("one", "two", 2));
    }

    #[test]
    fn only_the_last_names_are_kept_and_a_number_is_not_used_again() {
        let mut names = Names::default();
        for number in 0..3 * MOST {
            names.number(&format!("name {number}"));
        }
        assert_eq!((names.names.len(), names.numbers.len()), (MOST, MOST));
        let again = names.number("name 0");
        assert_eq!(again, 3 * MOST as u32 + 1);
        assert_eq!(&*names.all()[&again], "name 0");
    }

    #[test]
    fn a_long_name_is_cut_between_two_characters() {
        let mut names = Names::default();
        let number = names.number(&"é".repeat(LONGEST));
        assert_eq!(*names.all()[&number], *"é".repeat(LONGEST / 2));
        let odd = format!("a{}", "é".repeat(LONGEST));
        let number = names.number(&odd);
        assert_eq!(names.all()[&number].len(), LONGEST - 1);
    }
}

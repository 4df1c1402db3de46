//! The places of spawns, by number: a task holds four bytes of its origin instead of a pointer.
//!
//! - A place has one number for the whole life of the process. Numbers are never freed: there are as many
//!   as calls in the program that submit something.
//! - Finding the number is part of every spawn, so every thread remembers the numbers that it has used: the
//!   last one in a cell, the others in a small table. Only a place that is in neither takes the lock.
//! - Finding the place of a number takes the lock. Reports, panics and slow polls do that, spawns and polls
//!   do not.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::panic::Location;
use std::ptr;

use crate::error::Caller;
use crate::sync::{plain, thread_local};

/// The number of a place; the first one is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site(NonZeroU32);

/// All places, by number; and their numbers, by the addresses of the locations.
struct Sites {
    places: Vec<Caller>,
    numbers: BTreeMap<usize, NonZeroU32>,
}

static SITES: plain::Mutex<Sites> = plain::Mutex::new(Sites {
    places: Vec::new(),
    numbers: BTreeMap::new(),
});

/// The number of a location, by its address; zero is no address.
type Known = Cell<(usize, NonZeroU32)>;
const KNOWN: usize = 64;
const NONE: (usize, NonZeroU32) = (0, NonZeroU32::MIN);

thread_local! {
    static LAST: Known = const { Cell::new(NONE) };
    static OTHERS: [Known; KNOWN] = const { [const { Cell::new(NONE) }; KNOWN] };
}

impl Site {
    #[inline]
    pub(crate) fn of(location: Caller) -> Site {
        let address = ptr::from_ref(location).addr();
        LAST.with(|last| match last.get() {
            (known, number) if known == address => Site(number),
            _ => Site::find(last, address, location),
        })
    }

    /// The number, for a place that can only be shown as one.
    pub(crate) fn number(self) -> NonZeroU32 {
        self.0
    }

    /// The place with a number that [`Site::number`] has returned; `None` for zero.
    pub(crate) fn numbered(number: u32) -> Option<Site> {
        NonZeroU32::new(number).map(Site)
    }

    pub(crate) fn location(self) -> Caller {
        SITES.lock().places[self.0.get() as usize - 1]
    }

    /// Finds the number of a place that this thread has not used just before.
    #[cold]
    #[inline(never)]
    fn find(last: &Known, address: usize, location: Caller) -> Site {
        let step = align_of::<Location<'static>>();
        let number = OTHERS.with(|others| {
            // Two entries for each address, the newer one first.
            let index = (address / step) % KNOWN;
            let (first, second) = (&others[index], &others[index ^ 1]);
            for entry in [first, second] {
                let (known, number) = entry.get();
                if known == address {
                    return number;
                }
            }
            let number = Site::register(address, location);
            second.set(first.replace((address, number)));
            number
        });
        last.set((address, number));
        Site(number)
    }

    #[cold]
    fn register(address: usize, location: Caller) -> NonZeroU32 {
        let mut sites = SITES.lock();
        let Sites { places, numbers } = &mut *sites;
        *numbers.entry(address).or_insert_with(|| {
            places.push(location);
            let number = u32::try_from(places.len()).ok().and_then(NonZeroU32::new);
            number.expect("so many calls do not fit in a program")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[track_caller]
    fn here() -> Caller {
        Location::caller()
    }

    #[test]
    fn a_number_leads_back_to_its_place_on_every_thread() {
        let places = [here(), here(), here()];
        let sites = places.map(Site::of);
        for (place, site) in places.into_iter().zip(sites) {
            assert!(ptr::eq(site.location(), place));
        }
        assert!(sites[0] != sites[1] && sites[1] != sites[2]);
        let elsewhere = std::thread::spawn(move || places.map(Site::of));
        assert_eq!(elsewhere.join().unwrap(), sites);
        assert_eq!(places.map(Site::of), sites);
    }

    #[test]
    fn places_that_do_not_fit_in_the_table_keep_their_numbers() {
        let places = [
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
            here(),
        ];
        let distinct: BTreeSet<_> = places
            .iter()
            .map(|place| (place.line(), place.column()))
            .collect();
        assert!(distinct.len() > 2 * KNOWN, "each is a place of its own");
        let first = places.map(Site::of);
        let second = places.map(Site::of);
        assert_eq!(first, second);
        let found = first.map(Site::location);
        assert!(
            found
                .into_iter()
                .zip(places)
                .all(|(one, other)| ptr::eq(one, other))
        );
    }
}

//! The futures that wait for one descriptor, in the order in which they came.
//!
//! - A place belongs to its future alone, from [`join`](Crowd::join) to [`leave`](Crowd::leave): nobody else
//!   frees it, so a key is never stale and needs no generation.
//! - A place that waits is in one of four lines: each direction has one for futures that take something and
//!   one for those that only want to know. A line is linked through the places, by index: every step but
//!   `call_all` takes constant time, however many wait.
//! - What a baton is, and who passes it on, is told in [`source`](super::source).
//!
//! ```text
//! join ──▶ Waiting ──call_one──▶ Baton  ──again──▶ Waiting, in front
//!             └──────call_all──▶ Called ──again──▶ Waiting, at the back
//! ```

use std::task::Waker;

use slab::Slab;

use crate::reactor::source::Direction;

/// No place: the end of a line.
const NONE: u32 = u32::MAX;
/// Places that an empty crowd keeps room for: most are small, and come back at once.
const KEPT: usize = 64;

/// What a future waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// To take a datagram, a connection, room to send: what one gets, another does not.
    Take,
    /// To know that the descriptor is ready: any number can be served at once.
    Know,
}

/// The place of one future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u32);

/// Everybody who waits.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    places: Slab<Place>,
    lines: [Line; 4],
}

#[derive(Debug)]
struct Place {
    /// There while it waits.
    waker: Option<Waker>,
    state: State,
    direction: Direction,
    aim: Aim,
    /// The neighbours in its line; of no meaning unless it waits.
    before: u32,
    behind: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In its line.
    Waiting,
    /// Woken as the only one: it passes on what it leaves.
    Baton,
    /// Woken together with everybody else.
    Called,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    head: u32,
    tail: u32,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            head: NONE,
            tail: NONE,
        }
    }
}

/// What a future leaves behind.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) waker: Option<Waker>,
    /// It held the baton of this direction.
    pub(super) baton: Option<Direction>,
}

impl Crowd {
    /// Takes a future in, at the back of its line.
    pub(super) fn join(&mut self, direction: Direction, aim: Aim, waker: Waker) -> Key {
        let index = self.places.insert(Place {
            waker: Some(waker),
            state: State::Waiting,
            direction,
            aim,
            before: NONE,
            behind: NONE,
        });
        let index = u32::try_from(index).expect("fewer futures than an index can count");
        self.push_back(index);
        Key(index)
    }

    /// Has a future wait on, or again; returns the waker that it had.
    ///
    /// Who had the baton and found nothing is in front again: it was its turn. Who was called with everybody
    /// goes to the back: the others come in their order, too.
    pub(super) fn again(&mut self, key: Key, waker: Waker) -> Option<Waker> {
        let place = self.place(key.0);
        let state = std::mem::replace(&mut place.state, State::Waiting);
        let old = place.waker.replace(waker);
        match state {
            State::Waiting => {}
            State::Baton => self.push_front(key.0),
            State::Called => self.push_back(key.0),
        }
        old
    }

    /// Takes a future out.
    pub(super) fn leave(&mut self, key: Key) -> Left {
        if self.place(key.0).state == State::Waiting {
            self.unlink(key.0);
        }
        let place = self.places.remove(key.0 as usize);
        if self.places.is_empty() && self.places.capacity() > KEPT {
            self.places = Slab::new();
        }
        Left {
            waker: place.waker,
            baton: (place.state == State::Baton).then_some(place.direction),
        }
    }

    /// Gives the baton to the first who waits to take something.
    pub(super) fn call_one(&mut self, direction: Direction) -> Option<Waker> {
        self.pop(direction, Aim::Take, State::Baton)
    }

    /// Calls everybody who waits in a line.
    pub(super) fn call_all(&mut self, direction: Direction, aim: Aim, woken: &mut Vec<Waker>) {
        while let Some(waker) = self.pop(direction, aim, State::Called) {
            woken.push(waker);
        }
    }

    /// Takes the first of a line out of it; its place stays.
    fn pop(&mut self, direction: Direction, aim: Aim, state: State) -> Option<Waker> {
        let head = self.lines[line(direction, aim)].head;
        if head == NONE {
            return None;
        }
        self.unlink(head);
        let place = self.place(head);
        place.state = state;
        place.waker.take()
    }

    fn push_back(&mut self, index: u32) {
        let at = self.line_of(index);
        let last = std::mem::replace(&mut self.lines[at].tail, index);
        self.link(last, index);
        self.link(index, NONE);
        if last == NONE {
            self.lines[at].head = index;
        }
    }

    fn push_front(&mut self, index: u32) {
        let at = self.line_of(index);
        let first = std::mem::replace(&mut self.lines[at].head, index);
        self.link(NONE, index);
        self.link(index, first);
        if first == NONE {
            self.lines[at].tail = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let at = self.line_of(index);
        let &mut Place { before, behind, .. } = self.place(index);
        self.link(before, behind);
        let line = &mut self.lines[at];
        if before == NONE {
            line.head = behind;
        }
        if behind == NONE {
            line.tail = before;
        }
    }

    /// Makes two places neighbours; one of them may be the end of the line.
    fn link(&mut self, before: u32, behind: u32) {
        if before != NONE {
            self.place(before).behind = behind;
        }
        if behind != NONE {
            self.place(behind).before = before;
        }
    }

    fn line_of(&mut self, index: u32) -> usize {
        let place = self.place(index);
        line(place.direction, place.aim)
    }

    fn place(&mut self, index: u32) -> &mut Place {
        &mut self.places[index as usize]
    }
}

fn line(direction: Direction, aim: Aim) -> usize {
    direction as usize * 2 + aim as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;
    use std::task::Wake;

    struct Quiet;

    impl Wake for Quiet {
        fn wake(self: Arc<Self>) {}
    }

    fn wakers<const N: usize>() -> [Waker; N] {
        [(); N].map(|()| Waker::from(Arc::new(Quiet)))
    }

    /// A crowd of futures that wait to read, one for each waker.
    fn readers<const N: usize>(wakers: &[Waker; N]) -> (Crowd, [Key; N]) {
        let mut crowd = Crowd::default();
        let keys = wakers
            .each_ref()
            .map(|waker| crowd.join(Direction::Read, Aim::Take, waker.clone()));
        (crowd, keys)
    }

    /// Which of `wakers` the next one is.
    fn next(crowd: &mut Crowd, wakers: &[Waker]) -> Option<usize> {
        let waker = crowd.call_one(Direction::Read)?;
        wakers.iter().position(|one| one.will_wake(&waker))
    }

    #[test]
    fn the_first_to_come_is_the_first_to_be_called() {
        let wakers = wakers::<3>();
        let (mut crowd, _) = readers(&wakers);
        let order = [(); 4].map(|()| next(&mut crowd, &wakers));
        assert_eq!(order, [Some(0), Some(1), Some(2), None]);
    }

    #[test]
    fn a_future_leaves_from_anywhere_in_the_line_with_its_own_waker() {
        for gone in 0..3 {
            let wakers = wakers::<3>();
            let (mut crowd, keys) = readers(&wakers);
            let left = crowd.leave(keys[gone]);
            assert!(left.waker.unwrap().will_wake(&wakers[gone]));
            assert_eq!(left.baton, None);
            let rest: Vec<_> = std::iter::from_fn(|| next(&mut crowd, &wakers)).collect();
            let expected: Vec<_> = (0..3).filter(|&one| one != gone).collect();
            assert_eq!(rest, expected);
        }
    }

    #[test]
    fn a_baton_that_found_nothing_is_in_front_again() {
        let wakers = wakers::<3>();
        let (mut crowd, keys) = readers(&wakers);
        assert_eq!(next(&mut crowd, &wakers), Some(0));
        assert!(crowd.again(keys[0], wakers[0].clone()).is_none());
        assert_eq!(next(&mut crowd, &wakers), Some(0));
        assert_eq!(crowd.leave(keys[0]).baton, Some(Direction::Read));
        assert_eq!(next(&mut crowd, &wakers), Some(1));
    }

    #[test]
    fn those_that_were_all_called_come_back_in_their_order() {
        let wakers = wakers::<3>();
        let (mut crowd, keys) = readers(&wakers);
        let mut woken = Vec::new();
        crowd.call_all(Direction::Read, Aim::Take, &mut woken);
        assert_eq!(woken.len(), 3);
        assert_eq!(next(&mut crowd, &wakers), None);
        for (key, waker) in keys.into_iter().zip(&wakers) {
            drop(crowd.again(key, waker.clone()));
        }
        let order = [(); 3].map(|()| next(&mut crowd, &wakers));
        assert_eq!(order, [Some(0), Some(1), Some(2)]);
        drop(crowd.again(keys[0], wakers[0].clone()));
        crowd.call_all(Direction::Read, Aim::Take, &mut woken);
        assert_eq!(
            crowd.leave(keys[0]).baton,
            None,
            "it was called, not chosen"
        );
    }

    #[test]
    fn a_line_is_of_one_direction_and_one_aim() {
        let mut crowd = Crowd::default();
        let mut expected = Vec::new();
        for direction in [Direction::Read, Direction::Write] {
            for aim in [Aim::Take, Aim::Know] {
                let _ = crowd.join(direction, aim, Waker::noop().clone());
                expected.push((direction, aim));
            }
        }
        for (direction, aim) in expected {
            let mut woken = Vec::new();
            crowd.call_all(direction, aim, &mut woken);
            assert_eq!(woken.len(), 1);
        }
    }

    #[test]
    fn a_crowd_that_is_over_gives_its_room_back() {
        let mut crowd = Crowd::default();
        let mut join = || crowd.join(Direction::Read, Aim::Take, Waker::noop().clone());
        let keys: Vec<_> = (0..=KEPT).map(|_| join()).collect();
        for key in keys {
            drop(crowd.leave(key));
        }
        assert_eq!(crowd.places.capacity(), 0);
        let key = crowd.join(Direction::Read, Aim::Take, Waker::noop().clone());
        drop(crowd.leave(key));
        assert_ne!(crowd.places.capacity(), 0, "a small one keeps it");
    }
}

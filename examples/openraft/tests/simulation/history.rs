//! What clients have asked and been answered, and whether a single copy of the data could have answered so.
//!
//! Keys are registers, and every value is written once: so it is known which write a read has read from, and
//! whether there is a valid order can be said without trying orders (Gibbons and Korach, "Testing Shared
//! Memories", 1997). A value's operations are its write and its reads. In a valid order they follow each
//! other without those of another value in between, so of two values one goes first as a whole. It cannot, if
//! an operation of the other has returned before one of its own was invoked. If neither of two can go first,
//! no order is valid; if one of each two can, some order is.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use loopgroup::testing::sim;

/// When an operation returned whose outcome nobody knows: it may happen at any time after its invocation.
const NEVER: Duration = Duration::MAX;

/// The operations of all clients of a run. A clone is the same history.
#[derive(Clone, Debug)]
pub struct History {
    start: Instant,
    operations: Rc<RefCell<Vec<Operation>>>,
}

#[derive(Clone, Debug)]
pub struct Operation {
    pub key: String,
    /// What was written, or what was read.
    pub value: Option<String>,
    pub is_write: bool,
    pub invoked: Duration,
    pub returned: Duration,
}

impl History {
    pub fn new(start: Instant) -> History {
        let operations = Rc::default();
        History { start, operations }
    }

    /// The virtual time. The first operation comes after the start, where every register is empty.
    pub fn now(&self) -> Duration {
        sim::now() - self.start + Duration::from_nanos(1)
    }

    /// Notes that a value is written; returns what has to be told when the write is acknowledged.
    pub fn invoke_write(&self, key: &str, value: &str) -> usize {
        let mut operations = self.operations.borrow_mut();
        operations.push(Operation {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            is_write: true,
            invoked: self.now(),
            returned: NEVER,
        });
        operations.len() - 1
    }

    pub fn acknowledge(&self, write: usize) {
        self.operations.borrow_mut()[write].returned = self.now();
    }

    pub fn read(&self, key: &str, value: Option<String>, invoked: Duration) {
        self.operations.borrow_mut().push(Operation {
            key: key.to_owned(),
            value,
            is_write: false,
            invoked,
            returned: self.now(),
        });
    }

    /// All keys that were ever used.
    pub fn keys(&self) -> Vec<String> {
        let operations = self.operations.borrow();
        let mut keys: Vec<String> = operations.iter().map(|one| one.key.clone()).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// Says why the answers are not those of a single copy, if they are not.
    pub fn check(&self) -> Result<(), String> {
        let mut keys: BTreeMap<String, Vec<Operation>> = BTreeMap::new();
        for operation in &*self.operations.borrow() {
            let of_key = keys.entry(operation.key.clone()).or_default();
            of_key.push(operation.clone());
        }
        keys.values().try_for_each(|of_key| linearizable(of_key))
    }
}

/// The operations of a value, as far as the order of values depends on them.
#[derive(Debug)]
struct Value {
    written: Option<(Duration, Duration)>,
    first_returned: Duration,
    last_invoked: Duration,
    reads: usize,
}

/// Says why the operations of one register are in no valid order, if they are not.
///
/// The sentences differ in their digits only: then shrinking knows that two runs have failed in the same way.
pub fn linearizable(operations: &[Operation]) -> Result<(), String> {
    let seconds = |time: Duration| format!("{:.6} s", time.as_secs_f64());
    let start = (Duration::ZERO, Duration::ZERO);
    let mut values: BTreeMap<Option<&str>, Value> = BTreeMap::new();
    for operation in operations {
        let value = operation.value.as_deref();
        let known = values.entry(value).or_insert(Value {
            // Before everything, the register was empty.
            written: value.is_none().then_some(start),
            first_returned: if value.is_none() { start.1 } else { NEVER },
            last_invoked: Duration::ZERO,
            reads: 0,
        });
        known.first_returned = known.first_returned.min(operation.returned);
        known.last_invoked = known.last_invoked.max(operation.invoked);
        match operation.is_write {
            true => known.written = Some((operation.invoked, operation.returned)),
            false => known.reads += 1,
        }
    }
    // A write of which nobody has seen anything may not have happened.
    values.retain(|_, value| value.reads > 0 || value.written.is_none_or(|it| it.1 != NEVER));
    for (name, value) in &values {
        let name = name.unwrap_or("0");
        let Some((invoked, _)) = value.written else {
            return Err(format!("value {name} was read, and never written"));
        };
        if value.first_returned < invoked {
            return Err(format!("value {name} was read before it was written"));
        }
    }
    let all: Vec<(&Option<&str>, &Value)> = values.iter().collect();
    for (place, (name, value)) in all.iter().enumerate() {
        for (other_name, other) in &all[..place] {
            let after = other.first_returned < value.last_invoked;
            let before = value.first_returned < other.last_invoked;
            if after && before {
                let (name, other_name) = (name.unwrap_or("0"), other_name.unwrap_or("0"));
                let [a, b, c, d] = [
                    seconds(value.first_returned),
                    seconds(value.last_invoked),
                    seconds(other.first_returned),
                    seconds(other.last_invoked),
                ];
                return Err(format!(
                    "not linearizable: value {name} was there at {a}, and was still to be asked for at {b}; value \
                     {other_name} was there at {c}, and was still to be asked for at {d}"
                ));
            }
        }
    }
    Ok(())
}

/// The checker against the definition: histories of a few operations, and all of their orders.
mod tests {
    use super::*;

    /// Whether some order is valid, by trying all of them.
    fn by_definition(left: &[Operation], register: Option<&str>) -> bool {
        let must_happen = |one: &&Operation| one.returned != NEVER;
        if !left.iter().any(|one| must_happen(&one)) {
            return true;
        }
        left.iter().enumerate().any(|(place, next)| {
            let mut rest = left.to_vec();
            rest.remove(place);
            // Nothing that is left has ended before this began.
            let is_first = rest.iter().all(|other| other.returned >= next.invoked);
            let value = next.value.as_deref();
            match next.is_write {
                true => is_first && by_definition(&rest, value),
                false => is_first && value == register && by_definition(&rest, register),
            }
        })
    }

    fn draw(random: &mut impl FnMut(u64) -> u64) -> Vec<Operation> {
        let writes = 1 + random(4);
        (0..writes + random(5))
            .map(|number| {
                let is_write = number < writes;
                let written = if is_write {
                    number + 1
                } else {
                    random(writes + 1)
                };
                let invoked = 1 + random(12);
                let returned = match is_write && random(4) == 0 {
                    true => NEVER,
                    false => Duration::from_secs(invoked + random(6)),
                };
                Operation {
                    key: "register".to_owned(),
                    value: (written > 0).then(|| written.to_string()),
                    is_write,
                    invoked: Duration::from_secs(invoked),
                    returned,
                }
            })
            .collect()
    }

    #[test]
    fn the_checker_agrees_with_trying_all_orders() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut valid = 0;
        for _ in 0..20_000 {
            let operations = draw(&mut random);
            let expected = by_definition(&operations, None);
            assert_eq!(
                linearizable(&operations).is_ok(),
                expected,
                "{operations:#?}"
            );
            valid += u32::from(expected);
        }
        assert!((2_000..18_000).contains(&valid), "{valid} are valid");
    }
}

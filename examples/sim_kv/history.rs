//! Whether what clients have seen can be explained by one register for each key (linearizability).
//!
//! No value is written twice, so each read names its write: a write and its reads are a group, and no other
//! group has a place between them. Group A has to come before group B if some operation of A had returned
//! when one of B was invoked: `A.first_return < B.last_invocation`. A history can be explained if and only if
//! no read returned before its write was invoked, and no two groups have to come before each other. (Longer
//! circles need no look: in a shortest one of three or more groups, each returns first later than the one two
//! steps before it, all around.)

use std::collections::BTreeMap;
use std::time::Duration;

use crate::operation::{Action, Operation};

/// A write and its reads. Times are nanoseconds, from 1: the first value of all was written at 0.
#[derive(Clone, Copy, Default)]
struct Group {
    written: u128,
    first_return: u128,
    last_invocation: u128,
}

/// Tells which key and values contradict each other.
pub(crate) fn check(history: &[Operation]) -> Result<(), String> {
    let mut keys = BTreeMap::<&str, BTreeMap<Option<&str>, Group>>::new();
    for operation in history {
        let groups = keys
            .entry(&operation.key)
            .or_insert_with(|| [(None, Group::default())].into());
        if let Action::Put(value) = &operation.action {
            let written = nanos(operation.invoked);
            let first_return = operation.returned.map_or(u128::MAX, nanos);
            let group = Group {
                written,
                first_return,
                last_invocation: written,
            };
            if groups.insert(Some(value), group).is_some() {
                return Err(format!(
                    "{value} is written to {} twice: nothing can be said",
                    operation.key
                ));
            }
        }
    }
    for operation in history {
        let Action::Get(value) = &operation.action else {
            continue;
        };
        let (key, returned) = (&*operation.key, operation.returned.map_or(u128::MAX, nanos));
        let group = keys
            .get_mut(key)
            .and_then(|groups| groups.get_mut(&value.as_deref()));
        let group = group.ok_or_else(|| format!("{key}: {value:?} was read, and never written"))?;
        if returned < group.written {
            return Err(format!("{key}: {value:?} was read before it was written"));
        }
        group.first_return = group.first_return.min(returned);
        group.last_invocation = group.last_invocation.max(nanos(operation.invoked));
    }
    for (key, groups) in keys {
        let groups: Vec<_> = groups.into_iter().collect();
        for (index, (one, a)) in groups.iter().enumerate() {
            for (two, b) in &groups[index + 1..] {
                if a.first_return < b.last_invocation && b.first_return < a.last_invocation {
                    return Err(format!(
                        "{key}: {one:?} and {two:?} are each older than the other"
                    ));
                }
            }
        }
    }
    Ok(())
}

fn nanos(time: Duration) -> u128 {
    time.as_nanos() + 1
}

#[cfg(test)]
mod orders;
#[cfg(test)]
mod tests;

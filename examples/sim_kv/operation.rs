//! What a client has done and seen.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Of a value that nobody else writes to this key.
    Put(String),
    /// What was found. A read that failed has told nothing, and is no operation.
    Get(Option<String>),
}

/// What a client did, by a clock that all clients share; equal times tell nothing of the order.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) key: String,
    pub(crate) action: Action,
    pub(crate) invoked: Duration,
    /// None for a write with an unknown outcome: it may take effect at any time, or never.
    pub(crate) returned: Option<Duration>,
}

impl Action {
    pub(crate) fn value(&self) -> Option<&str> {
        match self {
            Action::Put(value) => Some(value),
            Action::Get(value) => value.as_deref(),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.action {
            Action::Put(_) => "put",
            Action::Get(_) => "get",
        };
        let (key, value) = (&self.key, self.action.value().unwrap_or("nothing"));
        match self.returned {
            Some(returned) => write!(
                f,
                "{:?} to {returned:?}: {verb} {key} {value}",
                self.invoked
            ),
            None => write!(f, "{:?} to ?: {verb} {key} {value}", self.invoked),
        }
    }
}

/// The writes that a contradiction names, and of the reads of each those that say the most: the one that has
/// returned first, and the one that has begun last.
pub(crate) fn evidence(operations: Vec<Operation>, contradiction: &str) -> String {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for one in operations {
        let value = one.action.value().map(str::to_string);
        let is_named = contradiction.contains(&format!("{value:?}"));
        if is_named && contradiction.starts_with(&format!("{}:", one.key)) {
            groups.entry(value).or_default().push(one);
        }
    }
    let mut all: Vec<_> = groups.into_values().flat_map(telling).collect();
    all.sort_by_key(|one| one.invoked);
    all.iter().map(|one| format!("    {one}\n")).collect()
}

fn telling(operations: Vec<Operation>) -> Vec<Operation> {
    let (puts, gets): (Vec<_>, Vec<_>) = operations
        .into_iter()
        .partition(|one| matches!(one.action, Action::Put(_)));
    let first = gets.iter().min_by_key(|one| one.returned);
    let last = gets.iter().max_by_key(|one| one.invoked);
    let last = last.filter(|last| first.is_some_and(|first| first.invoked < last.invoked));
    puts.iter().chain(first).chain(last).cloned().collect()
}

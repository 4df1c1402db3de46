//! What a search has seen: how many seeds, and which situations they have reached.

use std::collections::BTreeMap;
use std::fmt;

use crate::testing::sim::here::Count;

/// What a search has seen.
#[derive(Clone, Debug)]
pub struct SearchReport {
    pub(super) seeds: u64,
    pub(super) reached: BTreeMap<&'static str, Count>,
}

impl SearchReport {
    /// Returns how many seeds were run.
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Returns how often a [`sometimes`](super::sometimes) of that name was true, in all runs.
    pub fn reached(&self, name: &str) -> u64 {
        self.reached.get(name).map_or(0, |count| count.hits)
    }

    /// Returns the names of what was looked at and never true.
    pub fn never_reached(&self) -> Vec<&'static str> {
        let never = self.reached.iter().filter(|(_, count)| count.hits == 0);
        never.map(|(name, _)| *name).collect()
    }

    /// What is said at the end of a search, if anything was never reached.
    pub(super) fn never_line(&self) -> Option<String> {
        let never = self.never_reached();
        let seeds = self.seeds;
        (!never.is_empty()).then(|| format!("never reached in {seeds} seeds: {}", never.join("; ")))
    }
}

impl fmt::Display for SearchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seeds", self.seeds)?;
        for (name, Count { looks, hits }) in &self.reached {
            write!(f, "\n    {name}: {hits} of {looks} times")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_reached_is_one_line_and_nothing_if_all_was() {
        let count = |hits| Count { looks: 9, hits };
        let mut report = SearchReport {
            seeds: 3,
            reached: [("rare", count(0)), ("usual", count(2)), ("rarer", count(0))].into(),
        };
        let line = report.never_line();
        assert_eq!(
            line.as_deref(),
            Some("never reached in 3 seeds: rare; rarer")
        );
        report.reached.retain(|_, count| count.hits > 0);
        assert_eq!(report.never_line(), None);
    }
}

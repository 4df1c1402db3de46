//! Rows: one figure over all runtimes, with its medians and ratios.

use std::collections::BTreeMap;

use crate::catalogue::{Better, Figure, Section};
use crate::parent::Cell;
use crate::runtimes::Runtime;
use crate::stats::{median, quantile};

/// One figure of one runtime over the rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) runtime: Runtime,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Whether work came through a channel that is not the runtime's own.
    pub(crate) fed: bool,
}

impl Entry {
    /// The largest round over the smallest.
    pub(crate) fn spread(&self) -> f64 {
        // All zero is no spread: an idle loop uses no CPU.
        if self.max == self.min {
            1.0
        } else {
            self.max / self.min
        }
    }
}

/// One figure over all runtimes that could be measured.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) figure: &'static Figure,
    pub(crate) section: Section,
    pub(crate) entries: Vec<Entry>,
}

impl Row {
    pub(crate) fn entry(&self, runtime: Runtime) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.runtime == runtime)
    }

    /// The best of those that are neither loopgroup nor the floor.
    pub(crate) fn best_peer(&self) -> Option<&Entry> {
        let peers = self.entries.iter().filter(|it| it.runtime.is_peer());
        peers.min_by(|one, other| {
            let order = one.median.total_cmp(&other.median);
            match self.figure.better {
                Better::Lower => order,
                Better::Higher => order.reverse(),
            }
        })
    }

    /// How much worse loopgroup is: above 1 it loses, whichever way the figure goes.
    pub(crate) fn loss(&self, to: Option<&Entry>) -> Option<f64> {
        self.loss_of(self.entry(Runtime::Loopgroup), to)
    }

    pub(crate) fn loss_of(&self, ours: Option<&Entry>, theirs: Option<&Entry>) -> Option<f64> {
        let (ours, theirs) = (ours?.median, theirs?.median);
        // Nothing against nothing is even: an idle loop uses no CPU.
        let ratio = match self.figure.better {
            _ if ours == theirs => 1.0,
            Better::Lower => ours / theirs,
            Better::Higher => theirs / ours,
        };
        ratio.is_finite().then_some(ratio)
    }
}

pub(crate) fn rows(cells: &[Cell]) -> Vec<Row> {
    let mut order: Vec<(&'static Figure, Section)> = Vec::new();
    let mut entries: BTreeMap<&str, Vec<Entry>> = BTreeMap::new();
    for cell in cells {
        for figure in cell.case.figures {
            if !order.iter().any(|(it, _)| std::ptr::eq(*it, figure)) {
                order.push((figure, cell.case.section()));
            }
            let samples = cell.samples(figure.key);
            if !samples.is_empty() {
                entries.entry(figure.title).or_default().push(Entry {
                    runtime: cell.runtime,
                    median: median(&samples),
                    min: quantile(&samples, 0.0),
                    max: quantile(&samples, 1.0),
                    fed: cell.runtime.is_fed() && cell.case.is_outside(),
                });
            }
        }
    }
    order
        .into_iter()
        .map(|(figure, section)| Row {
            figure,
            section,
            entries: entries.remove(figure.title).unwrap_or_default(),
        })
        .collect()
}

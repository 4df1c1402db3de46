//! When a busy loop collects its inbox: at once, or a moment later if many items arrive.
//!
//! A loop that is as fast as its producers finds a few new items in every turn. Each time it collects them,
//! the lock, the buffers and the newest items move from the cache of a producer to that of the loop and
//! back, which costs both sides more than the items do. So while items flow, the loop pauses for a moment
//! before it collects again.
//!
//! - Items flow if the last collection had [`FLOW`] items or more. A message and its answer are no flow,
//!   and are never delayed.
//! - The pause is [`PAUSE`] spins: a third of a microsecond on the machine where it was chosen, one or two on
//!   others. It is short compared with the turn that it belongs to.
//! - A loop that has anything else to do does not pause.
//!
//! The benches that pay for it are `w1.execute` and `w1` of `benches/compare`.

/// The fewest items of a collection that make a flow.
const FLOW: usize = 4;
/// How often a pause spins.
const PAUSE: u32 = 32;

/// Remembers how many items the last collection had; loop thread only.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    collected: usize,
}

impl Flow {
    /// Records a collection of so many items.
    #[inline]
    pub(crate) fn collected(&mut self, items: usize) {
        self.collected = items;
    }

    /// Pauses if items flow. The caller has nothing to do but to collect again.
    #[inline]
    pub(crate) fn pause(&self) {
        if self.collected >= FLOW {
            (0..PAUSE).for_each(|_| std::hint::spin_loop());
        }
    }
}

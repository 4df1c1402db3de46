//! A stopwatch for benches: rounds, median and minimum, per operation.

use std::time::Instant;

/// Runs `round` a few times; each call does `operations` operations.
pub(crate) fn bench(name: &str, operations: u32, mut round: impl FnMut()) {
    round(); // warm-up
    let mut nanos: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / f64::from(operations)
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    println!(
        "{name:32} median {:8.1} ns   min {:8.1} ns",
        nanos[nanos.len() / 2],
        nanos[0]
    );
}

//! What each worker loop has done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::figures::{count, print_table};

/// The figures of one loop.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) connections: AtomicU64,
    pub(crate) echoes: AtomicU64,
}

/// Prints the rows as a table.
pub(crate) fn print(rows: &[Row]) {
    let mut table = vec![["worker", "connections", "echoes"].map(String::from)];
    for (index, row) in rows.iter().enumerate() {
        let [connections, echoes] = [&row.connections, &row.echoes].map(|n| count(n.load(Relaxed)));
        table.push([index.to_string(), connections, echoes]);
    }
    print_table(&table);
}

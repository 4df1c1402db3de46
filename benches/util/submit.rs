//! The ways to give a loop work that nobody waits for.

use std::hint::black_box;

use loopgroup::EventLoop;

/// Submits so many tasks.
pub(crate) type Submit = fn(&EventLoop, u32);

pub(crate) const ALL: [(&str, Submit); 4] = [
    ("spawn", |ev, tasks| {
        for _ in 0..tasks {
            drop(ev.spawn(async {}));
        }
    }),
    ("spawn_detached", |ev, tasks| {
        for _ in 0..tasks {
            ev.spawn_detached(async {}).unwrap();
        }
    }),
    ("execute", |ev, tasks| {
        for n in 0..tasks {
            ev.execute(move || _ = black_box(n)).unwrap();
        }
    }),
    ("execute, two types,", |ev, tasks| {
        for n in 0..tasks / 2 {
            ev.execute(move || _ = black_box(n)).unwrap();
            ev.execute(move || _ = black_box(u64::from(n))).unwrap();
        }
    }),
];

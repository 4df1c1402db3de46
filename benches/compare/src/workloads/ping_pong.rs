//! W4: two tasks on one loop that wake each other through [`Slot`]s.
//!
//! Part of each round trip are the slots' own atomics, two swaps and a registration each way.

use crate::child::Figures;
use crate::params::Params;
use crate::runtimes::Spawn;
use crate::slot::Slot;
use crate::stats::Stopwatch;

pub(crate) async fn run<R: Spawn>(params: Params) -> Figures {
    let trips = params.get("trips");
    let mut watch = Stopwatch::new(trips);
    for _ in 0..=params.get("reps") {
        let (there, back) = (Slot::leak(), Slot::leak());
        watch.start();
        let pong = R::spawn(async move {
            for _ in 0..trips {
                back.put(there.take().await);
            }
        });
        let ping = R::spawn(async move {
            for _ in 0..trips {
                there.put(1);
                back.take().await;
            }
        });
        ping.await;
        pong.await;
        watch.stop();
    }
    Figures::one("trip_ns", watch.nanos())
}

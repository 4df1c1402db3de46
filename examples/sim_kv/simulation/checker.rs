//! A client of the simulation that says whether the others were served well.

use std::rc::Rc;
use std::time::Duration;

use loopgroup::testing::sim;
use loopgroup::time;

use super::{ALL, KEYS, PRIMARY, Seen};
use crate::client::Client;
use crate::history::check;
use crate::operation::evidence;
use crate::workload::{History, read};

/// Between two looks at what the clients have seen.
const LOOK: Duration = Duration::from_millis(500);

/// Looks all the time, so that a failure is found soon after its cause; then asks for a sign of life.
pub(super) async fn checker(history: Rc<History>, seen: Seen) -> Result<(), String> {
    while history.now() < ALL {
        time::sleep(LOOK).await;
        check(&history.operations()).inspect_err(|text| {
            let (at, evidence) = (history.now(), evidence(history.operations(), text));
            seen.lock().unwrap().insert((at, text.clone()), evidence);
        })?;
    }
    let mut client = Client::new("checker", PRIMARY);
    let dead = |error| format!("no answer after all faults have healed: {error}");
    client.put("alive", "yes").await.map_err(dead)?;
    for key in 0..KEYS {
        let key = format!("key{key}");
        read(&mut client, &key, &history).await.map_err(dead)?;
    }
    let operations = history.operations();
    let unknown = operations
        .iter()
        .filter(|one| one.returned.is_none())
        .count();
    sim::sometimes("a write has an unknown outcome", unknown > 3);
    check(&operations)
}

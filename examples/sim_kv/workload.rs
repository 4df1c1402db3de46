//! A client that writes down what it does and sees.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use loopgroup::testing::sim;
use loopgroup::time;

use crate::client::Client;
use crate::operation::{Action, Operation};

/// Of all clients, on one clock: that of their loop, which a simulation may own.
pub(crate) struct History {
    start: Instant,
    operations: RefCell<Vec<Operation>>,
}

impl History {
    pub(crate) fn new(start: Instant) -> Rc<History> {
        Rc::new(History {
            start,
            operations: RefCell::default(),
        })
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.operations.borrow().clone()
    }

    fn note(
        &self,
        key: &str,
        action: Action,
        invoked: Duration,
        returned: Option<Duration>,
    ) -> usize {
        let mut operations = self.operations.borrow_mut();
        operations.push(Operation {
            key: key.to_string(),
            action,
            invoked,
            returned,
        });
        operations.len() - 1
    }

    pub(crate) fn now(&self) -> Duration {
        time::now() - self.start
    }
}

/// Writes and reads by turns, for ever, and rests for up to `pause` before each; the values begin with its
/// name, which no other client has.
pub(crate) async fn work(
    name: String,
    primary: String,
    keys: usize,
    pause: Duration,
    history: Rc<History>,
) {
    let mut client = Client::new(&name, &primary);
    let rest = async || time::sleep(pause.mul_f64(sim::random() as f64 / u64::MAX as f64)).await;
    for number in 0.. {
        rest().await;
        let (key, value) = (format!("key{}", number % keys), format!("{name}.{number}"));
        // Noted before it begins: this client may be killed before it ends.
        let index = history.note(&key, Action::Put(value.clone()), history.now(), None);
        if client.put(&key, &value).await.is_ok() {
            history.operations.borrow_mut()[index].returned = Some(history.now());
        }
        rest().await;
        // Of the key it wrote the longest ago: there a write that is lost is not yet hidden by the next one.
        let key = format!("key{}", (number + 1) % keys);
        let _ = read(&mut client, &key, &history).await; // one that fails has seen nothing
    }
}

pub(crate) async fn read(client: &mut Client, key: &str, history: &History) -> io::Result<()> {
    let invoked = history.now();
    let value = client.get(key).await?;
    history.note(key, Action::Get(value), invoked, Some(history.now()));
    Ok(())
}

//! The node that clients talk to. It has no successor: while it is away, or a backup is, nothing is written.
//!
//! - A write is acknowledged, and read, once both backups have it: no read can see what a crash undoes.
//! - One write is on its way at a time: that which has the lock of the backups.
//! - A restarted primary answers nobody before it has heard both backups, has taken over the longer state,
//!   which has all that was acknowledged, and has given it to both. States of the same length are the same,
//!   since a backup listens to one primary at a time: see `Backup`.
//! - An acknowledged write is lost only if all three nodes forget it: if each restarts before the ones that
//!   restarted earlier were filled again. One process at a time has the primary's address.

use std::{cell::RefCell, io, rc::Rc};

use futures::{future::join_all, lock::Mutex};
use loopgroup::{spawn_local, time};

use crate::bug::Bug;
use crate::client::{PAUSE, Peer};
use crate::wire::{Answer, Node, Question, Store, serve};

struct Primary {
    bug: Bug,
    /// What both backups have.
    store: RefCell<Store>,
    backups: Mutex<[Peer; 2]>,
}

pub(crate) async fn primary(address: &str, backups: [&str; 2], bug: Bug) -> io::Result<()> {
    let primary = Rc::new(Primary {
        bug,
        store: RefCell::default(),
        backups: Mutex::new(backups.map(Peer::new)),
    });
    match bug {
        Bug::StaleRead => drop(spawn_local(Rc::clone(&primary).recover())),
        _ => Rc::clone(&primary).recover().await,
    }
    drop(spawn_local(Rc::clone(&primary).fill()));
    serve(address, primary).await
}

impl Node for Primary {
    async fn answer(&self, _: u64, question: Question) -> io::Result<Answer> {
        match question {
            Question::Get(key) => Ok(Answer::Value(self.store.borrow().values.get(&key).cloned())),
            Question::Put((client, request), key, value) => {
                let mut backups = self.backups.lock().await;
                let mut store = self.store.borrow().clone();
                // Otherwise a retry of a write that was successful, or that had the lock before it.
                let last = store.requests.insert(client, request);
                if last < Some(request) {
                    store.writes += 1;
                    store.values.insert(key, value);
                    match self.bug {
                        Bug::AckBeforeReplication => drop(self.store.replace(store)),
                        _ => self.install(store, &mut *backups).await,
                    }
                }
                Ok(Answer::Done)
            }
            _ => Err(io::Error::other("not a primary's business")),
        }
    }
}

impl Primary {
    async fn recover(self: Rc<Self>) {
        let mut store = Store::default();
        let mut backups = self.backups.lock().await;
        for backup in &mut *backups {
            if let Answer::State(found) = backup.insist(&Question::Fetch).await {
                store = store.max(found);
            }
        }
        store.requests.retain(|_, _| self.bug != Bug::DoubleApply);
        self.install(store, &mut *backups).await;
    }

    /// A backup that has restarted must be filled in time, also if nothing is written.
    async fn fill(self: Rc<Self>) {
        loop {
            time::sleep(4 * PAUSE).await;
            let mut backups = self.backups.lock().await;
            let store = self.store.borrow().clone();
            self.install(store, &mut *backups).await;
        }
    }

    /// Both backups get it in each round: the one that has it may restart while the other one is away.
    async fn install(&self, store: Store, backups: &mut [Peer]) {
        let question = Question::Install(store.clone());
        loop {
            let asked = join_all(backups.iter_mut().map(|backup| backup.ask(&question)));
            if asked.await.iter().all(Result::is_ok) || self.bug == Bug::LostAck {
                break;
            }
            time::sleep(PAUSE).await;
        }
        self.store.replace(store);
    }
}

//! A cluster and its clients, as a simulation: the node of production, with its disk in memory.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use loopgroup::testing::sim::{self, Faults, Simulation};
use loopgroup::time::{sleep, timeout};
use openraft_on_loops::bugs::{self, Bug};
use openraft_on_loops::node;
use openraft_on_loops::peer::Peer;
use openraft_on_loops::store::{Disk, MemoryDisk};
use openraft_on_loops::types::Set;
use openraft_on_loops::wire::Request;
use serde::de::DeserializeOwned;

use crate::history::History;

/// Registers that all clients write; each client has others of its own.
const SHARED: u64 = 3;
/// How long an operation may take once everything is mended.
const PATIENCE: Duration = Duration::from_secs(20);
/// What each client must get done after that.
const AFTER_THE_FAULTS: u32 = 5;

/// A cluster and its clients, and what they are exposed to.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub nodes: u64,
    pub clients: u64,
    /// Everything is mended after so long.
    pub chaos: Duration,
    pub faults: fn() -> Faults,
    /// Clients only write, as fast as they can; one node is away until it needs a snapshot.
    pub is_busy: bool,
    pub bug: Option<Bug>,
}

impl Setting {
    /// Builds a run whose judge fails it if the clients were told what one copy of the data would not have
    /// told.
    pub fn build(self, sim: &mut Simulation) {
        bugs::plant(self.bug);
        let addresses: BTreeMap<u64, String> = (1..=self.nodes)
            .map(|id| (id, format!("node{id}:7000")))
            .collect();
        for id in 1..=self.nodes {
            add_node(sim, id, addresses.clone());
        }
        let history = History::new(sim.now());
        let running = Rc::new(Cell::new(0));
        if self.is_busy {
            sim.at(Duration::from_secs(1), |sim| sim.crash("node3"));
            sim.at(Duration::from_secs(6), |sim| sim.restart("node3"));
        }
        for number in 1..=self.clients {
            let client = Client::new(number, &addresses, &history);
            let running = Rc::clone(&running);
            sim.client(&format!("client{number}"), async move {
                running.set(running.get() + 1);
                let done = client.run(self).await;
                running.set(running.get() - 1);
                done
            });
        }
        let client = Client::new(0, &addresses, &history);
        sim.client("judge", judge(client, running));
        sim.faults((self.faults)().until(self.chaos));
    }
}

/// The disk is made here, outside of the host: it is there when the host is started again.
fn add_node(sim: &mut Simulation, id: u64, addresses: BTreeMap<u64, String>) {
    let disk = MemoryDisk::default();
    sim.host(&format!("node{id}"), move |host| {
        let (disk, addresses) = (disk.clone(), addresses.clone());
        async move {
            let has_log = disk.read()?.windows(8).any(|word| word == b"\"Append\"");
            sim::sometimes(
                "a node is restarted with a log",
                host.restarts() > 0 && has_log,
            );
            node::run(id, addresses, Rc::new(disk), sim::random()).await
        }
    });
}

/// Waits for the clients, reads every key once more, and has a look at what everybody was told.
async fn judge(mut client: Client, running: Rc<Cell<u32>>) -> Result<(), String> {
    sleep(Duration::from_secs(1)).await;
    while running.get() > 0 {
        sleep(Duration::from_millis(100)).await;
    }
    for key in client.history.keys() {
        client
            .within_patience(async |client| client.get(&key).await)
            .await?;
    }
    client.history.check()
}

struct Client {
    number: u64,
    peers: Vec<Peer>,
    /// The node that is asked next.
    place: usize,
    /// The node that has answered last.
    leader: Option<usize>,
    history: History,
    /// How many values it has written.
    values: u64,
}

impl Client {
    fn new(number: u64, addresses: &BTreeMap<u64, String>, history: &History) -> Client {
        let peers: Vec<Peer> = addresses.values().cloned().map(Peer::new).collect();
        Client {
            number,
            place: number as usize % peers.len(),
            peers,
            leader: None,
            history: history.clone(),
            values: 0,
        }
    }

    async fn run(mut self, setting: Setting) -> Result<(), String> {
        let Setting { chaos, is_busy, .. } = setting;
        while self.history.now() < chaos {
            // What is not done a while after everything is mended never is.
            let left = chaos.saturating_sub(self.history.now());
            let done = match is_busy {
                true => timeout(left + PATIENCE, self.put_own()).await,
                false => timeout(left + PATIENCE, self.do_something()).await,
            };
            done.map_err(|_| self.without_progress())?;
            let pause = if is_busy { 10 } else { 300 };
            sleep(Duration::from_millis(sim::random() % pause)).await;
        }
        for _ in 0..AFTER_THE_FAULTS {
            self.within_patience(async |client| client.do_something().await)
                .await?;
        }
        Ok(())
    }

    async fn within_patience(
        &mut self,
        operation: impl AsyncFnOnce(&mut Client),
    ) -> Result<(), String> {
        let done = timeout(PATIENCE, operation(self)).await;
        done.map_err(|_| self.without_progress())
    }

    fn without_progress(&self) -> String {
        format!(
            "client {} has made no progress, though everything is mended",
            self.number
        )
    }

    async fn do_something(&mut self) {
        let key = format!("shared{}", sim::random() % SHARED);
        match sim::random() % 4 {
            0 => self.put_own().await,
            1 => self.put_shared(&key).await,
            _ => self.get(&key).await,
        }
    }

    /// Writes a key that nobody else writes: so it is safe to write the same again, if there is no answer.
    async fn put_own(&mut self) {
        let value = self.next_value();
        let key = format!("own{value}");
        let write = self.history.invoke_write(&key, &value);
        let set = Request::Set(Set { key, value });
        while self.ask::<()>(&set).await.is_err() {
            sim::sometimes("a write is retried", true);
        }
        self.history.acknowledge(write);
    }

    /// Writes a key that others write as well. A write that was not answered may happen yet, after another's:
    /// requests have no numbers by which a node would know one again, so the next attempt is another value.
    async fn put_shared(&mut self, key: &str) {
        loop {
            let (key, value) = (key.to_owned(), self.next_value());
            let write = self.history.invoke_write(&key, &value);
            if self
                .ask::<()>(&Request::Set(Set { key, value }))
                .await
                .is_ok()
            {
                return self.history.acknowledge(write);
            }
        }
    }

    async fn get(&mut self, key: &str) {
        let request = Request::Get(key.to_owned());
        loop {
            // Each attempt is a read of its own, which has to see what was acknowledged before it began.
            let invoked = self.history.now();
            if let Ok(value) = self.ask(&request).await {
                return self.history.read(key, value, invoked);
            }
        }
    }

    fn next_value(&mut self) -> String {
        self.values += 1;
        (self.number * 1_000_000 + self.values).to_string()
    }

    /// Asks a node once. If it does not answer, or is no leader, another one is asked next.
    async fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> io::Result<T> {
        let limit = Duration::from_millis(200 + sim::random() % 800);
        let answer = self.peers[self.place].call(request, limit).await;
        if answer.is_ok() {
            let leader = self.leader.replace(self.place);
            sim::sometimes(
                "the leader has changed",
                leader.is_some_and(|leader| leader != self.place),
            );
        } else {
            self.place = (self.place + 1) % self.peers.len();
            sleep(Duration::from_millis(20 + sim::random() % 50)).await;
        }
        answer
    }
}

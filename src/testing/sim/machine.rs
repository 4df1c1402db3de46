//! A host or client of a simulation: what it runs, and the life that it is in.
//!
//! - A host can have many lives: it is started again by `restart`, with new loops, no sockets and no memory.
//!   A client has one.
//! - The loops of a life are a group of the production kind, on a [`SimulatedHost`]. The group's handle is
//!   kept here as long as the life lasts, as `main` would keep it.
//! - A panic that nobody can join ends the simulation; so does an error of the main future, and a poll that
//!   sleeps in real time.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::builder::Builder;
use crate::clock::VirtualClock;
use crate::group::handle::EventLoopGroup;
use crate::random::scramble;
use crate::sim::{HostId, HostNet, MAIN, SimulatedHost};
use crate::sync::Arc;
use crate::task::join::JoinHandle;
use crate::task_builder::task;
use crate::testing::sim::world::World;

/// The future of a host's main program: its error, if it has failed.
pub(super) type Main = Pin<Box<dyn Future<Output = Option<String>>>>;

/// What a machine runs.
pub(super) enum Program {
    /// Started again with each life.
    Host(Rc<dyn Fn(Host) -> Main>),
    /// `None` once it has been started.
    Client(Option<Main>),
}

/// A simulated host, as the function that [`Simulation::host`](super::Simulation::host) is given sees it.
#[derive(Clone, Debug)]
pub struct Host {
    pub(super) name: Arc<str>,
    pub(super) address: IpAddr,
    pub(super) life: u32,
}

impl Host {
    /// Returns its name, which resolves to its address on every host of the simulation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns how many times it was started before: 0 in its first life.
    pub fn restarts(&self) -> u32 {
        self.life
    }
}

/// Named, for what reports it: the place of its spawn is here.
fn spawn_main(main: impl Future<Output = Option<String>> + 'static) -> JoinHandle<Option<String>> {
    task().name(MAIN).spawn_local(main)
}

/// How a machine's main future has ended.
pub(super) enum Ended {
    Well,
    Failed(String),
    Panicked(String),
    /// Its polls have slept in real time.
    Slept(String),
}

pub(super) struct Machine {
    pub(super) name: Arc<str>,
    pub(super) id: HostId,
    address: IpAddr,
    loops: usize,
    pub(super) clock: Arc<VirtualClock>,
    program: Program,
    lives: u32,
    life: Option<Life>,
    /// Its main future has ended, in this life.
    pub(super) is_done: bool,
}

struct Life {
    /// Dropped with the life: the end of the process.
    _group: EventLoopGroup,
    main: Option<JoinHandle<Option<String>>>,
    /// Has the panics that nobody can join.
    host: Arc<SimulatedHost>,
}

impl Machine {
    pub(super) fn new(
        name: &str,
        id: HostId,
        address: IpAddr,
        loops: usize,
        world: &World,
        program: Program,
    ) -> Machine {
        Machine {
            name: name.into(),
            id,
            address,
            loops,
            clock: Arc::new(world.clock.follower()),
            program,
            lives: 0,
            life: None,
            is_done: false,
        }
    }

    pub(super) fn is_client(&self) -> bool {
        matches!(self.program, Program::Client(_))
    }

    pub(super) fn is_running(&self) -> bool {
        self.life.is_some()
    }

    /// Begins a life; has no effect during one.
    pub(super) fn start(&mut self, world: &mut World, seed: u64) {
        if self.life.is_some() {
            return;
        }
        let host = Host {
            name: Arc::clone(&self.name),
            address: self.address,
            life: self.lives,
        };
        let of_simulation = seed;
        let life = (u64::from(self.id.0) << 32) | u64::from(self.lives);
        let seed = scramble(scramble(seed).wrapping_add(life));
        self.lives += 1;
        let net = HostNet {
            network: Arc::clone(&world.network),
            host: self.id,
        };
        let clock = Arc::clone(&self.clock);
        let simulated = SimulatedHost::new(
            &self.name,
            net,
            clock,
            world.poll_cost,
            (of_simulation, seed),
            &world.nursery,
        );
        let simulated = Arc::new(simulated);
        let group = Builder::new()
            .loops(self.loops)
            .on_host(Arc::clone(&simulated))
            .build()
            .expect("the settings are valid, and simulated loops need no resources");
        let numbers = world.adopt(&self.clock);
        let main = match &mut self.program {
            Program::Host(make) => {
                let make = Rc::clone(make);
                // Made on its own loop: the function may bind sockets and build groups before its first
                // await.
                let main = async move { make(host).await };
                world.run_inside(numbers[0], move || spawn_main(main))
            }
            Program::Client(main) => main
                .take()
                .and_then(|main| world.run_inside(numbers[0], move || spawn_main(main))),
        };
        self.is_done = false;
        self.life = Some(Life {
            _group: group,
            main,
            host: simulated,
        });
    }

    /// Ends the life: nothing of it runs any more. What its network does is the caller's business.
    pub(super) fn stop(&mut self, world: &mut World) {
        world.kill(self.id);
        self.life = None;
        self.is_done = self.is_client();
    }

    /// Whether its main future has ended since the last call, or a task has panicked, and how.
    pub(super) fn look(&mut self) -> Option<Ended> {
        let life = self.life.as_mut()?;
        if let Some(text) = life.host.take_panic() {
            return Some(Ended::Panicked(text));
        }
        if let Some(text) = life.host.take_sleep() {
            return Some(Ended::Slept(text));
        }
        let main = life.main.as_mut().filter(|main| main.is_finished())?;
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(ended) = Pin::new(main).poll(&mut cx) else {
            return None;
        };
        life.main = None;
        self.is_done = true;
        Some(match ended {
            Ok(None) => Ended::Well,
            Ok(Some(error)) => Ended::Failed(error),
            Err(error) if error.is_panic() => Ended::Panicked(error.to_string()),
            // A program that shuts its own loop down.
            Err(error) => Ended::Failed(error.to_string()),
        })
    }

    /// Says what it is doing, for an error.
    pub(super) fn describe(&self, world: &World) -> String {
        let name = &self.name;
        let kind = if self.is_client() { "client" } else { "host" };
        if self.life.is_none() {
            return format!("{kind} {name:?}: not running");
        }
        let state = if self.is_done {
            "its main future has ended"
        } else {
            "running"
        };
        let mut text = format!(
            "{kind} {name:?}: {state}, {} loops",
            world.loops_of(self.id)
        );
        let sockets = world.network.describe(self.id);
        for line in world.describe(self.id).into_iter().chain(sockets) {
            text.push_str("\n        ");
            text.push_str(&line);
        }
        text
    }
}

//! Hosts, clients and a network between them, in virtual time: the part that a test talks to.
//!
//! - A simulation is a function of its seed, as long as its hosts are: the module's documentation lists what
//!   leaks.
//! - The order of what happens at one moment: what is on the agenda (faults, and what a test has planned),
//!   then the network, then the loops.
//! - The first failure ends the simulation: an error of a main future, or a panic that nobody can join.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::event_loop::context;
use crate::random::{Random, scramble};
use crate::sim::{HostId, Link, Network};
use crate::sync::Arc;
use crate::testing::sim::diagram::diagram;
use crate::testing::sim::here;
use crate::testing::sim::machine::{Ended, Host, Machine, Program};
use crate::testing::sim::outcome::{Failure, Outcome, SimError, SimErrorKind, SimReport};
use crate::testing::sim::picture;
use crate::testing::sim::replay;
use crate::testing::sim::world::{END, Step, World};
use crate::unwind::message;

/// The longest virtual time that `run` takes, unless the builder says otherwise.
const TIME_LIMIT: Duration = Duration::from_secs(3600);

const REST_HINT: &str =
    "await something, such as loopgroup::time::sleep, in the task that wakes itself for ever";

type Planned = Box<dyn FnOnce(&mut Simulation)>;

/// Hosts and clients on a simulated network, in virtual time, as a seed has it.
///
/// See the [module](crate::testing::sim) for what runs in it, and an example.
pub struct Simulation {
    seed: u64,
    pub(super) world: World,
    /// By the number of their host.
    machines: Vec<Machine>,
    names: BTreeMap<Arc<str>, HostId>,
    /// What the links between two hosts are like, where that was set.
    pub(super) links: BTreeMap<(HostId, HostId), Link>,
    /// How many faults cut a path off at the moment.
    pub(super) cuts: BTreeMap<(HostId, HostId), u32>,
    /// How many faults make a link bad at the moment, and how many keep a host down.
    pub(super) spoilt: BTreeMap<(HostId, HostId), u32>,
    pub(super) downs: BTreeMap<HostId, u32>,
    pub(super) settings: Settings,
    /// What is to be done when, in the order in which it was planned.
    agenda: BTreeMap<Duration, VecDeque<Planned>>,
    /// What is to be planned when all hosts are known.
    plans: Vec<Planned>,
    has_begun: bool,
    /// What the test draws from.
    dice: Random,
    /// How many plans of faults there were.
    pub(super) fault_plans: u64,
    /// The faults that have happened.
    happened: Vec<String>,
    failure: Option<SimError>,
    clients_left: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    loops: usize,
    time_limit: Duration,
    partial_calls: f64,
    poll_cost: Duration,
    /// Of those hosts for which nothing else was set.
    pub(super) link: Link,
}

/// Configures a [`Simulation`].
///
/// # Examples
///
/// ```
/// use loopgroup::testing::sim::{Link, Simulation};
/// use std::time::Duration;
///
/// let sim = Simulation::builder()
///     .seed(7)
///     .loops(2) // of each host
///     .link(Link::default().latency(Duration::from_millis(20)))
///     .time_limit(Duration::from_secs(60))
///     .build();
/// assert_eq!(sim.elapsed(), Duration::ZERO);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until build()"]
pub struct SimulationBuilder {
    seed: u64,
    settings: Settings,
}

impl SimulationBuilder {
    /// Sets the seed; 0 if this is not called.
    pub fn seed(mut self, seed: u64) -> SimulationBuilder {
        self.seed = seed;
        self
    }

    /// Sets the number of loops that each host and client begins with; 1 if this is not called.
    pub fn loops(mut self, loops: usize) -> SimulationBuilder {
        self.settings.loops = loops;
        self
    }

    /// Sets the longest virtual time that [`run`](Simulation::run) takes; an hour if this is not called.
    pub fn time_limit(mut self, limit: Duration) -> SimulationBuilder {
        self.settings.time_limit = limit;
        self
    }

    /// Sets how long each poll of a task takes, in virtual time; none if this is not called.
    ///
    /// The loops of a simulation are then busy while they work, side by side, as on cores of their own. That
    /// is what load is: choosers, elastic groups and [`rebalance`](crate::net::Server::rebalance) go by it.
    pub fn poll_cost(mut self, cost: Duration) -> SimulationBuilder {
        self.settings.poll_cost = cost;
        self
    }

    /// Sets how many of the calls that read or write a stream do so in part only, between 0 and 1; 0.1 if
    /// this is not called.
    pub fn partial_calls(mut self, share: f64) -> SimulationBuilder {
        self.settings.partial_calls = share.clamp(0.0, 1.0);
        self
    }

    /// Sets what the links between all hosts are like; see [`Simulation::link`] for those of two.
    pub fn link(mut self, link: Link) -> SimulationBuilder {
        self.settings.link = link;
        self
    }

    /// Creates the simulation, with no hosts.
    ///
    /// # Panics
    ///
    /// If there are to be hosts without a loop.
    #[track_caller]
    pub fn build(self) -> Simulation {
        assert!(self.settings.loops > 0, "a host needs at least one loop");
        let mut world = World::new(self.seed);
        world.poll_cost = self.settings.poll_cost;
        world.network.set_partial(self.settings.partial_calls);
        world.network.set_default_link(self.settings.link.clone());
        Simulation {
            seed: self.seed,
            world,
            machines: Vec::new(),
            names: BTreeMap::new(),
            links: BTreeMap::new(),
            cuts: BTreeMap::new(),
            spoilt: BTreeMap::new(),
            downs: BTreeMap::new(),
            settings: self.settings,
            agenda: BTreeMap::new(),
            plans: Vec::new(),
            has_begun: false,
            dice: Random::new(scramble(self.seed ^ 0x7465_7374)),
            fault_plans: 0,
            happened: Vec::new(),
            failure: None,
            clients_left: 0,
        }
    }
}

impl Simulation {
    /// Creates a simulation with default settings, of the given seed.
    pub fn seeded(seed: u64) -> Simulation {
        Simulation::builder().seed(seed).build()
    }

    /// Configures a simulation.
    pub fn builder() -> SimulationBuilder {
        let settings = Settings {
            loops: 1,
            time_limit: TIME_LIMIT,
            partial_calls: 0.1,
            poll_cost: Duration::ZERO,
            link: Link::default(),
        };
        SimulationBuilder { seed: 0, settings }
    }

    /// Adds a host and starts it: `program` is called on its first loop, and again after each
    /// [`restart`](Simulation::restart).
    ///
    /// The simulation does not wait for a host. If its main future returns an error, or a task of it panics,
    /// the simulation fails.
    ///
    /// # Panics
    ///
    /// If there is a host or client of that name, or the name is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{net::UdpSocket, testing::sim::Simulation};
    ///
    /// async fn clock(address: std::net::IpAddr) -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind((address, 37)).await?;
    ///     loop {
    ///         let (_, peer) = socket.recv_from(&mut [0; 8]).await?;
    ///         socket.send_to(b"12:00", peer).await?;
    ///     }
    /// }
    ///
    /// let mut sim = Simulation::seeded(1);
    /// sim.host("clock", |host| clock(host.address()));
    /// sim.client("user", async {
    ///     let socket = UdpSocket::bind("0.0.0.0:0").await?;
    ///     socket.send_to(b"?", "clock:37").await?;
    ///     let mut answer = [0; 8];
    ///     let (len, _) = socket.recv_from(&mut answer).await?;
    ///     assert_eq!(&answer[..len], b"12:00");
    ///     std::io::Result::Ok(())
    /// });
    /// sim.run().unwrap();
    /// ```
    #[track_caller]
    pub fn host<P, F>(&mut self, name: &str, program: P)
    where
        P: Fn(Host) -> F + 'static,
        F: Future + 'static,
        F::Output: Outcome,
    {
        let make = move |host| {
            let main = program(host);
            let main: crate::testing::sim::machine::Main =
                Box::pin(async move { main.await.into_error() });
            main
        };
        self.add(name, Program::Host(Rc::new(make)));
    }

    /// Adds a client and starts it: a host with one life, whose end the simulation waits for. A client that
    /// is killed, or crashes, has ended.
    ///
    /// # Panics
    ///
    /// If there is a host or client of that name, or the name is empty.
    #[track_caller]
    pub fn client<F>(&mut self, name: &str, main: F)
    where
        F: Future + 'static,
        F::Output: Outcome,
    {
        let main = Box::pin(async move { main.await.into_error() });
        self.add(name, Program::Client(Some(main)));
        self.clients_left += usize::from(!replay::leaves_out(name));
    }

    #[track_caller]
    fn add(&mut self, name: &str, program: Program) {
        refuse_on_loop();
        assert!(!name.is_empty(), "a host needs a name");
        let number = self.machines.len() as u32 + 1;
        let [_, high, middle, low] = number.to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(10, high, middle, low));
        let id = match self.world.network.add_host(name, address) {
            Ok(id) => id,
            Err(error) => panic!(
                "{name:?} cannot be added: {error}: there are {:?}",
                self.names(true)
            ),
        };
        let loops = self.settings.loops;
        let machine = Machine::new(name, id, address, loops, &self.world, program);
        self.names.insert(Arc::clone(&machine.name), id);
        self.machines.push(machine);
        match replay::leaves_out(name) {
            true => self.network().crash(id),
            false => self.start(id),
        }
    }

    /// Returns the address of a host or client.
    ///
    /// # Panics
    ///
    /// Like all methods that take the name of a host: if there is none of that name. The message lists those
    /// that there are.
    #[track_caller]
    pub fn address(&self, host: &str) -> IpAddr {
        self.world.network.address_of(self.id(host))
    }

    /// Runs until all clients have ended.
    ///
    /// # Errors
    ///
    /// The first failure: an error or a panic of a host or client, the time limit, or that nothing will ever
    /// happen any more. It says what the others wait for, and what the last events of the network were.
    ///
    /// # Panics
    ///
    /// On the thread of an event loop, for example in a task.
    #[track_caller]
    pub fn run(&mut self) -> Result<SimReport, SimError> {
        self.begin();
        if self.machines.iter().all(|one| !one.is_client()) {
            let text = "there is no client whose end could be waited for: add one, or call run_for";
            return Err(self.fail(SimErrorKind::Stuck, None, text.into()));
        }
        let limit = self.elapsed().saturating_add(self.settings.time_limit);
        while self.clients_left > 0 {
            if let Some(failure) = &self.failure {
                return Err(failure.clone());
            }
            let text = match self.step_within(limit) {
                Step::Ran(_) | Step::Later => continue,
                Step::Limit => {
                    self.world.go_to(limit.max(self.elapsed()));
                    let limit = self.settings.time_limit;
                    let restless = self.describe_restless();
                    let text = format!("the clients have not ended within {limit:?}{restless}");
                    (SimErrorKind::TimeLimit, text)
                }
                Step::Nothing => {
                    let text = "nothing will happen any more, and the clients have not ended: no packet is \
                                under way, and no timer is set; threads of your own are not waited for";
                    (SimErrorKind::Stuck, text.to_owned())
                }
            };
            return Err(self.fail(text.0, None, text.1));
        }
        self.outcome()
    }

    /// Runs for so much virtual time, whether or not there are clients.
    ///
    /// # Errors
    ///
    /// The first failure of a host or client.
    ///
    /// # Panics
    ///
    /// On the thread of an event loop, for example in a task.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::sim::Simulation, time::sleep};
    /// use std::time::Duration;
    ///
    /// let mut sim = Simulation::seeded(1);
    /// sim.host("idle", |_| async { sleep(Duration::from_secs(3600)).await });
    /// let report = sim.run_for(Duration::from_secs(60)).unwrap();
    /// assert_eq!(report.elapsed(), Duration::from_secs(60)); // takes microseconds
    /// ```
    #[track_caller]
    pub fn run_for(&mut self, time: Duration) -> Result<SimReport, SimError> {
        self.begin();
        let limit = self.elapsed().saturating_add(time);
        while self.failure.is_none() {
            match self.step_within(limit) {
                Step::Ran(_) | Step::Later => {}
                Step::Limit | Step::Nothing => {
                    self.world.go_to(limit);
                    break;
                }
            }
        }
        self.outcome()
    }

    /// Runs one turn of one loop, or goes on to the next event; `false` if nothing will happen any more, or
    /// after a
    /// [failure](Simulation::failure).
    ///
    /// # Panics
    ///
    /// On the thread of an event loop, for example in a task.
    #[track_caller]
    #[must_use = "false is the end, or a failure"]
    pub fn step(&mut self) -> bool {
        self.begin();
        if self.failure.is_some() {
            return false;
        }
        matches!(self.step_within(Duration::MAX), Step::Ran(_) | Step::Later)
    }

    /// Returns how a host or client has failed, if one has.
    pub fn failure(&self) -> Option<&SimError> {
        self.failure.as_ref()
    }

    /// Returns 64 random bits of the seed, for a test that draws the system that it builds. (On a host, that
    /// is
    /// [`sim::random`](super::random).)
    pub fn random(&mut self) -> u64 {
        self.dice.bits()
    }

    /// Returns how much virtual time has passed.
    pub fn elapsed(&self) -> Duration {
        self.world.elapsed()
    }

    /// Returns the virtual time, by a clock that is ahead of nobody's.
    pub fn now(&self) -> Instant {
        self.world.clock.now()
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Keeps every turn of a loop and every event of the network from now on, for
    /// [`write_chrome_json`](Simulation::write_chrome_json).
    pub fn keep_events(&mut self) {
        self.record();
    }

    /// Writes what was [kept](Simulation::keep_events) as a trace that opens in
    /// [Perfetto](https://ui.perfetto.dev): hosts are processes, loops are threads with their turns, and an
    /// arrow goes from each packet that is sent to its arrival.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{net::UdpSocket, testing::sim::Simulation};
    ///
    /// let mut sim = Simulation::seeded(1);
    /// sim.keep_events();
    /// sim.host("deaf", |_| std::future::pending::<()>());
    /// sim.client("voice", async {
    ///     let socket = UdpSocket::bind("0.0.0.0:0").await?;
    ///     socket.send_to(b"hello?", "deaf:1").await.map(drop)
    /// });
    /// sim.run().unwrap();
    /// let mut json = Vec::new();
    /// sim.write_chrome_json(&mut json)?;
    /// assert!(String::from_utf8(json).unwrap().contains("datagram of 6 bytes"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn write_chrome_json(&self, out: &mut impl io::Write) -> io::Result<()> {
        let events = self.network().recorded();
        let loops = self.world.loop_names();
        picture::write(
            out,
            &self.host_names(),
            &loops,
            self.world.turns_kept(),
            &events,
        )
    }

    /// Returns the last events of the network as a picture (SVG): hosts from left to right, time from top to
    /// bottom, and an arrow for each packet. A failure has [one of its own](SimError::diagram).
    pub fn diagram(&self) -> String {
        diagram(&self.network().last_events(), &self.host_names())
    }

    /// Returns a hash over everything that has happened: two runs of one seed have the same.
    pub fn trace(&self) -> u64 {
        self.world.trace()
    }

    /// Gives a host one more address: of the other family, for example.
    ///
    /// # Panics
    ///
    /// If another host has it, or no host may have it.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{net::TcpListener, testing::sim::Simulation};
    ///
    /// let mut sim = Simulation::seeded(1);
    /// sim.client("both", async {
    ///     let listener = TcpListener::bind("[fd00::1]:80").await?;
    ///     assert!(listener.local_addr()?.is_ipv6());
    ///     std::io::Result::Ok(())
    /// });
    /// sim.add_address("both", "fd00::1".parse().unwrap());
    /// sim.run().unwrap();
    /// ```
    #[track_caller]
    pub fn add_address(&mut self, host: &str, address: IpAddr) {
        if let Err(error) = self.network().add_address(self.id(host), address) {
            panic!("{address} cannot be an address of {host:?}: {error}");
        }
    }

    /// Has `what` done at a moment after the start; at once if that has passed.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{net::TcpStream, testing::sim::Simulation, time::sleep};
    /// use std::{io::ErrorKind, time::Duration};
    ///
    /// let mut sim = Simulation::seeded(1);
    /// sim.host("server", |_| std::future::pending::<()>());
    /// sim.client("client", async {
    ///     let refused = TcpStream::connect("server:80").await.unwrap_err();
    ///     assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    ///     sleep(Duration::from_secs(2)).await;
    ///     let silence = TcpStream::connect("server:80").await.unwrap_err();
    ///     assert_eq!(silence.kind(), ErrorKind::TimedOut); // after two minutes, as on Linux
    /// });
    /// sim.at(Duration::from_secs(1), |sim| sim.crash("server"));
    /// sim.run().unwrap();
    /// ```
    pub fn at(&mut self, after_start: Duration, what: impl FnOnce(&mut Simulation) + 'static) {
        let at = after_start.max(self.elapsed()).min(END);
        self.agenda.entry(at).or_default().push_back(Box::new(what));
    }

    /// Runs until all clients have ended, if that has not happened yet.
    #[track_caller]
    pub(super) fn run_to_end(&mut self) -> Result<SimReport, SimError> {
        let has_clients = self.machines.iter().any(Machine::is_client);
        match has_clients || self.elapsed().is_zero() {
            true => self.run(),
            false => self.outcome(),
        }
    }

    /// The failure of a test that has panicked around the simulation.
    pub(super) fn panicked(&self, payload: &(dyn Any + Send)) -> SimError {
        let text = message(payload).to_owned();
        let failure = self.failure.clone();
        failure.unwrap_or_else(|| self.fail(SimErrorKind::Panicked, None, text))
    }

    /// Keeps every turn and every event of the network, from now on.
    pub(super) fn record(&mut self) {
        self.world.record();
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.world.is_recorded()
    }

    /// What was kept, a line each.
    pub(super) fn recorded(&self) -> Vec<String> {
        self.world.recorded(&self.host_names())
    }

    /// The names of all hosts, by their numbers.
    fn host_names(&self) -> Vec<Arc<str>> {
        let names = self.machines.iter().map(|one| Arc::clone(&one.name));
        names.collect()
    }

    /// Notes which situations of a network the run has reached.
    pub(super) fn note_reached(&self) {
        for (name, count) in self.network().reached().named() {
            here::note(name, 1, u64::from(count > 0));
        }
    }

    /// Has `plan` called when the simulation begins to run, and all hosts are known.
    /// At once, if it runs already.
    pub(super) fn plan(&mut self, plan: impl FnOnce(&mut Simulation) + 'static) {
        match self.has_begun {
            true => plan(self),
            false => self.plans.push(Box::new(plan)),
        }
    }

    pub(super) fn note_fault(&mut self, fault: String) {
        self.happened.push(fault);
    }

    pub(super) fn names(&self, clients: bool) -> Vec<String> {
        let wanted = self
            .machines
            .iter()
            .filter(|one| clients || !one.is_client());
        wanted.map(|one| one.name.to_string()).collect()
    }

    /// Carries out what was put off until all hosts are known.
    #[track_caller]
    fn begin(&mut self) {
        refuse_on_loop();
        self.has_begun = true;
        for plan in std::mem::take(&mut self.plans) {
            plan(self);
        }
    }

    fn step_within(&mut self, limit: Duration) -> Step {
        let due = self.agenda.first_key_value().map(|(at, _)| *at);
        if let Some(due) = due.filter(|due| *due <= self.elapsed()) {
            if let Some(mut planned) = self.agenda.remove(&due) {
                while let Some(one) = planned.pop_front() {
                    one(self);
                }
            }
            return Step::Later;
        }
        let before = match due {
            Some(due) => due.min(limit),
            None => limit,
        };
        let step = self.world.step(before);
        match step {
            Step::Ran(host) => self.look(host),
            Step::Limit | Step::Nothing if due.is_some_and(|due| due <= limit) => {
                self.world.go_to(before);
                return Step::Later;
            }
            _ => {}
        }
        step
    }

    /// Looks whether the main future of a machine has ended.
    fn look(&mut self, host: HostId) {
        let machine = &mut self.machines[host.0 as usize];
        let Some(ended) = machine.look() else {
            return;
        };
        let (name, is_client) = (machine.name.to_string(), machine.is_client());
        if is_client && machine.is_done {
            self.clients_left -= 1;
        }
        let failed = match ended {
            Ended::Well => return,
            Ended::Failed(text) => self.fail(SimErrorKind::Failed, Some(name), text),
            Ended::Panicked(text) => self.fail(SimErrorKind::Panicked, Some(name), text),
            Ended::Slept(text) => self.fail(SimErrorKind::RealTime, Some(name), text),
        };
        self.failure.get_or_insert(failed);
    }

    fn fail(&self, kind: SimErrorKind, host: Option<String>, text: String) -> SimError {
        let is_waiting = |one: &&Machine| one.is_running() && !one.is_done;
        let waiting = match kind {
            SimErrorKind::TimeLimit | SimErrorKind::Stuck => {
                let waiting = self.machines.iter().filter(is_waiting).take(20);
                waiting.map(|one| one.describe(&self.world)).collect()
            }
            _ => Vec::new(),
        };
        let (events, names) = (self.network().last_events(), self.host_names());
        SimError(Box::new(Failure {
            kind,
            seed: self.seed,
            at: self.elapsed(),
            host,
            text,
            waiting,
            faults: self.happened.clone(),
            events: events.iter().map(|event| event.line(&names)).collect(),
            diagram: diagram(&events, &names),
        }))
    }

    /// Names the hosts that never wait, if there are any.
    fn describe_restless(&self) -> String {
        let names = self.world.restless().iter();
        let names: Vec<_> = names
            .map(|id| format!("{:?}", self.machine(*id).name))
            .collect();
        match &names[..] {
            [] => String::new(),
            [one] => format!(": host {one} never waits: {REST_HINT}"),
            _ => format!(": hosts {} never wait: {REST_HINT}", names.join(", ")),
        }
    }

    fn outcome(&self) -> Result<SimReport, SimError> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(SimReport {
                seed: self.seed,
                elapsed: self.elapsed(),
                turns: self.world.turns,
                trace: self.trace(),
            }),
        }
    }

    pub(super) fn start(&mut self, id: HostId) {
        let seed = self.seed;
        self.machines[id.0 as usize].start(&mut self.world, seed);
    }

    pub(super) fn stop(&mut self, id: HostId) {
        let machine = &mut self.machines[id.0 as usize];
        let was_client = machine.is_client() && !machine.is_done && machine.is_running();
        machine.stop(&mut self.world);
        if was_client {
            self.clients_left -= 1;
        }
    }

    pub(super) fn network(&self) -> &Network {
        &self.world.network
    }

    pub(super) fn machine(&self, id: HostId) -> &Machine {
        &self.machines[id.0 as usize]
    }

    #[track_caller]
    pub(super) fn id(&self, name: &str) -> HostId {
        match self.names.get(name) {
            Some(id) => *id,
            None => panic!(
                "no host is named {name:?}: there are {:?}",
                self.names(true)
            ),
        }
    }
}

/// Refuses to be on a loop: a run there would hold it up, and its simulated loops could not be entered.
#[track_caller]
pub(super) fn refuse_on_loop() {
    assert!(
        context::current().is_none(),
        "a simulation was used on the thread of an event loop: run it from the test itself, not from a task"
    );
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // Futures are dropped on their loops, and none of them runs again.
        let Some(_outside) = context::step_out() else {
            return;
        };
        for id in (0..self.machines.len() as u32).map(HostId) {
            self.world.network.crash(id);
            self.stop(id);
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("elapsed", &self.elapsed())
            .field("hosts", &self.names(true))
            .finish_non_exhaustive()
    }
}

//! A network, as its owner sees it: hosts, time, links, faults, and what happened.
//!
//! - The lock is the kernel's; edges are reported after it is released.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::errno::{self, error, fail};
use super::host::{AddHostError, HostId};
use super::kernel::Kernel;
use super::link::Link;
use super::net_event::NetEvent;
use super::picture::{self, SocketNames};
use super::record::Reached;
use super::selector::Selector;
use super::table::Watch;
use crate::sync::{Arc, Mutex, Ordering, plain};

/// The most names of hosts in an error.
const MOST_NAMES: usize = 20;

/// A simulated network; one per simulation.
pub(crate) struct Network {
    kernel: Mutex<Kernel>,
    /// Tells its sockets from those of other networks of the process; the last ones of thousands, at least.
    serial: u16,
}

/// Where the sockets of a loop are.
#[derive(Clone, Debug)]
pub(crate) struct HostNet {
    pub(crate) network: Arc<Network>,
    pub(crate) host: HostId,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Arc<Network> {
        static NETWORKS: plain::AtomicUsize = plain::AtomicUsize::new(0);
        let serial = NETWORKS.fetch_add(1, Ordering::Relaxed) as u16;
        let kernel = Mutex::new(Kernel::new(seed));
        Arc::new(Network { kernel, serial })
    }

    pub(crate) fn serial(&self) -> u16 {
        self.serial
    }

    /// The host of a socket.
    pub(crate) fn host_of(&self, number: u32) -> Option<HostId> {
        self.with(|kernel| {
            let id = kernel.table.numbered(number)?;
            kernel.table.get(id).map(|entry| entry.host)
        })
    }

    /// Calls `work` with the kernel, then reports the edges that it has caused.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Kernel) -> R) -> R {
        let mut kernel = self.kernel.lock();
        let result = work(&mut kernel);
        let edges = std::mem::take(&mut kernel.edges);
        drop(kernel);
        for (watch, event) in edges {
            watch.selector.report(event);
        }
        result
    }

    pub(crate) fn add_host(&self, name: &str, address: IpAddr) -> Result<HostId, AddHostError> {
        self.with(|kernel| kernel.hosts.add(name, address))
    }

    /// Gives a host one more address.
    pub(crate) fn add_address(&self, host: HostId, address: IpAddr) -> Result<(), AddHostError> {
        self.with(|kernel| kernel.hosts.add_address(host, address))
    }

    #[cfg(test)]
    pub(crate) fn host_named(&self, name: &str) -> Option<HostId> {
        self.with(|kernel| kernel.hosts.named(name))
    }

    /// The addresses of a name, as `from` sees it: of a host, or of `localhost`.
    pub(crate) fn resolve(&self, from: HostId, name: &str) -> Option<Vec<IpAddr>> {
        let _ = from;
        self.with(|kernel| kernel.hosts.resolve(name))
    }

    /// The names of the hosts, or of the first ones of many.
    fn shown_names(&self) -> String {
        self.with(|kernel| {
            let names = kernel.hosts.names();
            match names.len() {
                0..=MOST_NAMES => format!("{names:?}"),
                all => format!("{:?} and {} more", &names[..MOST_NAMES], all - MOST_NAMES),
            }
        })
    }

    /// The first address of a host.
    pub(crate) fn address_of(&self, host: HostId) -> IpAddr {
        self.with(|kernel| kernel.hosts.get(host).addresses[0])
    }

    /// Whether a host has not crashed, or was booted since.
    #[cfg(test)]
    pub(crate) fn is_up(&self, host: HostId) -> bool {
        self.with(|kernel| kernel.hosts.get(host).up)
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.with(|kernel| kernel.now)
    }

    /// When the next event is due.
    pub(crate) fn next_event(&self) -> Option<Duration> {
        self.with(|kernel| kernel.queue.next())
    }

    /// Runs every event that is due by `to`, which is the time from now on.
    pub(crate) fn advance(&self, to: Duration) {
        self.with(|kernel| kernel.advance(to));
    }

    pub(crate) fn set_default_link(&self, link: Link) {
        self.with(|kernel| kernel.links.set_default(link));
    }

    pub(crate) fn set_link(&self, from: HostId, to: HostId, link: Link) {
        self.with(|kernel| kernel.links.own_path(from, to).link = Some(link));
    }

    /// The probability that a read or a write moves a part only; 0.1 at first.
    pub(crate) fn set_partial(&self, probability: f64) {
        self.with(|kernel| kernel.partial = probability);
    }

    /// Cuts the path: what is under way is lost, and whatever is sent.
    pub(crate) fn cut(&self, from: HostId, to: HostId) {
        self.with(|kernel| kernel.cut(from, to));
    }

    pub(crate) fn mend(&self, from: HostId, to: HostId) {
        self.with(|kernel| kernel.mend(from, to));
    }

    /// Ends all cuts and holds.
    pub(crate) fn mend_all(&self) {
        self.with(|kernel| kernel.mend_all());
    }

    /// Keeps what arrives, in order, until it is released.
    pub(crate) fn hold(&self, from: HostId, to: HostId) {
        self.with(|kernel| kernel.hold(from, to));
    }

    pub(crate) fn release(&self, from: HostId, to: HostId) {
        self.with(|kernel| kernel.release(from, to));
    }

    /// Lets nothing arrive before `until`.
    pub(crate) fn clog(&self, from: HostId, to: HostId, until: Duration) {
        self.with(|kernel| kernel.clog(from, to, until));
    }

    /// Closes every socket of the host, as its kernel does for a dead process.
    pub(crate) fn close_process(&self, host: HostId) {
        self.with(|kernel| kernel.close_process(host));
    }

    /// Removes every socket of the host; nothing is sent, and nothing arrives there.
    pub(crate) fn crash(&self, host: HostId) {
        self.with(|kernel| kernel.crash(host));
    }

    /// Starts a host again, without sockets.
    pub(crate) fn boot(&self, host: HostId) {
        self.with(|kernel| kernel.boot(host));
    }

    /// Removes the path of a Unix socket; says whether there was one.
    pub(crate) fn unlink(&self, host: HostId, path: &Path) -> bool {
        self.with(|kernel| kernel.unlink(host, path))
    }

    /// A hash over everything that has happened.
    pub(crate) fn trace(&self) -> u64 {
        self.with(|kernel| kernel.record.trace())
    }

    /// The last events, the oldest first: 50 if [`Network::keep_last`] was not told otherwise.
    pub(crate) fn last_events(&self) -> Vec<NetEvent> {
        self.with(|kernel| kernel.record.last())
    }

    #[cfg(test)]
    pub(crate) fn keep_last(&self, events: usize) {
        self.with(|kernel| kernel.record.keep_last(events));
    }

    /// Keeps all events from now on, or forgets them.
    pub(crate) fn record(&self, on: bool) {
        self.with(|kernel| kernel.record.record(on));
    }

    pub(crate) fn recorded(&self) -> Vec<NetEvent> {
        self.with(|kernel| kernel.record.recorded())
    }

    pub(crate) fn reached(&self) -> Reached {
        self.with(|kernel| kernel.record.reached)
    }

    /// The sockets of a host, a line for each.
    pub(crate) fn describe(&self, host: HostId) -> Vec<String> {
        self.with(|kernel| kernel.describe(host))
    }

    /// Reports the edges of a socket from now on, and at once what it is ready for.
    pub(crate) fn watch(
        &self,
        number: u32,
        selector: &Arc<Selector>,
        token: usize,
    ) -> io::Result<()> {
        self.with(|kernel| {
            let id = kernel.table.numbered(number);
            let id = id.ok_or_else(|| error(errno::EBADF))?;
            let entry = kernel.table.owned(id).ok_or_else(|| error(errno::EBADF))?;
            if entry.watch.is_some() {
                return fail(errno::EEXIST);
            }
            let selector = Arc::clone(selector);
            entry.watch = Some(Watch { selector, token });
            kernel.edge(id);
            Ok(())
        })
    }

    /// Ends the reports; one that was not taken yet is taken back.
    pub(crate) fn unwatch(&self, number: u32) {
        let watch = self.with(|kernel| {
            let id = kernel.table.numbered(number)?;
            kernel.table.owned(id)?.watch.take()
        });
        if let Some(watch) = watch {
            watch.selector.forget(watch.token);
        }
    }

    /// Reports once more what a socket is ready for.
    pub(crate) fn look_again(&self, number: u32) {
        self.with(|kernel| {
            if let Some(id) = kernel.table.numbered(number) {
                kernel.edge(id);
            }
        });
    }

    /// What a socket is called.
    pub(crate) fn names_of(&self, number: u32) -> Option<SocketNames> {
        self.with(|kernel| {
            let id = kernel.table.numbered(number)?;
            kernel.table.get(id).map(picture::names_of)
        })
    }
}

impl HostNet {
    /// Why the host may not bind to `address`, and what it may bind to; `None` if it may.
    pub(crate) fn why_not_bind(&self, address: IpAddr) -> Option<String> {
        let host = self.host;
        self.network
            .with(|kernel| kernel.hosts.why_not_bind(host, address))
    }

    /// The addresses of `host:port`, as the host resolves it.
    pub(crate) fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let parts = name.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let Some((host, port)) = parts else {
            let text = format!("cannot look up {name:?} (expected \"host:port\")");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let Some(found) = self.network.resolve(self.host, host) else {
            let text = format!(
                "cannot look up {name:?}: the simulation has no host {host:?}: there are {}",
                self.network.shown_names()
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        Ok(found.into_iter().map(|ip| (ip, port).into()).collect())
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

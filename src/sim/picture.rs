//! What the sockets of a host are doing, a line for each, as `netstat` shows it.

use super::host::HostId;
use super::kernel::Kernel;
use super::listener::ListenerName;
use super::stream::{Names, State, Stream};
use super::table::{Entry, Kind, Owner};

impl Kernel {
    pub(super) fn describe(&self, host: HostId) -> Vec<String> {
        let sockets = self.hosts.get(host).sockets.iter();
        let entries = sockets.filter_map(|&id| self.table.get(id));
        entries.map(line).collect()
    }
}

/// The names of a socket and its peer, and whether it listens.
#[derive(Debug, Default)]
pub(crate) struct SocketNames {
    pub(crate) local: Option<String>,
    pub(crate) peer: Option<String>,
    pub(crate) listens: bool,
}

/// The names of a socket, for those who wait for it.
pub(super) fn names_of(entry: &Entry) -> SocketNames {
    match &entry.kind {
        Kind::Listener(listener) => SocketNames {
            local: Some(match &listener.name {
                ListenerName::Tcp(address) => address.to_string(),
                ListenerName::Unix(path) => path.display().to_string(),
            }),
            peer: None,
            listens: true,
        },
        Kind::Stream(stream) => {
            let (local, peer) = match &stream.names {
                Names::Tcp { local, peer } => (Some(local.to_string()), Some(peer.to_string())),
                Names::Unix { local, peer } => {
                    let name = |path: &Option<std::path::PathBuf>| {
                        path.as_ref().map(|path| path.display().to_string())
                    };
                    (name(local), name(peer))
                }
            };
            let listens = false;
            SocketNames {
                local,
                peer,
                listens,
            }
        }
        Kind::Letters(letters) => {
            let name = |path: &Option<std::path::PathBuf>| {
                path.as_ref().map(|path| path.display().to_string())
            };
            SocketNames {
                local: name(&letters.path),
                peer: name(&letters.peer_path),
                listens: false,
            }
        }
        Kind::Datagrams(datagrams) => SocketNames {
            local: Some(datagrams.local.to_string()),
            peer: datagrams.peer.map(|peer| peer.to_string()),
            listens: false,
        },
    }
}

fn line(entry: &Entry) -> String {
    match &entry.kind {
        Kind::Listener(listener) => {
            let name = match &listener.name {
                ListenerName::Tcp(address) => format!("tcp   LISTEN       {address}"),
                ListenerName::Unix(path) => format!("unix  LISTEN       {}", path.display()),
            };
            let (ready, half_open) = (listener.ready.len(), listener.half_open.len());
            format!("{name}  to accept {ready}, half open {half_open}")
        }
        Kind::Stream(stream) => {
            let (input, output) = (stream.input.len(), stream.output.len());
            let (names, state) = (names(&stream.names), state(stream));
            let owner = match entry.owner {
                Owner::Program => "",
                Owner::Listener => ", not accepted",
                Owner::Kernel => ", closed",
            };
            let (protocol, names) = names;
            format!("{protocol:<5} {state:<12} {names}  to read {input}, to send {output}{owner}")
        }
        Kind::Letters(letters) => {
            let names = Names::Unix {
                local: letters.path.clone(),
                peer: letters.peer_path.clone(),
            };
            format!(
                "unixd              {}  to read {}",
                self::names(&names).1,
                letters.held()
            )
        }
        Kind::Datagrams(datagrams) => {
            let peer = datagrams
                .peer
                .map_or("*".to_owned(), |peer| peer.to_string());
            let (local, taken) = (datagrams.local, datagrams.taken());
            format!("udp                {local} → {peer}  to read {taken}")
        }
    }
}

fn names(names: &Names) -> (&'static str, String) {
    match names {
        Names::Tcp { local, peer } => ("tcp", format!("{local} → {peer}")),
        Names::Unix { local, peer } => {
            let name = |path: &Option<std::path::PathBuf>| {
                let path = path.as_ref().map(|path| path.display().to_string());
                path.unwrap_or_else(|| "*".to_owned())
            };
            ("unix", format!("{} → {}", name(local), name(peer)))
        }
    }
}

fn state(stream: &Stream) -> &'static str {
    let (sent, got) = (stream.output.fin().is_some(), stream.input.fin);
    match stream.state {
        State::Connecting(_) | State::NoRoute => "SYN_SENT",
        State::HalfOpen { .. } => "SYN_RECV",
        State::Dead => "CLOSE",
        State::Open => match (sent, stream.output.finished, got) {
            (false, _, false) => "ESTABLISHED",
            (false, _, true) => "CLOSE_WAIT",
            (true, false, false) => "FIN_WAIT1",
            (true, true, false) => "FIN_WAIT2",
            (true, false, true) => "LAST_ACK",
            (true, true, true) => "TIME_WAIT",
        },
    }
}

//! Three processes of this program, killed one after the other under clients.

use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::process::{Child, Command};
use std::rc::Rc;
use std::time::Duration;

use loopgroup::{spawn_local, time};

use crate::bug::Bug;
use crate::client::Client;
use crate::history::check;
use crate::workload::{History, read, work};

const KEYS: usize = 2;
/// Between two operations of a client: up to so much.
const PAUSE: Duration = Duration::from_millis(2);
/// Between a kill, the restart, and the next kill.
const BREAK: Duration = Duration::from_millis(400);

/// A process that does not outlive this one.
struct Node {
    args: Vec<String>,
    process: Child,
}

impl Node {
    fn start(args: &[impl AsRef<str>]) -> io::Result<Node> {
        let args: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string()).collect();
        let process = Command::new(std::env::current_exe()?).args(&args).spawn()?;
        Ok(Node { args, process })
    }

    fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

pub(crate) async fn demo(bug: Bug) -> Result<(), Box<dyn Error>> {
    let [primary, one, two] = &free_addresses();
    let mut nodes = vec![
        Node::start(&["backup", one])?,
        Node::start(&["backup", two])?,
        Node::start(&["primary", primary, one, two, &format!("{bug:?}")])?,
    ];
    let history = History::new(time::now());
    let clients = ["one", "two", "three"].map(|name| {
        let history = Rc::clone(&history);
        spawn_local(work(name.into(), primary.clone(), KEYS, PAUSE, history))
    });
    for node in &mut nodes {
        time::sleep(BREAK).await;
        println!(
            "kills {} (process {}) and starts it again",
            node.args[0],
            node.process.id()
        );
        node.kill()?;
        time::sleep(BREAK).await;
        *node = Node::start(&node.args)?;
    }
    time::sleep(BREAK).await;
    for client in clients {
        client.cancel().await; // the outcome of its last write is unknown
    }
    let mut reader = Client::new("reader", primary);
    for key in 0..KEYS {
        read(&mut reader, &format!("key{key}"), &history).await?;
    }
    let operations = history.operations();
    let unknown = operations
        .iter()
        .filter(|operation| operation.returned.is_none())
        .count();
    println!(
        "{} operations, {unknown} of them writes with an unknown outcome",
        operations.len()
    );
    check(&operations)?;
    println!("no acknowledged write was lost, no read was stale");
    Ok(())
}

/// Below the ports that systems give to connections: one of these could take that of a node that is away.
fn free_addresses() -> [String; 3] {
    let first = 15_000 + (std::process::id() % 5_000) as u16 * 3; // another demo has others
    let mut free = (first..32_000).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    [(); 3].map(|()| format!("127.0.0.1:{}", free.next().expect("three free ports")))
}

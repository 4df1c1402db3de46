//! A server accepts, hands over, refuses and ends as its terms say.

mod inspector;
mod limits;
mod listeners;
mod moving_http;
mod per_loop_handlers;
mod read_end;
mod rebalance;
mod server;
mod server_regressions;
mod skew;
mod turns;
#[path = "../util/mod.rs"]
mod util;

use std::net::TcpStream as Client;
use std::sync::{Arc, Mutex};

use loopgroup::net::{Server, ServerHandle};
use loopgroup::{EventLoopGroup, PanicSite};

/// A server of this machine, at a port of its own.
fn serve_on(group: &EventLoopGroup) -> Server {
    Server::new("127.0.0.1:0").unwrap().workers(group)
}

fn connect(server: &ServerHandle) -> Client {
    Client::connect(server.local_addr()).unwrap()
}

/// A group of so many loops, and the places of the panics that it reports.
fn group_that_reports(loops: usize) -> (EventLoopGroup, Arc<Mutex<Vec<PanicSite>>>) {
    let sites = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sites);
    let builder = EventLoopGroup::builder().loops(loops);
    let builder = builder.on_panic(move |panic| seen.lock().unwrap().push(panic.site()));
    (builder.build().unwrap(), sites)
}

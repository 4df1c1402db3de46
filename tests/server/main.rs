//! A server accepts, hands over, refuses and ends as its terms say.

mod server;
mod server_regressions;
#[path = "../util/mod.rs"]
mod util;

use std::net::TcpStream as Client;

use loopgroup::EventLoopGroup;
use loopgroup::net::{Server, ServerHandle};

/// A server of this machine, at a port of its own.
fn serve_on(group: &EventLoopGroup) -> Server {
    Server::new("127.0.0.1:0").unwrap().workers(group)
}

fn connect(server: &ServerHandle) -> Client {
    Client::connect(server.local_addr()).unwrap()
}

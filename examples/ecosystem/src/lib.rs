//! What the examples share: the life of a server, from its port to its last connection.

pub mod certificate;
pub mod quic;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use loopgroup::compat::hyper::HttpHandle;
use loopgroup::net::{Server, TcpStream};
use loopgroup::{EventLoopGroup, signal};

/// How long connections may take to finish after Ctrl-C.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves on two loops until Ctrl-C or SIGTERM, then lets the connections finish.
///
/// The port is the first argument of the command line; 0 means any.
pub fn serve<H, F>(name: &str, handler: H) -> io::Result<()>
where
    H: Fn(TcpStream, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + 'static,
{
    serve_on(&EventLoopGroup::new(2)?, name, handler)
}

/// As [`serve`], on these loops.
pub fn serve_on<H, F>(workers: &EventLoopGroup, name: &str, handler: H) -> io::Result<()>
where
    H: Fn(TcpStream, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + 'static,
{
    let boss = EventLoopGroup::new(1)?;
    let server = Server::new(("127.0.0.1", port()))?
        .boss(&boss)
        .workers(workers)
        .serve(handler)?;
    println!("{name}: on {}, until Ctrl-C", server.local_addr());
    boss.block_on(signal::shutdown())?;
    server.stop(); // nobody new; who is here may finish
    println!("workers: {}", workers.drain(PATIENCE).wait());
    println!("server: {}", boss.block_on(server));
    boss.drain(PATIENCE).wait();
    Ok(())
}

/// Waits for Ctrl-C or SIGTERM, then lets the requests under way finish.
pub fn until_ctrl_c(name: &str, workers: &EventLoopGroup, server: HttpHandle) -> io::Result<()> {
    println!("{name}: on {}, until Ctrl-C", server.local_addr());
    workers.block_on(signal::shutdown())?;
    println!("workers: {}", workers.drain(PATIENCE).wait());
    println!("server: {}", loopgroup::block_on(server));
    Ok(())
}

/// The port of the command line; without one that makes sense, the program ends here.
pub fn port() -> u16 {
    let argument = std::env::args().nth(1).unwrap_or_default();
    argument.parse().unwrap_or_else(|_| {
        eprintln!("the first argument is the port to listen on (0: any), not {argument:?}");
        std::process::exit(2)
    })
}

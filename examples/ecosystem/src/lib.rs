//! What the examples share: the life of a server, from its port to its last connection.

pub mod certificate;
pub mod quic;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use hyper_util::server::graceful::GracefulConnection;
use loopgroup::net::{Server, TcpStream};
use loopgroup::{EventLoopGroup, shutdown_requested, signal};

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

/// The port of the command line; without one that makes sense, the program ends here.
pub fn port() -> u16 {
    let argument = std::env::args().nth(1).unwrap_or_default();
    argument.parse().unwrap_or_else(|_| {
        eprintln!("the first argument is the port to listen on (0: any), not {argument:?}");
        std::process::exit(2)
    })
}

/// Runs an HTTP connection, and asks it to end after the request at hand when its loop is to shut down.
pub async fn until_shutdown<C: GracefulConnection>(connection: C) -> Result<(), C::Error> {
    let mut connection = pin!(connection);
    match select(connection.as_mut(), shutdown_requested()).await {
        Either::Left((ended, _)) => ended,
        Either::Right(((), _)) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

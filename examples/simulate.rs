//! A server and a client on a network that fails, in virtual time: what a test of a whole system looks like.
//!
//! ```sh
//! cargo run --example simulate            # writes simulation.json and simulation.svg
//! cargo run --example simulate -- folder  # writes them there
//! ```
//!
//! Expect a line for each request that took more than a second, and one with what the run was. The client is
//! not told of the partition after two seconds: its request arrives when TCP sends it again. It is told when
//! the server's process is killed after ten seconds, and connects again.
//!
//! `simulation.svg` has the last packets, for a browser. `simulation.json` has the whole run: drop it onto
//! <https://ui.perfetto.dev>.

use std::{env, fs, io, path::Path, time::Duration};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, TcpStream};
use loopgroup::testing::sim::{Link, Simulation};
use loopgroup::time::{now, sleep};

/// The server of a real program: nothing in it knows of the simulation.
async fn server() -> io::Result<()> {
    let workers = loopgroup::EventLoopGroup::new(2)?;
    let server = Server::new("0.0.0.0:7")?.workers(&workers);
    let server = server.serve(|stream, _| async move {
        let _ = futures::io::copy(&stream, &mut &stream).await;
    })?;
    server.await;
    Ok(())
}

async fn client() -> io::Result<()> {
    let start = now();
    let mut stream = TcpStream::connect("server:7").await?;
    for number in 0..20_u32 {
        let asked = now();
        while let Err(error) = ask(&mut stream, number).await {
            println!("{:>6.3?}: {error}; connecting again", now() - start);
            sleep(Duration::from_millis(500)).await;
            if let Ok(new) = TcpStream::connect("server:7").await {
                stream = new;
            }
        }
        let took = now() - asked;
        if took > Duration::from_secs(1) {
            println!("{:>6.3?}: request {number} took {took:.3?}", now() - start);
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

async fn ask(stream: &mut TcpStream, number: u32) -> io::Result<()> {
    stream.write_all(&number.to_be_bytes()).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    assert_eq!(answer, number.to_be_bytes());
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let second = Duration::from_secs(1);
    let link = Link::default().latency(second / 50).jitter(second / 100);
    let mut sim = Simulation::builder().seed(7).link(link).build();
    sim.keep_events();
    sim.host("server", |_| server());
    sim.client("client", client());
    sim.at(2 * second, |sim| sim.partition("client", "server"));
    sim.at(5 * second, |sim| sim.repair("client", "server"));
    sim.at(10 * second, |sim| sim.kill("server"));
    sim.at(12 * second, |sim| sim.restart("server"));
    let report = sim.run()?;
    println!("{report}");

    let folder = Path::new(&folder);
    fs::write(folder.join("simulation.svg"), sim.diagram())?;
    let mut json = fs::File::create(folder.join("simulation.json")).map(io::BufWriter::new)?;
    sim.write_chrome_json(&mut json)?;
    Ok(())
}

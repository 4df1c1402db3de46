//! Clients that ask a server while its process is replaced under them.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 8;
const REPLACEMENTS: u64 = 5;

/// Sends so many requests (or a few more), one to four on each connection, and has the process replaced five
/// times meanwhile.
pub(crate) fn run(address: &str, requests: u64) -> io::Result<()> {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let connections = AtomicU64::new(0);
    let processes = Mutex::new(BTreeSet::new());
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let lines = 1 + connections.fetch_add(1, Ordering::Relaxed) % 4;
                    if next.fetch_add(lines, Ordering::Relaxed) >= requests {
                        return;
                    }
                    match ask(address, "hello", lines) {
                        Ok(seen) => processes.lock().unwrap().extend(seen),
                        Err(error) => {
                            eprintln!("failed: {error}");
                            failed.fetch_add(lines, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            for round in 1..=REPLACEMENTS {
                while next.load(Ordering::Relaxed) < requests * round / (REPLACEMENTS + 1) {
                    thread::sleep(Duration::from_millis(1));
                }
                if let Err(error) = ask(address, "replace", 1) {
                    eprintln!("not replaced: {error}");
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    });
    let (failed, processes) = (failed.into_inner(), processes.into_inner().unwrap().len());
    let (connections, seconds) = (connections.into_inner(), start.elapsed().as_secs_f64());
    println!(
        "{requests} requests on {connections} connections in {seconds:.1} s: \
         {failed} failed, {processes} processes have answered"
    );
    if failed == 0 && processes as u64 > REPLACEMENTS {
        Ok(())
    } else {
        Err(io::Error::other(
            "a request has failed, or no process was replaced",
        ))
    }
}

/// Sends lines on one connection, one after the other; returns which processes have answered.
fn ask(address: &str, line: &str, times: u64) -> io::Result<Vec<u32>> {
    let mut stream = TcpStream::connect(address)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut seen = Vec::new();
    for _ in 0..times {
        stream.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        seen.push(answer.trim().parse().map_err(io::Error::other)?);
    }
    Ok(seen)
}

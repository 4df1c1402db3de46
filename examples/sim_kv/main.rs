//! A replicated key-value store that keeps what it has acknowledged: a primary, two backups, and clients.
//!
//!     cargo run --release --example sim_kv -- simulate LostAck
//!     cargo run --example sim_kv -- demo
//!     cargo run --example sim_kv -- backup 127.0.0.1:7001
//!     cargo run --example sim_kv -- backup 127.0.0.1:7002
//!     cargo run --example sim_kv -- primary 127.0.0.1:7000 127.0.0.1:7001 127.0.0.1:7002
//!     cargo run --example sim_kv -- put 127.0.0.1:7000 name loopgroup
//!     cargo run --example sim_kv -- get 127.0.0.1:7000 name
//!
//! State is in memory. Any node may be killed and started again, connections may be lost and nodes cut off
//! from each other: no acknowledged write is lost, no read is stale, no retry is applied twice. Meanwhile
//! requests may fail. `demo` starts three processes, kills each of them while clients write and read, and
//! checks what the clients have seen.
//!
//! `simulate` runs the same nodes in virtual time, under other faults for each seed: without a bug (`None`),
//! or with one of `bug.rs`, which it finds and shrinks to the faults that it takes. With `LostAck` a backup
//! that does not answer counts as one that has the write. That takes three faults in a row:
//!
//!     4.67528449s: backup1 is cut off from primary, backup2, client1, .., checker, for 3.303012641s
//!     6.873953082s: primary crashes, for 41.173µs
//!     7.2494519s: the process of backup2 is killed, for 4.606753ms
//!
//! Backup 1 misses a write that the other two have, and they forget it before it can be heard again.
//!
//! The store itself is 297 lines: `primary.rs`, `backup.rs`, `client.rs` and `wire.rs`. The rest is its
//! command line, the three processes of `demo`, the simulation, and the proof that what clients have seen can
//! be explained.

mod backup;
mod bug;
mod client;
mod demo;
mod history;
mod operation;
mod primary;
mod simulation;
#[cfg(test)]
mod tests;
mod wire;
mod workload;

use std::time::SystemTime;

use backup::backup;
use bug::Bug;
use client::Client;
use demo::demo;
use primary::primary;
use simulation::simulate;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    // Not on a loop: a simulation has its own.
    match args[..] {
        ["simulate", bug] => return report(bug.parse()?, 500),
        ["simulate", bug, seeds] => return report(bug.parse()?, seeds.parse()?),
        _ => {}
    }
    loopgroup::run(async {
        match args[..] {
            ["demo"] => demo(Bug::None).await?,
            ["demo", bug] => demo(bug.parse()?).await?,
            ["primary", address, one, two] => primary(address, [one, two], Bug::None).await?,
            ["primary", address, one, two, bug] => {
                primary(address, [one, two], bug.parse()?).await?
            }
            ["backup", address] => backup(address).await?,
            ["put", primary, key, value] => client(primary)?.put(key, value).await?,
            ["get", primary, key] => match client(primary)?.get(key).await? {
                Some(value) => println!("{value}"),
                None => println!("(nothing)"),
            },
            _ => return Err("see the head of examples/sim_kv/main.rs".into()),
        }
        Ok(())
    })?
}

/// An error is the story of how a bug shows.
fn report(bug: Bug, seeds: u64) -> Result<(), Box<dyn std::error::Error>> {
    match simulate(bug, seeds) {
        Ok(report) => println!("{report}"),
        Err((failure, seen)) => {
            println!("{failure}\nwhat the clients saw:\n{seen}");
            std::process::exit(1);
        }
    }
    Ok(())
}

/// A client of its own for each command.
fn client(primary: &str) -> Result<Client, Box<dyn std::error::Error>> {
    let now = SystemTime::UNIX_EPOCH.elapsed()?.as_nanos();
    let name = format!("{}-{now}", std::process::id());
    Ok(Client::new(&name, primary))
}

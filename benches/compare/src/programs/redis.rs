//! A cache: the example `resp`, on one loop that serves, and `redis-server`, which has one thread for it,
//! too.

use std::path::PathBuf;

use super::server::ServerProcess;
use super::{figures, tools};
use crate::child::Outcome;
use crate::params::Params;
use crate::runtimes::Runtime;
use crate::sys;

pub(super) fn run(runtime: Runtime, test: &str, params: &Params) -> Outcome {
    let (program, args): (PathBuf, fn(u16) -> Vec<String>) = match runtime {
        Runtime::Loopgroup => (sys::beside_exe("resp", "programs")?, |port| {
            vec![format!("127.0.0.1:{port}")]
        }),
        Runtime::Redis => ("redis-server".into(), in_memory),
        other => return Err(format!("{} has no such program", other.name()).into()),
    };
    let server = ServerProcess::start(program, args)?;
    // What is to be found has to be there first; and the server is warm then.
    tools::redis_benchmark(server.port, "set", 1, params.get("requests") / 10)?;
    let before = server.cpu_nanos();
    let (depth, requests) = (params.get("depth"), params.get("requests"));
    let counted = tools::redis_benchmark(server.port, test, depth, requests)?;
    Ok(figures(&counted, server.cpu_nanos() - before))
}

/// Neither snapshots nor a log of commands: the example has none.
fn in_memory(port: u16) -> Vec<String> {
    let port = port.to_string();
    let words = [
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--daemonize",
        "no",
    ];
    words.map(String::from).to_vec()
}

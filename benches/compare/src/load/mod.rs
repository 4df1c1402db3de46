//! The clients of the servers: a process of its own, the same for all runtimes.
//!
//! - It says `begin` and `end <count> <nanoseconds>` on its standard output, around what is measured; the
//!   server takes its figures at these lines. Quantiles of the latency in nanoseconds may follow.
//! - It is bounded in time, and it ends when the server's process does: then its input ends.

mod connections;
mod echo;
mod http;
mod uneven;

use std::io::Write;
use std::process::ExitCode;

use crate::params::Params;
use crate::sys;

pub(crate) fn main(mut args: impl Iterator<Item = String>) -> ExitCode {
    let kind = args.next().unwrap_or_default();
    sys::raise_open_files();
    let result = Params::parse(args).and_then(|params| {
        if let Some(core) = params.find("core") {
            // There may be one core only.
            let _ = sys::bind_to_core(core);
        }
        match kind.as_str() {
            "echo" => echo::run(&params),
            "http" => http::run(&params),
            "idle" => connections::idle(&params),
            "rate" => connections::rate(&params),
            "uneven" => uneven::run(&params),
            _ => return Err(format!("load {kind}: no such kind")),
        }
        .map_err(|error| error.to_string())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("load: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Says a line to the server, at once.
fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

//! W8, W9, W10 and W16: a server in this process, its clients in another one.
//!
//! - Echo: requests per second, which clients, server and kernel share two cores to make, and the CPU time of
//!   the server per request, which is the steadier figure.
//! - Idle: what a connection costs that waits in a read, with a buffer of 64 bytes. The kernel's own memory
//!   for it shows nowhere.
//! - Rate: connections made, served with one byte and reset, one after the other.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::alloc;
use crate::child::{Cannot, Figures, Outcome};
use crate::params::Params;
use crate::sys;

/// The buffer of a handler that echoes, and of one that mostly waits.
const BUFFERS: (usize, usize) = (16 * 1024, 64);

pub(crate) fn echo(serve: impl FnOnce(usize) -> SocketAddr, params: &Params) -> Outcome {
    let keys = ["conns", "size", "depth", "core", "millis"];
    requests("echo", &keys, serve(BUFFERS.0), params)
}

/// Has the clients of that kind send requests, and looks at the clock of the server's process.
pub(super) fn requests(kind: &str, keys: &[&str], address: SocketAddr, params: &Params) -> Outcome {
    let mut load = Load::start(kind, address, &words(keys, params))?;
    load.begin()?;
    let before = (sys::cpu_time(), load.cpu_nanos());
    let (count, time) = load.end()?;
    let (cpu, clients) = (sys::cpu_time() - before.0, load.cpu_nanos() - before.1);
    Ok(Figures::one("per_s", count / time.as_secs_f64())
        .with("cpu_ns", cpu.as_nanos() as f64 / count)
        .with("client_ns", clients / count))
}

/// As [`requests`], of clients that say how long their requests took.
pub(super) fn latencies(
    kind: &str,
    keys: &[&str],
    address: SocketAddr,
    params: &Params,
) -> Outcome {
    let mut load = Load::start(kind, address, &words(keys, params))?;
    load.begin()?;
    let before = (sys::cpu_time(), sys::other_threads().1);
    let [count, nanos, p50, p99] = load.numbers()?;
    let cpu = sys::cpu_time() - before.0;
    // Those of threads that have ended meanwhile are not known any more.
    let switches = sys::other_threads().1.saturating_sub(before.1);
    Ok(Figures::one("per_s", count / (nanos / 1e9))
        .with("p50_us", p50 / 1e3)
        .with("p99_us", p99 / 1e3)
        .with("cpu_ns", cpu.as_nanos() as f64 / count)
        .with("switches", switches as f64 / count))
}

/// What the clients are told of the parameters.
fn words(keys: &[&str], params: &Params) -> Vec<String> {
    let word = |key: &&str| Some(format!("{key}={}", params.find(key)?));
    keys.iter().filter_map(word).collect()
}

pub(crate) fn idle(serve: impl FnOnce(usize) -> SocketAddr, params: &Params) -> Outcome {
    let limit = sys::raise_open_files();
    let conns = params
        .get("conns")
        .min((limit as usize).saturating_sub(100));
    alloc::start();
    let address = serve(BUFFERS.1);
    let mut load = Load::start("idle", address, &[format!("conns={conns}")])?;
    load.begin()?;
    let (heap, resident) = (alloc::in_use(), sys::resident());
    load.go()?;
    let (count, _) = load.end()?;
    let figures = Figures::one("heap_b", (alloc::in_use() - heap) as f64 / count)
        .with("rss_b", (sys::resident() - resident) as f64 / count);
    Ok(match conns < params.get("conns") {
        true => figures.note(format!(
            "with {conns} connections: {limit} open files are allowed"
        )),
        false => figures,
    })
}

pub(crate) fn rate(serve: impl FnOnce(usize) -> SocketAddr, params: &Params) -> Outcome {
    let address = serve(BUFFERS.1);
    let mut load = Load::start(
        "rate",
        address,
        &["millis", "core"].map(|key| format!("{key}={}", params.get(key))),
    )?;
    load.begin()?;
    let before = sys::cpu_time();
    let (count, time) = load.end()?;
    let cpu = sys::cpu_time() - before;
    Ok(Figures::one("per_s", count / time.as_secs_f64())
        .with("cpu_ns", cpu.as_nanos() as f64 / count))
}

/// The process of the clients. Its input is a pipe that ends with this process, and it with that.
struct Load {
    process: std::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Load {
    fn start(kind: &str, address: SocketAddr, words: &[String]) -> Result<Load, Cannot> {
        let exe = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut process = Command::new(exe)
            .args(["load", kind, &format!("port={}", address.port())])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("no clients: {error}"))?;
        let out = process.stdout.take().expect("stdout is piped");
        Ok(Load {
            process,
            lines: BufReader::new(out).lines(),
        })
    }

    fn begin(&mut self) -> Result<(), Cannot> {
        self.line().map(drop)
    }

    /// Lets clients go on that wait for it.
    fn go(&mut self) -> Result<(), Cannot> {
        let input = self.process.stdin.as_mut().expect("stdin is piped");
        writeln!(input, "go").map_err(|error| format!("the clients are gone: {error}").into())
    }

    /// How many there were, and in what time.
    fn end(&mut self) -> Result<(f64, Duration), Cannot> {
        let [count, nanos] = self.numbers()?;
        Ok((count, Duration::from_nanos(nanos as u64)))
    }

    /// The numbers of the last line; the first one counts something, and is not zero.
    fn numbers<const N: usize>(&mut self) -> Result<[f64; N], Cannot> {
        let line = self.line()?;
        let numbers = line.split(' ').skip(1).map(str::parse::<u64>);
        let numbers: Vec<_> = numbers.flatten().map(|number| number as f64).collect();
        match <[f64; N]>::try_from(numbers) {
            Ok(numbers) if numbers[0] > 0.0 => Ok(numbers),
            _ => Err(format!("the clients said {line:?}").into()),
        }
    }

    fn cpu_nanos(&self) -> f64 {
        sys::cpu_nanos_of(self.process.id())
    }

    fn line(&mut self) -> Result<String, Cannot> {
        match self.lines.next() {
            Some(Ok(line)) => Ok(line),
            _ => Err(match self.process.wait() {
                Ok(status) => format!("the clients ended: {status}"),
                Err(error) => format!("the clients ended: {error}"),
            }
            .into()),
        }
    }
}

/// Waited for, so that its CPU time counts as that of this process: the parent looks for what is not ours.
impl Drop for Load {
    fn drop(&mut self) {
        drop(self.process.stdin.take()); // it waits for that, if for anything
        let _ = self.process.wait();
    }
}

//! The load generators: how they are called, and what they print.
//!
//! - A tool that saw an error, or an answer that is none, fails the measurement.

use std::path::PathBuf;
use std::process::Command;

use crate::child::Cannot;
use crate::params::Params;
use crate::stats::quantile;

/// What a load generator counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) requests: f64,
    pub(super) per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// HTTP/1.1 from one thread. With a body it posts that.
pub(super) fn wrk(url: &str, body: Option<&str>, params: &Params) -> Result<Counted, Cannot> {
    let script = body.map(|body| {
        let json = "wrk.headers[\"content-type\"] = \"application/json\"";
        TempFile::new(
            "lua",
            &format!("wrk.method = \"POST\"\n{json}\nwrk.body = [[{body}]]\n"),
        )
    });
    let script = script.transpose()?;
    let mut command = Command::new("wrk");
    command.args(["-t1", "--latency", &format!("-c{}", params.get("conns"))]);
    command.arg(format!("-d{}s", seconds(params)));
    if let Some(script) = &script {
        command.arg("-s").arg(&script.0);
    }
    let text = output(command.arg(url), "wrk")?;
    if let Some(line) = text
        .lines()
        .find(|line| line.contains("Non-2xx") || line.contains("Socket errors"))
    {
        return Err(format!("wrk: {}", line.trim()).into());
    }
    let after = |word| number_after(&text, word).ok_or_else(|| unread("wrk", &text));
    let time = |word| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(word));
        value.and_then(micros).ok_or_else(|| unread("wrk", &text))
    };
    let requests = text
        .lines()
        .find_map(|line| line.split_once(" requests in "));
    let requests = requests.and_then(|(count, _)| count.trim().parse().ok());
    Ok(Counted {
        requests: requests.ok_or_else(|| unread("wrk", &text))?,
        per_second: after("Requests/sec:")?,
        p50_us: time("50%")?,
        p99_us: time("99%")?,
    })
}

/// HTTP/2 without TLS, from one thread: so many connections with so many streams each.
pub(super) fn h2load(url: &str, body: Option<&str>, params: &Params) -> Result<Counted, Cannot> {
    let text = run_h2load(url, body, params, seconds(params), None)?;
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let finished = line("finished in ").and_then(|line| line.split(", ").nth(1));
    let per_second = finished.and_then(|word| word.strip_suffix(" req/s")?.parse().ok());
    Ok(Counted {
        requests: h2load_succeeded(&text)?,
        per_second: per_second.ok_or_else(|| unread("h2load", &text))?,
        p50_us: f64::NAN,
        p99_us: f64::NAN,
    })
}

/// Adds the latencies of a second of the same.
pub(super) fn h2load_latencies(
    counted: Counted,
    url: &str,
    body: Option<&str>,
    params: &Params,
) -> Result<Counted, Cannot> {
    let log = TempFile::new("log", "")?;
    let text = run_h2load(url, body, params, 1, Some(&log))?;
    h2load_succeeded(&text)?;
    let log = std::fs::read_to_string(&log.0).map_err(|error| error.to_string())?;
    // When it began, the status, and how long it took, in microseconds.
    let last = |line: &str| line.split('\t').nth(2)?.trim().parse().ok();
    let micros: Vec<f64> = log.lines().filter_map(last).collect();
    Ok(Counted {
        p50_us: quantile(&micros, 0.5),
        p99_us: quantile(&micros, 0.99),
        ..counted
    })
}

fn run_h2load(
    url: &str,
    body: Option<&str>,
    params: &Params,
    seconds: usize,
    log: Option<&TempFile>,
) -> Result<String, Cannot> {
    let body = body.map(|body| TempFile::new("json", body)).transpose()?;
    let mut command = Command::new("h2load");
    command.args([
        "-t1",
        &format!("-c{}", params.get("conns")),
        &format!("-m{}", params.get("streams")),
        &format!("-D{seconds}"),
    ]);
    if let Some(body) = &body {
        command
            .args(["-H", "content-type: application/json", "-d"])
            .arg(&body.0);
    }
    if let Some(log) = log {
        command.arg(format!("--log-file={}", log.0.display()));
    }
    output(command.arg(url), "h2load")
}

/// How many requests were answered well, if none failed.
fn h2load_succeeded(text: &str) -> Result<f64, Cannot> {
    let line = text.lines().find(|line| line.starts_with("requests: "));
    let count = |what: &str| -> Option<f64> {
        let part = line?.trim_start_matches("requests: ").split(", ");
        part.filter_map(|part| part.split_once(' '))
            .find(|(_, name)| *name == what)
            .and_then(|(count, _)| count.parse().ok())
    };
    match (count("succeeded"), count("failed")) {
        (Some(succeeded), Some(0.0)) if succeeded > 0.0 => Ok(succeeded),
        _ => Err(unread("h2load", text)),
    }
}

/// So many requests of one kind over 50 connections, so many under way on each.
pub(super) fn redis_benchmark(
    port: u16,
    test: &str,
    depth: usize,
    requests: usize,
) -> Result<Counted, Cannot> {
    let mut command = Command::new("redis-benchmark");
    command.args([
        "-h",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-t",
        test,
        "--csv",
    ]);
    command.args(["-c", "50", "-d", "64", "-r", "10000"]);
    command.args(["-P", &depth.to_string(), "-n", &requests.to_string()]);
    let text = output(&mut command, "redis-benchmark")?;
    // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms",...
    let line = text.lines().last().unwrap_or_default();
    let words = line.split(',').map(|word| word.trim_matches('"').parse());
    let numbers: Vec<f64> = words.skip(1).filter_map(Result::ok).collect();
    match numbers[..] {
        [per_second, _, _, p50, _, p99, ..] => Ok(Counted {
            requests: requests as f64,
            per_second,
            p50_us: p50 * 1e3,
            p99_us: p99 * 1e3,
        }),
        _ => Err(unread("redis-benchmark", &text)),
    }
}

/// Whole seconds: the tools know no others.
fn seconds(params: &Params) -> usize {
    params.get("millis").div_ceil(1000)
}

/// What a tool prints until it ends.
fn output(command: &mut Command, name: &str) -> Result<String, Cannot> {
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn unread(tool: &str, text: &str) -> Cannot {
    Cannot(format!("{tool} printed {:?}", text.trim()))
}

fn number_after(text: &str, word: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(word))?;
    line.trim().parse().ok()
}

/// A time as wrk writes it: `12.34us`, `1.20ms`, `1.01s`.
fn micros(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(char::is_alphabetic)?);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

/// A file that a tool is given, removed with this value.
struct TempFile(PathBuf);

impl TempFile {
    fn new(extension: &str, text: &str) -> Result<TempFile, Cannot> {
        let name = format!("compare-{}.{extension}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).map_err(|error| error.to_string())?;
        Ok(TempFile(path))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

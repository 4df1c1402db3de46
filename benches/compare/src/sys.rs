//! What the system and the build say about themselves.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Processor, cores and kernel, in a line.
pub(crate) fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores, {model}, Linux {}", kernel.trim())
}

/// The peers' versions, from the lock file of this package.
pub(crate) fn versions() -> BTreeMap<&'static str, &'static str> {
    const PEERS: &[&str] = &[
        "tokio",
        "async-executor",
        "async-io",
        "futures",
        #[cfg(feature = "full")]
        "monoio",
        #[cfg(feature = "full")]
        "glommio",
        #[cfg(feature = "full")]
        "compio",
        "mio",
    ];
    let lock = include_str!("../Cargo.lock");
    let mut versions = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |name| {
            let line = package.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value: &str| value.trim_matches(['"', ' ', '=']))
        };
        if let (Some(name), Some(version)) = (field("name"), field("version"))
            && PEERS.contains(&name)
        {
            // Later entries of one name are newer: the ones that this package asks for itself.
            versions.insert(name, version);
        }
    }
    versions
}

/// A program of this package that lies beside this one, if it was built with that feature.
pub(crate) fn beside_exe(name: &str, feature: &str) -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = exe.with_file_name(name);
    match program.exists() {
        true => Ok(program),
        false => Err(format!(
            "{name} is not built: cargo build --features {feature}"
        )),
    }
}

/// The CPU time that this process has used, by all its threads.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The CPU time of all threads of another process, in nanoseconds.
pub(crate) fn cpu_nanos_of(pid: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let nanos = |thread: fs::DirEntry| -> Option<f64> {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(nanos)
        .sum()
}

/// Bytes of this process in memory, in whole pages.
pub(crate) fn resident() -> i64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as i64
}

/// CPU time in nanoseconds and context switches of all threads but the main one.
pub(crate) fn other_threads() -> (u64, u64) {
    let (mut nanos, mut switches) = (0, 0);
    let main = std::process::id().to_string();
    for thread in fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        if thread.file_name().to_str() == Some(&main) {
            continue;
        }
        let read = |file| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let first: Option<u64> = read("schedstat")
            .split(' ')
            .next()
            .and_then(|it| it.parse().ok());
        nanos += first.unwrap_or(0);
        for line in read("status").lines() {
            // "voluntary_ctxt_switches:" and "nonvoluntary_ctxt_switches:"
            if let Some((name, count)) = line.split_once(':')
                && name.ends_with("ctxt_switches")
            {
                switches += count.trim().parse().unwrap_or(0);
            }
        }
    }
    (nanos, switches)
}

/// Binds the calling thread to one core.
pub(crate) fn bind_to_core(core: usize) -> std::io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// Raises the limit of open files as far as it may be; says what it is now.
pub(crate) fn raise_open_files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

//! What the system and the build say about themselves.

use std::fs;

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
pub(crate) fn versions() -> Vec<(&'static str, &'static str)> {
    const PEERS: [&str; 8] = [
        "tokio",
        "async-executor",
        "async-io",
        "futures",
        "monoio",
        "glommio",
        "compio",
        "mio",
    ];
    let lock = include_str!("../Cargo.lock");
    let mut versions = Vec::new();
    for package in lock.split("[[package]]") {
        let field = |name| {
            let line = package.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value: &str| value.trim_matches(['"', ' ', '=']))
        };
        if let (Some(name), Some(version)) = (field("name"), field("version"))
            && PEERS.contains(&name)
        {
            versions.push((name, version));
        }
    }
    versions
}

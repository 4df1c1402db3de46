//! Tests in a process of their own, and figures of the process.

use std::fs;
use std::panic::Location;
use std::path::Path;
use std::process::{Command, Output};

use loopgroup::EventLoop;

use super::within;

/// Runs one test of this binary in a process of its own, with `LOOPGROUP_CHILD=1` in its environment.
///
/// `test` is the name of a test in the file of the caller. Returns its exit status and what it printed. The
/// test calls [`is_child`] to know where it is.
#[track_caller]
pub fn in_child(test: &str) -> Output {
    in_child_after("true", test)
}

/// As [`in_child`], after a command of the shell: `ulimit`, say.
///
/// `LOOPGROUP_RUNNER` names the program that runs this binary, if the system cannot: `qemu-aarch64 -L ...`.
#[track_caller]
pub fn in_child_after(command: &str, test: &str) -> Output {
    // `tests/<binary>/<module>.rs` holds `<module>::<test>`.
    let module = Path::new(Location::caller().file()).file_stem().unwrap();
    let test = format!("{}::{test}", module.to_str().unwrap());
    let runner = std::env::var("LOOPGROUP_RUNNER").unwrap_or_default();
    Command::new("sh")
        .args(["-c", &format!("{command} && exec \"$0\" \"$@\"")])
        .args(runner.split_whitespace())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env("LOOPGROUP_CHILD", "1")
        .output()
        .unwrap()
}

/// Whether this process was started by [`in_child`].
pub fn is_child() -> bool {
    std::env::var_os("LOOPGROUP_CHILD").is_some()
}

/// Runs a test body in a process of its own: for figures of the whole process (threads,
/// descriptors) and for failures that would take the process along.
///
/// `test` is the name of the calling test.
#[track_caller]
pub fn alone(test: &str, body: impl FnOnce() + Send + 'static) {
    alone_after("true", test, body);
}

/// As [`alone`], after a command of the shell: `ulimit`, say.
#[track_caller]
pub fn alone_after(command: &str, test: &str, body: impl FnOnce() + Send + 'static) {
    if is_child() {
        return within(body);
    }
    let output = in_child_after(command, test);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A command of the shell, for [`alone_after`]: allows so many descriptors, or as many as the system does.
pub fn allow_descriptors(count: usize) -> String {
    format!("{{ ulimit -n {count} 2>/dev/null || ulimit -n $(ulimit -H -n); }}")
}

/// How many descriptors this process may have.
pub fn allowed_descriptors() -> usize {
    let shell = Command::new("sh").args(["-c", "ulimit -n"]).output();
    let limit = String::from_utf8(shell.unwrap().stdout).unwrap();
    match limit.trim() {
        "unlimited" => usize::MAX,
        limit => limit.parse().unwrap(),
    }
}

/// How many entries a directory has: `/proc/self/task` for threads, `/proc/self/fd` for descriptors.
pub fn entries(directory: &str) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// The number that the system gives to this thread.
pub fn tid() -> i32 {
    let link = fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// The number that the system gives to the thread of a loop.
pub fn tid_of(ev: &EventLoop) -> i32 {
    loopgroup::block_on(ev.submit(tid)).unwrap()
}

/// Whether every other thread of the process sleeps.
pub fn others_sleep() -> bool {
    let this = tid().to_string();
    fs::read_dir("/proc/self/task").unwrap().all(|entry| {
        let entry = entry.unwrap();
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        entry.file_name().to_str() == Some(&this) || status.contains("State:\tS")
    })
}

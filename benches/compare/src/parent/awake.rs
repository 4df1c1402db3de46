//! Spinners that keep the cores from halting.
//!
//! - A virtual core that has halted takes tens of microseconds to come back, which is more than the runtimes
//!   differ by: see the README on noise.
//! - They are of the idle class: anything else that wants the core gets it.

use std::io;
use std::process::{Child, Command, ExitCode, Stdio};

/// One spinner per core, until this is dropped.
pub(super) struct Awake(Vec<Child>);

impl Awake {
    pub(super) fn start() -> io::Result<Awake> {
        let exe = std::env::current_exe()?;
        let cores = std::thread::available_parallelism()?.get();
        let mut awake = Awake(Vec::new());
        for core in 0..cores {
            let spinner = Command::new("chrt")
                .args(["--idle", "0", "taskset", "-c", &core.to_string()])
                .arg(&exe)
                .arg("spin")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()?;
            awake.0.push(spinner);
        }
        Ok(awake)
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}

/// What a spinner does, until its parent is gone.
pub(crate) fn spin() -> ExitCode {
    let parent = rustix::process::getppid();
    while rustix::process::getppid() == parent {
        (0..1_000_000).for_each(|_| std::hint::spin_loop());
    }
    ExitCode::SUCCESS
}

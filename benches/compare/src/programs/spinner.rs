//! A process that does nothing but work, on one core.

use std::process::{Child, Command, Stdio};

use crate::child::Cannot;

/// Spins until this is dropped, or until this process ends.
#[derive(Debug)]
pub(super) struct Spinner(Child);

impl Spinner {
    pub(super) fn on(core: usize) -> Result<Spinner, Cannot> {
        let exe = std::env::current_exe().map_err(|error| error.to_string())?;
        let process = Command::new("taskset")
            .args(["-c", &core.to_string()])
            .arg(exe)
            .arg("spin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("taskset: {error}"))?;
        Ok(Spinner(process))
    }
}

/// Waited for, so that its CPU time counts as that of this process: the parent looks for what is not ours.
impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! A server in a process of its own, ended with the value that stands for it.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::child::Cannot;
use crate::sys;

/// How long a program may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct ServerProcess {
    process: Child,
    pub(super) port: u16,
}

impl ServerProcess {
    /// Starts it on a port that was free a moment ago, and waits until it listens.
    pub(super) fn start(
        program: PathBuf,
        args: fn(u16) -> Vec<String>,
    ) -> Result<ServerProcess, Cannot> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.map_err(|error| error.to_string())?.port();
        // Whatever happens to this process: the server does not outlive it.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&program)
            .args(args(port))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("setpriv: {error}"))?;
        let mut server = ServerProcess { process, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.process.try_wait().is_ok_and(|it| it.is_some());
            if ended || start.elapsed() > PATIENCE {
                return Err(format!("{} does not listen", program.display()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// The CPU time of all its threads, in nanoseconds.
    pub(super) fn cpu_nanos(&self) -> f64 {
        sys::cpu_nanos_of(self.process.id())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

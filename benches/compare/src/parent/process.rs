//! Children: how they are started, how long they may take, and what they said.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::netty;
use crate::catalogue::{Allocator, Case};
use crate::options::Options;
use crate::runtimes::Runtime;
use crate::sys;

/// No measurement takes so long unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(90);

/// What a child found out.
pub(crate) struct Answer {
    pub(crate) figures: Map<String, Value>,
    pub(crate) note: Option<String>,
}

pub(crate) struct Launcher {
    exe: PathBuf,
    scale: f64,
    /// How to start Netty, or why it cannot be started.
    netty: Result<Vec<OsString>, String>,
}

impl Launcher {
    pub(crate) fn new(options: &Options) -> io::Result<Launcher> {
        std::fs::create_dir_all(&options.out)?;
        let exe = std::env::current_exe()?;
        Ok(Launcher {
            netty: match options.runtimes.contains(&Runtime::Netty) {
                true => netty::command(&options.out.join("netty"), &exe),
                false => Err("nobody asked for it".into()),
            },
            exe,
            scale: options.scale,
        })
    }

    /// Makes one measurement in a process of its own; the error says why it cannot be made.
    pub(crate) fn measure(&self, case: &Case, runtime: Runtime) -> Result<Answer, String> {
        let mut words = Vec::new();
        if case.pinned {
            words.extend(["taskset".into(), "-c".into(), "0".into()]);
        }
        words.extend(self.program(case, runtime)?);
        words.push(case.workload.into());
        for (key, size) in case.args {
            words.push(format!("{key}={}", size.at(self.scale)).into());
        }
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", words[0].display()))?;
        parse(listen(child)?)
    }

    /// The command that a workload is given to.
    fn program(&self, case: &Case, runtime: Runtime) -> Result<Vec<OsString>, String> {
        if runtime == Runtime::Netty {
            return self.netty.clone(); // it has an allocator of its own
        }
        let exe = match case.allocator {
            Allocator::System => self.exe.clone(),
            Allocator::Mimalloc => sys::beside_exe("compare-mimalloc", "mimalloc")?,
        };
        Ok(vec![exe.into(), "child".into(), runtime.name().into()])
    }
}

/// What the child says until it ends, or is ended.
fn listen(mut child: Child) -> Result<String, String> {
    let pid = rustix::process::Pid::from_child(&child);
    let (done, over) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let late = over.recv_timeout(TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            // Not waited for yet, so the number is still the child's.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        late
    });
    let mut errors = child.stderr.take().expect("stderr is piped");
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = errors.read_to_string(&mut text);
        text
    });
    let mut text = String::new();
    let read = child
        .stdout
        .take()
        .expect("stdout is piped")
        .read_to_string(&mut text);
    drop(done);
    let late = watchdog.join().expect("a watchdog does not panic");
    let status = child.wait().map_err(|error| error.to_string())?;
    let errors = errors.join().expect("a reader does not panic");
    if late {
        return Err(format!("ended after {} s", TIMEOUT.as_secs()));
    }
    read.map_err(|error| error.to_string())?;
    if !status.success() {
        let errors = errors.trim().replace('\n', " ");
        return Err(format!("failed ({status}): {errors}"));
    }
    Ok(text)
}

/// The figures in the last line of a child.
fn parse(text: String) -> Result<Answer, String> {
    let line = text.lines().last().unwrap_or_default();
    let value: Value =
        serde_json::from_str(line).map_err(|error| format!("printed {line:?}: {error}"))?;
    if let Some(reason) = value["cannot"].as_str() {
        return Err(reason.to_owned());
    }
    match &value["figures"] {
        Value::Object(figures) => Ok(Answer {
            figures: figures.clone(),
            note: value["note"].as_str().map(str::to_owned),
        }),
        _ => Err(format!("printed no figures: {line:?}")),
    }
}

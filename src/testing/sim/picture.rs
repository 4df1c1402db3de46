//! A run for Perfetto: hosts as processes, loops and the network of a host as threads, packets as arrows.
//!
//! - Virtual time is what the trace has: a turn takes none, and is shown as an instant.
//! - A packet is a slice of a nanosecond at its sender, with an arrow to one at its receiver: nothing is
//!   shorter, so no two of them overlap.
//! - Threads have numbers of their own in the whole trace, as those of a system have.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use crate::recorder::json::JsonString;
use crate::sim::{HostId, NetEvent};
use crate::sync::Arc;

/// Writes the trace.
pub(super) fn write(
    out: &mut impl Write,
    hosts: &[Arc<str>],
    loops: &[Option<(HostId, String)>],
    turns: &[(Duration, usize, u64)],
    events: &[NetEvent],
) -> io::Result<()> {
    let mut writer = Writer {
        out,
        is_first: true,
    };
    writer
        .out
        .write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    for (host, name) in hosts.iter().enumerate() {
        let at = network(HostId(host as u32));
        writer.name("process_name", at, name)?;
        writer.name("thread_name", at, "network")?;
    }
    for (number, one) in loops.iter().enumerate() {
        if let Some((host, name)) = one {
            writer.name("thread_name", event_loop(*host, number), name)?;
        }
    }
    for (at, number, polls) in turns {
        if let Some(Some((host, _))) = loops.get(*number) {
            let (at, place) = (Micros(*at), event_loop(*host, *number));
            writer.event(format_args!(
                "\"ph\":\"i\",\"s\":\"t\",\"cat\":\"mark\",\"name\":\"turn\",\"ts\":{at},{place},\
                 \"args\":{{\"polls\":{polls}}}"
            ))?;
        }
    }
    for (id, event) in events.iter().enumerate() {
        writer.packet(id, event)?;
    }
    writer.out.write_all(b"\n]}\n")
}

/// A thread of the trace, and its process.
#[derive(Clone, Copy)]
struct Place {
    pid: u32,
    tid: usize,
}

fn network(host: HostId) -> Place {
    let pid = host.0 + 1;
    // Loops are fewer than that.
    let tid = 1_000_000_000 + pid as usize;
    Place { pid, tid }
}

fn event_loop(host: HostId, number: usize) -> Place {
    let (pid, tid) = (host.0 + 1, number + 1);
    Place { pid, tid }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"pid\":{},\"tid\":{}", self.pid, self.tid)
    }
}

struct Writer<'a, W> {
    out: &'a mut W,
    is_first: bool,
}

impl<W: Write> Writer<'_, W> {
    fn event(&mut self, fields: fmt::Arguments<'_>) -> io::Result<()> {
        let separator = if self.is_first { "" } else { ",\n" };
        self.is_first = false;
        write!(self.out, "{separator}{{{fields}}}")
    }

    fn name(&mut self, what: &str, place: Place, name: &str) -> io::Result<()> {
        let name = JsonString(name);
        self.event(format_args!(
            "\"ph\":\"M\",\"name\":\"{what}\",{place},\"args\":{{\"name\":{name}}}"
        ))
    }

    fn packet(&mut self, id: usize, event: &NetEvent) -> io::Result<()> {
        let what = event.what.to_string();
        let (from, to) = (network(event.from), network(event.to));
        self.slice(&what, Micros(event.at), from, event)?;
        let Some(arrives) = event.arrives.map(Micros) else {
            return Ok(());
        };
        self.slice(&format!("{what} arrives"), arrives, to, event)?;
        let at = Micros(event.at);
        let common = "\"cat\":\"packet\",\"name\":\"packet\"";
        self.event(format_args!(
            "\"ph\":\"s\",{common},\"id\":{id},\"ts\":{at},{from}"
        ))?;
        self.event(format_args!(
            "\"ph\":\"f\",\"bp\":\"e\",{common},\"id\":{id},\"ts\":{arrives},{to}"
        ))
    }

    fn slice(&mut self, name: &str, at: Micros, place: Place, event: &NetEvent) -> io::Result<()> {
        let (name, local, peer) = (JsonString(name), event.local, event.peer);
        self.event(format_args!(
            "\"ph\":\"X\",\"cat\":\"packet\",\"name\":{name},\"ts\":{at},\"dur\":0.001,{place},\
             \"args\":{{\"from\":\"{local}\",\"to\":\"{peer}\"}}"
        ))
    }
}

/// A time in microseconds, exact to the nanosecond.
#[derive(Clone, Copy)]
struct Micros(Duration);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        write!(f, "{}.{:03}", nanos / 1_000, nanos % 1_000)
    }
}

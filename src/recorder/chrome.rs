//! A trace as JSON in the trace event format of Chrome, which Perfetto reads.
//!
//! - A group is a process and a loop is a thread of it. Turns, polls and waits are complete events (`X`),
//!   wakes and spawns are arrows (`s` and `f`) to the poll that followed, the rest are instants (`i`).
//! - The format counts in microseconds. Perfetto multiplies by a thousand and cuts the rest off, so a time
//!   has a tenth of a nanosecond too much: without it, some would come out a nanosecond too small, and a
//!   poll would overlap the one before.
//! - An arrow needs a slice at both of its ends. Its id is unique in the text.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::num::NonZeroU32;

use crate::event_loop::counters::TaskEnd;
use crate::recorder::event::{WakeCause, Work, WorkKind};
use crate::recorder::json::JsonString;
use crate::recorder::lane::{Happened, Lane, Mark, Slice, What};
use crate::recorder::process::{LoopTrace, ProcessTrace};
use crate::site::Site;
use crate::task_id::{HOOK, MAIN};

/// Writes the trace of these processes.
pub(crate) fn write(processes: &[ProcessTrace], out: &mut impl Write) -> io::Result<()> {
    let mut out = Events { out, any: false };
    out.out
        .write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    // Threads have numbers that no process has: the thread with the number of its process is its main thread.
    let mut tid = processes.len();
    let mut threads = Vec::new();
    for (index, process) in processes.iter().enumerate() {
        let pid = index + 1;
        let name = JsonString(&process.name);
        out.event(format_args!(
            "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\"args\":{{\"name\":{name}}}}}"
        ))?;
        for one in &process.loops {
            tid += 1;
            let (thread, name) = (Thread { pid, tid }, JsonString(&one.thread_name));
            out.event(format_args!(
                "{{\"ph\":\"M\",\"name\":\"thread_name\",{thread},\"args\":{{\"name\":{name}}}}}"
            ))?;
            threads.push((thread, one, Lane::of(&one.records, process.until)));
        }
    }
    let mut places = HashMap::new();
    for (thread, one, lane) in &threads {
        for slice in &lane.slices {
            out.slice(*thread, one, slice, &mut places)?;
        }
        for mark in &lane.marks {
            out.mark(*thread, mark.time, mark.what)?;
        }
    }
    for (id, arrow) in arrows(&threads).into_iter().enumerate() {
        out.arrow(id + 1, arrow)?;
    }
    out.out.write_all(b"\n]}\n")
}

#[derive(Clone, Copy)]
struct Thread {
    pid: usize,
    tid: usize,
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"pid\":{},\"tid\":{}", self.pid, self.tid)
    }
}

/// Nanoseconds as microseconds, and a tenth of a nanosecond.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}1", self.0 / 1_000, self.0 % 1_000)
    }
}

/// The list of events.
struct Events<'a, W> {
    out: &'a mut W,
    any: bool,
}

impl<W: Write> Events<'_, W> {
    fn event(&mut self, event: fmt::Arguments<'_>) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.any, true) {
            ",\n"
        } else {
            "\n"
        };
        self.out.write_all(comma.as_bytes())?;
        self.out.write_fmt(event)
    }

    fn slice(
        &mut self,
        thread: Thread,
        one: &LoopTrace,
        slice: &Slice,
        places: &mut HashMap<NonZeroU32, String>,
    ) -> io::Result<()> {
        let (ts, dur) = (Micros(slice.start), Micros(slice.end - slice.start));
        let open = match slice.open {
            true => "\"unfinished\":true",
            false => "",
        };
        let (work, end) = match slice.what {
            What::Work(work, end) => (work, end),
            What::Turn | What::Park => {
                let name = match slice.what {
                    What::Park => "park",
                    _ => "turn",
                };
                return self.event(format_args!(
                    "{{\"ph\":\"X\",\"name\":\"{name}\",\"cat\":\"{name}\",{thread},\
                     \"ts\":{ts},\"dur\":{dur},\"args\":{{{open}}}}}"
                ));
            }
        };
        let place = work.site.map(|site| place_of(site, places));
        let name = one.names.get(&work.name).map(|name| &**name);
        let title = JsonString(name.or(place).unwrap_or(untitled(work)));
        let args = Args {
            task: Some(work.id).filter(|id| ![MAIN, HOOK].contains(id)),
            name,
            place,
            end,
            open,
        };
        let cat = category(work);
        self.event(format_args!(
            "{{\"ph\":\"X\",\"name\":{title},\"cat\":\"{cat}\",{thread},\
             \"ts\":{ts},\"dur\":{dur},\"args\":{{{args}}}}}"
        ))
    }

    fn mark(&mut self, thread: Thread, time: u64, what: Happened) -> io::Result<()> {
        let (name, key, number) = match what {
            // Shown as an arrow.
            Happened::Woke(_, WakeCause::Loop) => return Ok(()),
            Happened::Woke(id, WakeCause::Io) => ("ready", "task", id),
            Happened::Woke(id, WakeCause::Timer) => ("timer", "task", id),
            Happened::Spawned(id) => ("spawn", "task", id),
            Happened::TimersFired(count) => ("timers fired", "timers", count),
            Happened::Accepted => ("accept", "connections", 1),
        };
        let ts = Micros(time);
        self.event(format_args!(
            "{{\"ph\":\"i\",\"s\":\"t\",\"name\":\"{name}\",\"cat\":\"mark\",{thread},\
             \"ts\":{ts},\"args\":{{\"{key}\":{number}}}}}"
        ))
    }

    fn arrow(&mut self, id: usize, arrow: Arrow) -> io::Result<()> {
        let Arrow { name, from, to } = arrow;
        for (phase, (thread, time)) in [("\"s\"", from), ("\"f\",\"bp\":\"e\"", to)] {
            let ts = Micros(time);
            self.event(format_args!(
                "{{\"ph\":{phase},\"name\":\"{name}\",\"cat\":\"wake\",\"id\":{id},{thread},\"ts\":{ts}}}"
            ))?;
        }
        Ok(())
    }
}

/// The place of a spawn, without the column.
fn place_of(site: Site, places: &mut HashMap<NonZeroU32, String>) -> &str {
    places.entry(site.number()).or_insert_with(|| {
        let place = site.location();
        format!("{}:{}", place.file(), place.line())
    })
}

fn category(work: Work) -> &'static str {
    match (work.kind, work.id) {
        (WorkKind::Closure, _) => "closure",
        (WorkKind::Cancel, _) => "cancel",
        (_, MAIN) => "main",
        (_, HOOK) => "hook",
        (WorkKind::Poll | WorkKind::FirstPoll, _) => "poll",
    }
}

/// What is shown of work whose place is not known.
fn untitled(work: Work) -> &'static str {
    match work.id {
        MAIN => "main future",
        HOOK => "shutdown hook",
        _ => "task",
    }
}

/// What is known of work.
struct Args<'a> {
    task: Option<u64>,
    name: Option<&'a str>,
    place: Option<&'a str>,
    end: Option<TaskEnd>,
    open: &'a str,
}

impl fmt::Display for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut entry = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            f.write_str(std::mem::replace(&mut comma, ","))?;
            f.write_fmt(text)
        };
        if let Some(task) = self.task {
            entry(f, format_args!("\"task\":{task}"))?;
        }
        if let Some(name) = self.name {
            entry(f, format_args!("\"task_name\":{}", JsonString(name)))?;
        }
        if let Some(place) = self.place {
            entry(f, format_args!("\"spawned_at\":{}", JsonString(place)))?;
        }
        if let Some(end) = self.end {
            let end = match end {
                TaskEnd::Completed => "completed",
                TaskEnd::Panicked => "panicked",
                TaskEnd::Cancelled => "cancelled",
            };
            entry(f, format_args!("\"ended\":\"{end}\""))?;
        }
        if !self.open.is_empty() {
            entry(f, format_args!("{}", self.open))?;
        }
        Ok(())
    }
}

/// From a wake or a spawn to the poll that followed.
struct Arrow {
    name: &'static str,
    from: (Thread, u64),
    to: (Thread, u64),
}

/// Finds the arrows: a wake that queues a task is followed by one poll of that task.
fn arrows(threads: &[(Thread, &LoopTrace, Lane)]) -> Vec<Arrow> {
    let mut moments = Vec::new();
    for (thread, _, lane) in threads {
        let marks = lane.marks.iter();
        moments.extend(marks.filter_map(|one| Moment::of_mark(one, *thread)));
        let slices = lane.slices.iter();
        moments.extend(slices.filter_map(|one| Moment::of_slice(one, *thread)));
    }
    // The order within a lane is that of the records; between lanes it is that of the times.
    moments.sort_by_key(|&(time, number, _)| (time, number));
    let mut queued = HashMap::new();
    let mut arrows = Vec::new();
    for (_, _, moment) in moments {
        match moment {
            Moment::Queued(id, name, from) => drop(queued.insert(id, (name, from))),
            Moment::Polled(id, to) => {
                if let Some((name, Some(from))) = queued.remove(&id) {
                    arrows.push(Arrow { name, from, to });
                }
            }
        }
    }
    arrows
}

enum Moment {
    /// A task with this id was queued; from there, if that is inside of a slice.
    Queued(u64, &'static str, Option<(Thread, u64)>),
    Polled(u64, (Thread, u64)),
}

impl Moment {
    /// With its time, and the number of its record.
    fn of_mark(mark: &Mark, thread: Thread) -> Option<(u64, usize, Moment)> {
        let from = mark.inside.then_some((thread, mark.time));
        let moment = match mark.what {
            Happened::Woke(id, _) => Moment::Queued(id, "wake", from),
            Happened::Spawned(id) => Moment::Queued(id, "spawn", from),
            Happened::TimersFired(_) | Happened::Accepted => return None,
        };
        Some((mark.time, mark.number, moment))
    }

    fn of_slice(slice: &Slice, thread: Thread) -> Option<(u64, usize, Moment)> {
        match slice.what {
            What::Work(work, _) => {
                let moment = Moment::Polled(work.id, (thread, slice.start));
                Some((slice.start, slice.number, moment))
            }
            What::Turn | What::Park => None,
        }
    }
}

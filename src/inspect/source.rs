//! Where the pictures come from: the only file of the inspector that reads groups, loops and servers.
//!
//! Reading is allowed on any thread, also while a loop stands still: counters are read, and locks are held
//! for the length of one read.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use crate::dump::LoopDump;
use crate::event_loop::shared::Shared;
use crate::event_loop::state::LoopState;
use crate::event_loop::terms::{EndCondition, ShutdownTerms};
use crate::group::handle::EventLoopGroup;
use crate::inspect::picture::{
    DecisionPicture, GroupPicture, HistogramPicture, LoopEndPicture, LoopPicture, RunningPicture,
    ServerPicture, SettingsPicture, ShutdownPicture, StallPicture,
};
use crate::inspect::shown::shown;
use crate::inspect::tasks::{Question, TasksPicture, waits};
use crate::metrics::histogram::Histogram;
use crate::metrics::{GroupMetrics, LoopMetrics};
use crate::net::{Decision, ServerProbe};
use crate::task_id::TaskId;
use crate::task_info::TaskInfo;
use crate::watchdog::stall::{Stall, StallKind};

/// How many tasks are shown of those that a shutdown waits for.
const SHOWN: usize = 8;

/// From how many tasks on they are only counted.
const LISTED: usize = 2_000;

/// The picture of a group.
pub(super) fn group(name: &str, group: &EventLoopGroup) -> GroupPicture {
    let metrics = group.metrics();
    let shared: Vec<&Shared> = group.loops().iter().map(|one| &**one.shared()).collect();
    let states: Vec<LoopState> = shared.iter().map(|one| one.state()).collect();
    let measures = shared.iter().any(|one| one.config.measure_time);
    let indices = 0..shared.len();
    let loops = shared.iter().zip(metrics.loops()).zip(&states);
    GroupPicture {
        name: shown(name),
        state: group_state(&states),
        settings: SettingsPicture {
            measure_time: measures,
            track_tasks: tracks(&shared),
            watchdog: shared.iter().any(|one| one.beacon.is_some()),
            flight_recorder: shared.iter().any(|one| one.tape.is_some()),
            recorder_frozen: group.is_recorder_frozen(),
        },
        loops: loops
            .map(|((shared, metrics), state)| one_loop(shared, metrics, *state))
            .collect(),
        wakes: indices
            .clone()
            .map(|from| {
                indices
                    .clone()
                    .map(|to| metrics.wakes(Some(from), to))
                    .collect()
            })
            .collect(),
        outside_wakes: indices.map(|to| metrics.wakes(None, to)).collect(),
        poll_times: measures.then(|| histogram(&metrics, LoopMetrics::poll_times)),
        wake_to_poll: measures.then(|| histogram(&metrics, LoopMetrics::wake_to_poll)),
        stalls: group.recent_stalls().iter().rev().map(stall).collect(),
        shutdown: shutdown(group, &shared, &states),
        ended_ago: None,
    }
}

/// Whether the tasks of these loops can be listed.
fn tracks(shared: &[&Shared]) -> bool {
    shared.iter().any(|one| one.tracker.is_some())
}

/// The tasks of a group, as a question asks for them.
pub(super) fn tasks(name: &str, group: &EventLoopGroup, question: &Question) -> TasksPicture {
    let shared: Vec<&Shared> = group.loops().iter().map(|one| &**one.shared()).collect();
    question.answer(name, tracks(&shared), &group.tasks())
}

fn group_state(states: &[LoopState]) -> &'static str {
    let all = |ask: fn(LoopState) -> bool| states.iter().all(|state| ask(*state));
    if all(LoopState::is_terminated) {
        "ended"
    } else if all(LoopState::is_shutting_down) {
        "shutting down"
    } else if all(|state| state == LoopState::NotStarted) {
        "not started"
    } else {
        "running"
    }
}

fn one_loop(shared: &Shared, metrics: &LoopMetrics, state: LoopState) -> LoopPicture {
    let thread = shared.config.thread_names.get(shared.index);
    let polls = metrics.poll_times();
    let dump = LoopDump::of(shared);
    LoopPicture {
        index: shared.index,
        thread: thread.map_or_else(String::new, |name| shown(name)),
        state: match state {
            LoopState::Started if metrics.is_parked() => "parked".to_owned(),
            LoopState::Started if metrics.is_paused() => "paused".to_owned(),
            _ => state.to_string(),
        },
        utilization: metrics.utilization(),
        wake_delay: metrics.wake_delay().as_secs_f64(),
        pending: metrics.pending(),
        live: metrics.live(),
        channels: metrics.channels(),
        polls: metrics.polls(),
        parks: metrics.parks(),
        io_events: metrics.io_events(),
        timers_fired: metrics.timers_fired(),
        local_wakes: metrics.local_wakes(),
        remote_wakes: metrics.remote_wakes(),
        outside_wakes: metrics.outside_wakes(),
        wakeup_calls: metrics.wakeup_calls(),
        accepted: metrics.accepted(),
        completed: metrics.completed(),
        panicked: metrics.panicked(),
        cancelled: metrics.cancelled(),
        rejected: metrics.rejected(),
        rebuilds: metrics.rebuilds(),
        stalls: metrics.stalls(),
        queued: dump.queued(),
        timers: dump.timers(),
        next_timer: dump.next_deadline().map(|left| left.as_secs_f64()),
        running: dump.running().map(|running| RunningPicture {
            id: running.task_id().map(number),
            name: running.name().map(shown),
            place: running.location().map(ToString::to_string),
            since: running.duration().as_secs_f64(),
        }),
        longest_poll: metrics.longest_poll().map(|time| time.as_secs_f64()),
        median_poll: polls.quantile(0.5).map(|time| time.as_secs_f64()),
        slow_poll: polls.quantile(0.99).map(|time| time.as_secs_f64()),
    }
}

/// The histogram of all loops together.
fn histogram(metrics: &GroupMetrics, of: fn(&LoopMetrics) -> Histogram) -> HistogramPicture {
    let mut all = Histogram::default();
    for one in metrics.loops() {
        all.merge(&of(one));
    }
    let buckets = all.fixed_buckets();
    HistogramPicture {
        count: all.count(),
        sum: all.sum().as_secs_f64(),
        max: all.max().as_secs_f64(),
        buckets: buckets
            .map(|(bound, count)| (bound.as_secs_f64(), count))
            .collect(),
    }
}

fn stall(stall: &Stall) -> StallPicture {
    let id = stall.task_id().map(number);
    StallPicture {
        key: format!(
            "{}-{}-{:?}",
            stall.loop_index(),
            id.unwrap_or(0),
            stall.poll
        ),
        index: stall.loop_index(),
        id,
        name: stall.name().map(shown),
        place: stall.location().map(ToString::to_string),
        duration: stall.duration().as_secs_f64(),
        ago: stall.at().elapsed().unwrap_or_default().as_secs_f64(),
        kind: match stall.kind() {
            StallKind::Computing => "computing",
            StallKind::Blocked => "blocked",
            StallKind::Starved => "starved",
            StallKind::Unknown => "unknown",
        },
    }
}

/// The id of a task, as a number that JSON can hold.
fn number(id: TaskId) -> u64 {
    TaskId::number_of(id.to_halves())
}

/// The shutdown of a group, once it is requested for one of its loops.
fn shutdown(
    group: &EventLoopGroup,
    shared: &[&Shared],
    states: &[LoopState],
) -> Option<ShutdownPicture> {
    if !states.iter().any(|state| state.is_shutting_down()) {
        return None;
    }
    let terms: Vec<Option<ShutdownTerms>> = shared
        .iter()
        .map(|one| one.inbox.lock().gate().terms())
        .collect();
    let reports: Vec<_> = shared.iter().map(|one| one.termination.report()).collect();
    let ends = reports
        .iter()
        .map(|report| report.as_ref()?.loops().first());
    let ends: Vec<_> = ends.collect();
    let now = shared.first()?.config.clock.now();
    let first = terms.iter().flatten().map(|terms| terms.requested_at).min();
    // A loop that failed was not requested to end.
    let first = first.or_else(|| ends.iter().flatten().map(|end| end.requested_at).min())?;
    let since = |then: Instant| then.saturating_duration_since(first).as_secs_f64();
    let loops = shared.iter().zip(states).zip(terms.iter().zip(&ends));
    let loops = loops.map(|((shared, state), (terms, end))| LoopEndPicture {
        index: shared.index,
        state: state.to_string(),
        requested: terms.map(|terms| since(terms.requested_at)),
        ended: end.map(|end| since(end.ended_at)),
        cause: end.map(|end| end.cause().to_string()),
        pending: shared.pending(),
        live: shared.place.counters.live(),
        channels: shared.port.table.as_ref().map_or(0, |table| table.len()),
    });
    // Of the loop that may take longest.
    let longest = terms.iter().flatten().max_by_key(|terms| terms.deadline);
    let report = group.core().end.termination.report();
    let (waits_for, waits_for_more) = match report {
        Some(_) => (Vec::new(), 0),
        None => left_tasks(group, shared),
    };
    let (until, quiet) = match longest.map(|terms| terms.until) {
        Some(EndCondition::Drained(_)) => ("drained", None),
        Some(EndCondition::Quiet(quiet)) => ("quiet", Some(quiet)),
        Some(EndCondition::Now) | None => ("now", None),
    };
    Some(ShutdownPicture {
        until,
        quiet: quiet.as_ref().map(Duration::as_secs_f64),
        elapsed: since(now),
        timeout: longest.and_then(|terms| terms.deadline).map(since),
        loops: loops.collect(),
        waits_for,
        waits_for_more,
        took: report.as_ref().map(|report| report.elapsed().as_secs_f64()),
        clean: report.as_ref().map(|report| report.is_clean()),
        report: report.map(|report| report.to_string()),
    })
}

/// The tasks that a shutdown waits for, the oldest ones first, and how many more there are.
fn left_tasks(group: &EventLoopGroup, shared: &[&Shared]) -> (Vec<String>, usize) {
    let live: usize = shared
        .iter()
        .map(|one| one.place.counters.live() + one.pending())
        .sum();
    if live > LISTED {
        return (Vec::new(), live); // too many to read four times a second
    }
    let mut tasks = group.tasks();
    tasks.sort_by_key(|task| Reverse(task.age()));
    let line = |task: &TaskInfo| {
        let waits = waits(task).join(", ");
        let waits = match waits.is_empty() {
            true => String::new(),
            false => format!(", waits for {waits}"),
        };
        let name = task.name().map(|name| format!(" “{}”", shown(name)));
        let (name, index) = (name.unwrap_or_default(), task.loop_index());
        format!(
            "{}{name} on loop {index} from {}{waits}",
            task.id(),
            task.location()
        )
    };
    let lines = tasks.iter().take(SHOWN).map(line).collect();
    (lines, tasks.len().saturating_sub(SHOWN))
}

/// The picture of a server.
pub(super) fn server(name: &str, address: &str, probe: &ServerProbe) -> ServerPicture {
    let connections = probe.connections();
    let report = probe.report();
    ServerPicture {
        name: shown(name),
        address: shown(address),
        place: probe.location().to_string(),
        state: match (probe.has_ended(), probe.is_stopping()) {
            (true, _) => "ended",
            (false, true) => "stopping",
            (false, false) => "listening",
        },
        connections,
        by_loop: probe.connections_by_loop(),
        accepted: report.accepted(),
        completed: report.completed(),
        failed: report.failed(),
        aborted: report.aborted(),
        rejected: report.rejected(),
        timed_out: report.timed_out(),
        moves: report.moves(),
        move_requests: probe.move_requests(),
        decisions: probe.decisions().iter().map(decision).collect(),
        service_panics: report.service_panics(),
        accept_errors: report.accept_errors(),
        last_error: report
            .last_accept_error()
            .map(|error| shown(&error.to_string())),
    }
}

fn decision(one: &Decision) -> DecisionPicture {
    DecisionPicture {
        ago: one.at.elapsed().as_secs_f64(),
        from: one.from.0,
        to: one.to.0,
        from_utilization: one.from.1,
        to_utilization: one.to.1,
        share: one.share,
    }
}

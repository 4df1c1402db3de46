//! What the page is told, as JSON: times in seconds, counts since the start.
//!
//! A field that is missing is `null`: the group does not measure it.

use serde::Serialize;

/// Everything, at one moment.
#[derive(Debug, Serialize)]
pub(super) struct Picture {
    /// Changes when the program is started again.
    pub(super) instance: String,
    /// Since the inspector has started; does not jump.
    pub(super) at: f64,
    pub(super) process: u32,
    pub(super) inspector: OwnPicture,
    pub(super) groups: Vec<GroupPicture>,
    pub(super) servers: Vec<ServerPicture>,
}

/// What the inspector itself costs.
#[derive(Debug, Serialize)]
pub(super) struct OwnPicture {
    pub(super) utilization: f64,
    pub(super) streams: usize,
    /// How many pictures were taken so far.
    pub(super) pictures: u64,
    /// The time from one picture to the next.
    pub(super) period: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct GroupPicture {
    pub(super) name: String,
    pub(super) state: &'static str,
    pub(super) settings: SettingsPicture,
    pub(super) loops: Vec<LoopPicture>,
    /// By the loop that woke, then by the loop that was woken.
    pub(super) wakes: Vec<Vec<u64>>,
    /// From outside of the group, by the loop that was woken.
    pub(super) outside_wakes: Vec<u64>,
    pub(super) poll_times: Option<HistogramPicture>,
    pub(super) wake_to_poll: Option<HistogramPicture>,
    /// The last ones, the newest first.
    pub(super) stalls: Vec<StallPicture>,
    pub(super) shutdown: Option<ShutdownPicture>,
    /// Since the group has ended.
    pub(super) ended_ago: Option<f64>,
}

/// The settings that decide what there is to see.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SettingsPicture {
    pub(super) measure_time: bool,
    pub(super) track_tasks: bool,
    pub(super) watchdog: bool,
    pub(super) flight_recorder: bool,
    /// By a stall, or by hand.
    pub(super) recorder_frozen: bool,
}

/// A poll that did not return for long.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StallPicture {
    /// Tells it apart from the others of its group.
    pub(super) key: String,
    #[serde(rename = "loop")]
    pub(super) index: usize,
    /// `null` for what is no task.
    pub(super) id: Option<u64>,
    pub(super) name: Option<String>,
    pub(super) place: Option<String>,
    /// When it was last reported.
    pub(super) duration: f64,
    /// Since then.
    pub(super) ago: f64,
    /// `computing`, `blocked`, `starved` or `unknown`.
    pub(super) kind: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LoopPicture {
    pub(super) index: usize,
    pub(super) thread: String,
    /// `paused` or `parked` if it is started, and that as well.
    pub(super) state: String,
    pub(super) utilization: f64,
    pub(super) wake_delay: f64,
    pub(super) pending: usize,
    pub(super) live: usize,
    pub(super) channels: usize,
    pub(super) polls: u64,
    pub(super) parks: u64,
    pub(super) io_events: u64,
    pub(super) timers_fired: u64,
    pub(super) local_wakes: u64,
    pub(super) remote_wakes: u64,
    pub(super) outside_wakes: u64,
    pub(super) wakeup_calls: u64,
    pub(super) accepted: u64,
    pub(super) completed: u64,
    pub(super) panicked: u64,
    pub(super) cancelled: u64,
    pub(super) rejected: u64,
    pub(super) rebuilds: u64,
    pub(super) stalls: u64,
    /// In its queues; known if tasks are tracked.
    pub(super) queued: Option<usize>,
    /// Armed timers, and the time to the next deadline; known if tasks are tracked.
    pub(super) timers: Option<usize>,
    pub(super) next_timer: Option<f64>,
    /// What it is in; known if tasks are tracked or a watchdog looks.
    pub(super) running: Option<RunningPicture>,
    pub(super) longest_poll: Option<f64>,
    pub(super) median_poll: Option<f64>,
    pub(super) slow_poll: Option<f64>,
}

/// What a loop is in.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunningPicture {
    /// `null` for what is no task.
    pub(super) id: Option<u64>,
    pub(super) name: Option<String>,
    pub(super) place: Option<String>,
    /// For how long.
    pub(super) since: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct HistogramPicture {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) max: f64,
    /// The longest duration that a bucket counts, and how many it has counted.
    pub(super) buckets: Vec<(f64, u64)>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ShutdownPicture {
    /// `drained`, `quiet` or `now`.
    pub(super) until: &'static str,
    pub(super) quiet: Option<f64>,
    /// Since the first request.
    pub(super) elapsed: f64,
    /// From the first request to the last moment; `null` for none.
    pub(super) timeout: Option<f64>,
    pub(super) loops: Vec<LoopEndPicture>,
    /// Tasks that are left, the oldest ones, and how many more there are; known if tasks are tracked.
    pub(super) waits_for: Vec<String>,
    pub(super) waits_for_more: usize,
    /// From the first request to the end of the last loop.
    pub(super) took: Option<f64>,
    pub(super) clean: Option<bool>,
    pub(super) report: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LoopEndPicture {
    pub(super) index: usize,
    pub(super) state: String,
    /// When its shutdown was requested, from the first request of the group.
    pub(super) requested: Option<f64>,
    /// When it ended, from the first request of the group.
    pub(super) ended: Option<f64>,
    pub(super) cause: Option<String>,
    pub(super) pending: usize,
    pub(super) live: usize,
    pub(super) channels: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct ServerPicture {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) place: String,
    pub(super) state: &'static str,
    pub(super) connections: usize,
    pub(super) by_loop: Vec<usize>,
    pub(super) accepted: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) aborted: u64,
    pub(super) rejected: u64,
    pub(super) timed_out: u64,
    /// Connections that have moved to another loop, and requests to.
    pub(super) moves: u64,
    pub(super) move_requests: u64,
    /// The last ones to balance the load, the newest first.
    pub(super) decisions: Vec<DecisionPicture>,
    pub(super) service_panics: u64,
    pub(super) accept_errors: u64,
    pub(super) last_error: Option<String>,
}

/// A request to a connection to move, to balance the load.
#[derive(Debug, Serialize)]
pub(super) struct DecisionPicture {
    /// How long ago.
    pub(super) ago: f64,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) from_utilization: f64,
    pub(super) to_utilization: f64,
    /// The share of the time that its loop has worked for the connection.
    pub(super) share: f64,
}

//! Metrics as text for Prometheus, in its exposition format 0.0.4.
//!
//! - A family, that is a metric name, has one line of help, one of its type, and then its samples, of all
//!   groups.
//! - Names begin with `loopgroup_`, units are seconds and ratios, counters end in `_total`. A sum over
//!   loops, or over groups, makes sense for every counter and every histogram.
//! - Labels are the group and the loop, or the server, and a few fixed words. No label has a value per
//!   task, or per place in a program.
//! - A histogram has the bounds of [`BOUNDS`], which are coarser than those that the loops count in. A
//!   duration counts below a bound if its whole bucket is below it, so a bound may be up to 25 % too long.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::metrics::histogram::Histogram;
use crate::metrics::{GroupMetrics, LoopMetrics};

/// The name of a group that has none.
const UNNAMED: &str = "default";

/// The upper bounds of exported buckets, in microseconds: 10 µs to 10 s.
const BOUNDS: [u64; 15] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000,
    10_000_000,
];

/// The metrics of several groups as one text for Prometheus; [`GroupMetrics::to_prometheus`] is for a
/// single group.
///
/// `to_string()` is the text. Serve it with the content type [`Prometheus::CONTENT_TYPE`]; the example
/// `metrics` does.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, Prometheus};
///
/// let acceptors = EventLoopGroup::new(1)?;
/// let workers = EventLoopGroup::builder().loops(2).measure_time(true).build()?;
/// workers.block_on(workers.spawn(async {})).unwrap();
/// let text = Prometheus::new()
///     .group("acceptors", &acceptors.metrics())
///     .group("workers", &workers.metrics())
///     .to_string();
/// assert!(text.contains("\nloopgroup_tasks_accepted_total{group=\"workers\",loop=\"0\"} 1\n"));
/// assert!(text.contains("\nloopgroup_tasks_accepted_total{group=\"acceptors\",loop=\"0\"} 0\n"));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Prometheus {
    /// Names are unique.
    groups: Vec<(String, GroupMetrics)>,
    servers: Vec<(String, ServerCounts)>,
}

/// What a server has counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerCounts {
    pub(crate) connections: u64,
    pub(crate) accepted: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) aborted: u64,
    pub(crate) rejected: u64,
    pub(crate) timed_out: u64,
    pub(crate) accept_errors: u64,
    pub(crate) moves: u64,
    pub(crate) move_requests: u64,
    pub(crate) rebalanced: u64,
}

impl Prometheus {
    /// The content type of the text, for the header of an HTTP response.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a text without groups.
    pub fn new() -> Prometheus {
        Prometheus::default()
    }

    /// Adds the metrics of a group, with its name as the label `group`. Metrics that were added with the
    /// same name before are replaced.
    #[must_use = "this returns the text with the group in it"]
    pub fn group(mut self, name: impl Into<String>, metrics: &GroupMetrics) -> Prometheus {
        let (name, metrics) = (name.into(), metrics.clone());
        match self.groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = metrics,
            None => self.groups.push((name, metrics)),
        }
        self
    }

    /// Adds the counts of a server, or replaces those of this name.
    pub(crate) fn counts(mut self, name: String, counts: ServerCounts) -> Prometheus {
        match self.servers.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = counts,
            None => self.servers.push((name, counts)),
        }
        self
    }

    /// The loops of all groups, each with the labels that its samples have.
    fn loops(&self) -> impl Iterator<Item = (String, &LoopMetrics)> {
        self.groups.iter().flat_map(|(name, metrics)| {
            let loops = metrics.loops().iter();
            loops.map(move |one| {
                let labels = format!("group=\"{}\",loop=\"{}\"", Escaped(name), one.index());
                (labels, one)
            })
        })
    }
}

impl GroupMetrics {
    /// Returns the metrics as text for Prometheus, in its exposition format 0.0.4, with the label `group="default"`.
    /// For a name, or for several groups in one text, see [`Prometheus`].
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let text = group.metrics().to_prometheus();
    /// assert!(text.contains("# TYPE loopgroup_utilization_ratio gauge\n"));
    /// assert!(text.contains("\nloopgroup_utilization_ratio{group=\"default\",loop=\"0\"} 0\n"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn to_prometheus(&self) -> String {
        Prometheus::new().group(UNNAMED, self).to_string()
    }
}

/// A metric with a sample per loop.
struct Family {
    name: &'static str,
    help: &'static str,
    /// A label besides those of the loop, or nothing, and the figure.
    samples: &'static [(&'static str, Figure)],
}

type Figure = fn(&LoopMetrics) -> u64;

const COUNTERS: [Family; 10] = [
    Family {
        name: "polls_total",
        help: "Polls of tasks and calls of closures.",
        samples: &[("", LoopMetrics::polls)],
    },
    Family {
        name: "parks_total",
        help: "Times that the loop went to sleep.",
        samples: &[("", LoopMetrics::parks)],
    },
    Family {
        name: "wakes_total",
        help: "Wakes of tasks, by where they came from: the loop itself, its siblings, other threads.",
        samples: &[
            ("from=\"itself\"", LoopMetrics::local_wakes),
            ("from=\"siblings\"", LoopMetrics::remote_wakes),
            ("from=\"outside\"", LoopMetrics::outside_wakes),
        ],
    },
    Family {
        name: "wakeup_calls_total",
        help: "System calls by which other threads woke the sleeping loop.",
        samples: &[("", LoopMetrics::wakeup_calls)],
    },
    Family {
        name: "io_events_total",
        help: "Events of the selector, by whether their channel still existed.",
        samples: &[
            ("channel=\"open\"", |one| {
                one.io_events().saturating_sub(one.stale_events())
            }),
            ("channel=\"gone\"", LoopMetrics::stale_events),
        ],
    },
    Family {
        name: "selector_rebuilds_total",
        help: "Selectors that were found broken and replaced.",
        samples: &[("", LoopMetrics::rebuilds)],
    },
    Family {
        name: "timers_fired_total",
        help: "Timers that fired.",
        samples: &[("", LoopMetrics::timers_fired)],
    },
    Family {
        name: "stalls_total",
        help: "Polls that the watchdog has found not to return within its threshold.",
        samples: &[("", LoopMetrics::stalls)],
    },
    Family {
        name: "tasks_accepted_total",
        help: "Tasks and closures that the loop accepted.",
        samples: &[("", LoopMetrics::accepted)],
    },
    Family {
        name: "tasks_rejected_total",
        help: "Submissions that the loop rejected.",
        samples: &[("", LoopMetrics::rejected)],
    },
];

const ENDED: Family = Family {
    name: "tasks_ended_total",
    help: "Tasks and closures that ended, by how.",
    samples: &[
        ("outcome=\"completed\"", LoopMetrics::completed),
        ("outcome=\"panicked\"", LoopMetrics::panicked),
        ("outcome=\"cancelled\"", LoopMetrics::cancelled),
    ],
};

const GAUGES: [Family; 5] = [
    Family {
        name: "tasks_pending",
        help: "Accepted tasks that wait for their first poll.",
        samples: &[("", |one| one.pending() as u64)],
    },
    Family {
        name: "tasks_live",
        help: "Tasks that were polled and have not ended.",
        samples: &[("", |one| one.live() as u64)],
    },
    Family {
        name: "channels",
        help: "Channels that are registered with the selector.",
        samples: &[("", |one| one.channels() as u64)],
    },
    Family {
        name: "paused",
        help: "Whether the loop is paused: 1 if its group chooses other loops.",
        samples: &[("", |one| u64::from(one.is_paused()))],
    },
    Family {
        name: "parked",
        help: "Whether the loop is parked: 1 if its thread has ended for want of work.",
        samples: &[("", |one| u64::from(one.is_parked()))],
    },
];

/// A metric with a sample per server, and several if they have a label.
struct ServerFamily {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    samples: &'static [(&'static str, ServerFigure)],
}

type ServerFigure = fn(&ServerCounts) -> u64;

const SERVERS: [ServerFamily; 8] = [
    ServerFamily {
        name: "server_connections",
        help: "Open connections.",
        kind: "gauge",
        samples: &[("", |one| one.connections)],
    },
    ServerFamily {
        name: "server_accepted_total",
        help: "Connections accepted.",
        kind: "counter",
        samples: &[("", |one| one.accepted)],
    },
    ServerFamily {
        name: "server_ended_total",
        help: "Connections by how they ended.",
        kind: "counter",
        samples: &[
            (",outcome=\"completed\"", |one| one.completed),
            (",outcome=\"failed\"", |one| one.failed),
            (",outcome=\"aborted\"", |one| one.aborted),
            (",outcome=\"rejected\"", |one| one.rejected),
        ],
    },
    ServerFamily {
        name: "server_timed_out_total",
        help: "Connections for which a time limit of the server has expired.",
        kind: "counter",
        samples: &[("", |one| one.timed_out)],
    },
    ServerFamily {
        name: "server_accept_errors_total",
        help: "Accepts that have failed.",
        kind: "counter",
        samples: &[("", |one| one.accept_errors)],
    },
    ServerFamily {
        name: "server_moves_total",
        help: "Connections that have moved to another loop.",
        kind: "counter",
        samples: &[("", |one| one.moves)],
    },
    ServerFamily {
        name: "server_move_requests_total",
        help: "Requests to connections to move.",
        kind: "counter",
        samples: &[("", |one| one.move_requests)],
    },
    ServerFamily {
        name: "server_rebalanced_total",
        help: "Requests to connections to move, to balance the load.",
        kind: "counter",
        samples: &[("", |one| one.rebalanced)],
    },
];

/// The text, which ends with a newline unless there are no loops in it.
impl fmt::Display for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for family in COUNTERS.iter().chain([&ENDED]) {
            self.write_numbers(f, family, "counter")?;
        }
        for family in &GAUGES {
            self.write_numbers(f, family, "gauge")?;
        }
        let help = "Busy share of about the last second.";
        self.write_gauge(f, "utilization_ratio", help, |one| Some(one.utilization()))?;
        let help = "Mean time from a wake-up call to the loop's next turn, of the last ones.";
        self.write_gauge(f, "wake_delay_seconds", help, |one| {
            Some(one.wake_delay().as_secs_f64())
        })?;
        let help = "Longest poll so far.";
        self.write_gauge(f, "longest_poll_seconds", help, |one| {
            one.longest_poll().map(|time| time.as_secs_f64())
        })?;
        let help = "How long polls took.";
        self.write_histogram(f, "poll_duration_seconds", help, |one| &one.poll_times)?;
        let help = "How long tasks waited from their wake to their poll.";
        self.write_histogram(f, "wake_to_poll_seconds", help, |one| &one.wake_to_poll)?;
        SERVERS
            .iter()
            .try_for_each(|family| self.write_servers(f, family))
    }
}

impl Prometheus {
    fn write_numbers(
        &self,
        f: &mut fmt::Formatter<'_>,
        family: &Family,
        kind: &str,
    ) -> fmt::Result {
        let name = family.name;
        for (number, (labels, one)) in self.loops().enumerate() {
            if number == 0 {
                write_head(f, name, family.help, kind)?;
            }
            for (label, figure) in family.samples {
                let comma = if label.is_empty() { "" } else { "," };
                let figure = figure(one);
                writeln!(f, "loopgroup_{name}{{{labels}{comma}{label}}} {figure}")?;
            }
        }
        Ok(())
    }

    fn write_gauge(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        help: &str,
        figure: impl Fn(&LoopMetrics) -> Option<f64>,
    ) -> fmt::Result {
        let figures = self
            .loops()
            .filter_map(|(labels, one)| Some((labels, figure(one)?)));
        for (number, (labels, figure)) in figures.enumerate() {
            if number == 0 {
                write_head(f, name, help, "gauge")?;
            }
            writeln!(f, "loopgroup_{name}{{{labels}}} {figure}")?;
        }
        Ok(())
    }

    fn write_servers(&self, f: &mut fmt::Formatter<'_>, family: &ServerFamily) -> fmt::Result {
        let ServerFamily {
            name,
            help,
            kind,
            samples,
        } = family;
        if !self.servers.is_empty() {
            write_head(f, name, help, kind)?;
        }
        for (server, counts) in &self.servers {
            for (label, figure) in *samples {
                let (server, figure) = (Escaped(server), figure(counts));
                writeln!(f, "loopgroup_{name}{{server=\"{server}\"{label}}} {figure}")?;
            }
        }
        Ok(())
    }

    /// Writes the histograms of the groups that measure time.
    fn write_histogram(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        help: &str,
        histogram: impl Fn(&LoopMetrics) -> &Histogram,
    ) -> fmt::Result {
        let measured = self.loops().filter(|(_, one)| one.times.is_some());
        for (number, (labels, one)) in measured.enumerate() {
            if number == 0 {
                write_head(f, name, help, "histogram")?;
            }
            let histogram = histogram(one);
            let count = histogram.count();
            for bound in BOUNDS.map(Duration::from_micros) {
                let (le, within) = (bound.as_secs_f64(), histogram.count_up_to(bound));
                writeln!(
                    f,
                    "loopgroup_{name}_bucket{{{labels},le=\"{le}\"}} {within}"
                )?;
            }
            writeln!(f, "loopgroup_{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
            let sum = histogram.sum().as_secs_f64();
            writeln!(f, "loopgroup_{name}_sum{{{labels}}} {sum}")?;
            writeln!(f, "loopgroup_{name}_count{{{labels}}} {count}")?;
        }
        Ok(())
    }
}

fn write_head(f: &mut fmt::Formatter<'_>, name: &str, help: &str, kind: &str) -> fmt::Result {
    writeln!(f, "# HELP loopgroup_{name} {help}")?;
    writeln!(f, "# TYPE loopgroup_{name} {kind}")
}

/// The value of a label, as it stands between its quotes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            letter => f.write_char(letter),
        })
    }
}

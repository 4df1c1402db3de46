//! The table of tasks: filtered, sorted and cut into pages here, so that a page shows ten thousand tasks for
//! the price of fifty.

use std::cmp::Ordering;
use std::time::Duration;

use serde::Serialize;

use crate::event_loop::tracker::{TaskState, WakeSource};
use crate::inspect::query::Query;
use crate::inspect::shown::shown;
use crate::task_id::TaskId;
use crate::task_info::TaskInfo;

/// How many tasks an answer has, unless the question says so, and at most.
const LIMIT: usize = 50;
const MOST: usize = 200;

/// A poll of this length is worth a second look.
const LONG_POLL: Duration = Duration::from_millis(100);

/// From here on a future is worth a second look: it is moved when it is spawned.
const LARGE: usize = 4096;

/// Which tasks are asked for.
#[derive(Debug)]
pub(super) struct Question {
    index: Option<usize>,
    state: Option<TaskState>,
    /// In lower case; in the name, the place or what the task waits for.
    text: Option<String>,
    sort: Column,
    descending: bool,
    offset: usize,
    limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Id,
    Name,
    State,
    Loop,
    Polls,
    Busy,
    Longest,
    Wakes,
    Idle,
    Age,
    Size,
    Waits,
    Place,
}

const COLUMNS: [(&str, Column); 13] = [
    ("id", Column::Id),
    ("name", Column::Name),
    ("state", Column::State),
    ("loop", Column::Loop),
    ("polls", Column::Polls),
    ("busy", Column::Busy),
    ("longest", Column::Longest),
    ("wakes", Column::Wakes),
    ("idle", Column::Idle),
    ("age", Column::Age),
    ("size", Column::Size),
    ("waits", Column::Waits),
    ("place", Column::Place),
];

const NO_COLUMN: &str = "sort is a column: id, name, state, loop, polls, busy, longest, wakes, idle, age, \
                         size, waits or place";

const STATES: [(&str, TaskState); 3] = [
    ("queued", TaskState::Queued),
    ("running", TaskState::Running),
    ("waiting", TaskState::Waiting),
];

/// The answer to a question.
#[derive(Debug, Serialize)]
pub(super) struct TasksPicture {
    pub(super) group: String,
    pub(super) tracked: bool,
    pub(super) total: usize,
    pub(super) matching: usize,
    pub(super) offset: usize,
    pub(super) tasks: Vec<TaskPicture>,
}

#[derive(Debug, Serialize)]
pub(super) struct TaskPicture {
    id: u64,
    name: Option<String>,
    state: &'static str,
    #[serde(rename = "loop")]
    index: usize,
    polls: u64,
    busy: f64,
    longest: f64,
    wakes: u64,
    self_wakes: u64,
    last_wake: Option<String>,
    last_wake_ago: Option<f64>,
    /// Since its last poll.
    idle: Option<f64>,
    age: f64,
    size: usize,
    waits: Vec<String>,
    place: String,
    warnings: Vec<&'static str>,
}

impl Question {
    /// Reads a question, or says what is wrong with it.
    pub(super) fn parse(query: &Query) -> Result<Question, &'static str> {
        let number =
            |name: &str, otherwise: usize| query.get(name).map_or(Ok(otherwise), str::parse);
        let index = query.get("loop").map(str::parse).transpose();
        Ok(Question {
            index: index.map_err(|_| "loop is the index of a loop")?,
            state: one_of(&STATES, query.get("state"))
                .map_err(|()| "state is queued, running or waiting")?,
            text: query.get("q").map(str::to_lowercase),
            sort: one_of(&COLUMNS, query.get("sort"))
                .map_err(|()| NO_COLUMN)?
                .unwrap_or(Column::Id),
            descending: match query.get("order") {
                None | Some("asc") => false,
                Some("desc") => true,
                Some(_) => return Err("order is asc or desc"),
            },
            offset: number("offset", 0).map_err(|_| "offset is a number, 0 or more")?,
            limit: match number("limit", LIMIT) {
                Ok(limit @ 1..) => limit.min(MOST),
                _ => return Err("limit is a number, 1 or more"),
            },
        })
    }

    /// Answers with the tasks that are asked for.
    pub(super) fn answer(&self, group: &str, tracked: bool, tasks: &[TaskInfo]) -> TasksPicture {
        let mut found: Vec<&TaskInfo> = tasks.iter().filter(|task| self.matches(task)).collect();
        self.sort(&mut found);
        // A page behind the last one, because tasks have ended meanwhile, is the last one.
        let pages = found.len().saturating_sub(1) / self.limit;
        let offset = self.offset.min(pages * self.limit);
        let page = found.iter().skip(offset).take(self.limit);
        TasksPicture {
            group: shown(group),
            tracked,
            total: tasks.len(),
            matching: found.len(),
            offset,
            tasks: page.map(|task| TaskPicture::of(task)).collect(),
        }
    }

    fn matches(&self, task: &TaskInfo) -> bool {
        if self.index.is_some_and(|index| index != task.loop_index()) {
            return false;
        }
        if self.state.is_some_and(|state| state != task.state()) {
            return false;
        }
        let Some(text) = &self.text else {
            return true;
        };
        let has = |one: &str| one.to_lowercase().contains(text);
        task.name().is_some_and(has)
            || has(&task.location().to_string())
            || task.waits_for().iter().any(|wait| has(&wait.to_string()))
    }

    fn sort(&self, tasks: &mut [&TaskInfo]) {
        if self.sort == Column::Waits {
            // A text is made for each of them: once.
            tasks.sort_by_cached_key(|task| (waits(task).join(", "), task.id()));
            if self.descending {
                tasks.reverse();
            }
            return;
        }
        tasks.sort_unstable_by(|one, other| {
            let order = self.compare(one, other);
            let order = if self.descending {
                order.reverse()
            } else {
                order
            };
            order.then_with(|| one.id().cmp(&other.id()))
        });
    }

    fn compare(&self, one: &TaskInfo, other: &TaskInfo) -> Ordering {
        fn by<T: Ord>(one: &TaskInfo, other: &TaskInfo, key: impl Fn(&TaskInfo) -> T) -> Ordering {
            key(one).cmp(&key(other))
        }
        let place = |task: &TaskInfo| {
            let place = task.location();
            (place.file(), place.line(), place.column())
        };
        match self.sort {
            Column::Id | Column::Waits => by(one, other, TaskInfo::id),
            Column::Name => one.name().unwrap_or("").cmp(other.name().unwrap_or("")),
            Column::State => state(one).cmp(state(other)),
            Column::Loop => by(one, other, TaskInfo::loop_index),
            Column::Polls => by(one, other, TaskInfo::polls),
            Column::Busy => by(one, other, TaskInfo::busy),
            Column::Longest => by(one, other, TaskInfo::longest_poll),
            Column::Wakes => by(one, other, TaskInfo::wakes),
            Column::Idle => by(one, other, TaskInfo::last_poll),
            Column::Age => by(one, other, TaskInfo::age),
            Column::Size => by(one, other, TaskInfo::size),
            Column::Place => by(one, other, place),
        }
    }
}

impl TaskPicture {
    fn of(task: &TaskInfo) -> TaskPicture {
        let last = task.last_wake();
        TaskPicture {
            id: TaskId::number_of(task.id().to_halves()),
            name: task.name().map(shown),
            state: state(task),
            index: task.loop_index(),
            polls: task.polls(),
            busy: task.busy().as_secs_f64(),
            longest: task.longest_poll().as_secs_f64(),
            wakes: task.wakes(),
            self_wakes: task.self_wakes(),
            last_wake: last.as_ref().map(|wake| waker(wake.by())),
            last_wake_ago: last.as_ref().map(|wake| wake.ago().as_secs_f64()),
            idle: task.last_poll().map(|time| time.as_secs_f64()),
            age: task.age().as_secs_f64(),
            size: task.size(),
            waits: waits(task),
            place: task.location().to_string(),
            warnings: warnings(task),
        }
    }
}

/// What a task waits for, as texts.
pub(super) fn waits(task: &TaskInfo) -> Vec<String> {
    let waits = task.waits_for().iter();
    waits.map(|wait| shown(&wait.to_string())).collect()
}

fn state(task: &TaskInfo) -> &'static str {
    match task.state() {
        TaskState::Queued => "queued",
        TaskState::Running => "running",
        TaskState::Waiting => "waiting",
    }
}

fn waker(source: WakeSource) -> String {
    match source {
        WakeSource::Itself => "by itself".to_owned(),
        WakeSource::Loop(index) => format!("by loop {index}"),
        WakeSource::Timer => "by a timer".to_owned(),
        WakeSource::Io => "by a socket".to_owned(),
        WakeSource::Outside => "from outside".to_owned(),
    }
}

/// What is worth a second look.
fn warnings(task: &TaskInfo) -> Vec<&'static str> {
    let restless = task.wakes() >= 100 && task.self_wakes() * 2 > task.wakes();
    let all = [
        (restless, "wakes itself"),
        (task.size() >= LARGE, "large future"),
        (task.longest_poll() >= LONG_POLL, "long poll"),
    ];
    all.into_iter()
        .filter(|(applies, _)| *applies)
        .map(|(_, text)| text)
        .collect()
}

/// The value that a word stands for; `None` for no word.
fn one_of<T: Copy>(known: &[(&str, T)], word: Option<&str>) -> Result<Option<T>, ()> {
    let Some(word) = word else {
        return Ok(None);
    };
    let found = known.iter().find(|(name, _)| *name == word);
    found.map(|(_, value)| Some(*value)).ok_or(())
}

//! What a loop shows of the poll that it is in, for the watchdog.
//!
//! - The loop thread writes two words when a poll begins, with relaxed stores: what is polled, and then the
//!   number of the poll together with the place of its spawn. A poll ends when the next one begins, or when
//!   the loop says that it is in none: at the end of a turn, before it fires timers, and after anything that
//!   is no poll of a turn. The clock is not read.
//! - The watchdog believes what it reads only after it has seen the same number twice, a while apart: by then
//!   everything that the loop wrote at the beginning of that poll can be seen.
//! - A place is shown by its [number](crate::site), and a name by the id of its task: the first poll of a
//!   task with a name adds that to a table, in which the watchdog finds it, and the end of the task removes
//!   it. The lock of the table is taken for nothing else.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::error::Caller;
use crate::metrics::gauges::Gauge;
use crate::site::Site;
use crate::sync::{Arc, plain};
use crate::task_id::{HOOK, MAIN, TaskId};
use crate::watchdog::reporter::StallReporter;
use crate::watchdog::stall::{PollNumber, Subject};
use crate::watchdog::thread_use;

/// Instead of a place that is not known.
const UNKNOWN_PLACE: u32 = 1;

/// Names of tasks, by their ids.
type Names = plain::Mutex<BTreeMap<u64, Cow<'static, str>>>;

/// The beacon of a loop.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Beacon {
    /// In the upper half how many polls have begun. In the lower half zero if none is under way, else twice
    /// the number of the place of the spawn, plus two, plus one if there is a name; one if the place is not
    /// known.
    poll: Gauge,
    /// The id of what is polled.
    id: Gauge,
    /// Those of tasks that have been polled and have not ended.
    names: Arc<Names>,
    /// What the system calls the loop's thread; zero if that is not known.
    thread: Gauge,
    pub(crate) index: usize,
    pub(crate) thread_name: String,
    pub(crate) reporter: Arc<StallReporter>,
    /// Polls that the watchdog has found not to return; written by its thread.
    pub(crate) stalls: Gauge,
}

/// What the watchdog reads of a poll.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) subject: Subject,
    pub(crate) location: Option<Caller>,
    pub(crate) name: Option<String>,
}

impl Beacon {
    pub(crate) fn new(index: usize, thread_name: String, reporter: Arc<StallReporter>) -> Beacon {
        Beacon {
            poll: Gauge::default(),
            id: Gauge::default(),
            names: Arc::new(plain::Mutex::new(BTreeMap::new())),
            thread: Gauge::default(),
            index,
            thread_name,
            reporter,
            stalls: Gauge::default(),
        }
    }

    /// Notes on which thread the loop is: the calling one.
    pub(crate) fn enter_thread(&self) {
        self.thread.set(thread_use::this_thread().unwrap_or(0));
    }

    /// Shows that a poll begins: of what, and where that comes from if it is known.
    pub(crate) fn begin(&self, id: u64, site: Option<Site>, name: Option<&Named>) {
        if let Some(name) = name {
            name.shown
                .get_or_init(|| self.add_name(id, name.text.clone()));
        }
        let named = u32::from(name.is_some());
        // So many places do not fit in a program; one that did not fit here would be shown as unknown.
        let place = site
            .and_then(|site| site.number().get().checked_mul(2))
            .map_or(UNKNOWN_PLACE, |place| place + named);
        self.id.set(id);
        let number = (self.poll.get() >> 32).wrapping_add(1);
        self.poll.set(number << 32 | u64::from(place));
    }

    /// Shows that no poll is under way.
    #[inline]
    pub(crate) fn end(&self) {
        self.poll.set(self.poll.get() >> 32 << 32);
    }

    /// The poll that is under way.
    pub(crate) fn poll_under_way(&self) -> Option<PollNumber> {
        Some(PollNumber::new(self.poll.get())).filter(|poll| poll.place() > 0)
    }

    /// What is polled, if this poll is still under way.
    pub(crate) fn read(&self, poll: PollNumber) -> Option<Polled> {
        let (id, place) = (self.id.get(), poll.place());
        let name = match place {
            UNKNOWN_PLACE => None,
            place if place % 2 == 1 => self.name_of(id),
            _ => None,
        };
        let polled = Polled {
            subject: match id {
                MAIN => Subject::MainFuture,
                HOOK => Subject::ShutdownHook,
                _ => Subject::Task(TaskId::from_number(id)?),
            },
            location: Site::numbered(place / 2).map(Site::location),
            name: name.map(Cow::into_owned),
        };
        (PollNumber::new(self.poll.get()) == poll).then_some(polled)
    }

    /// Adds the name of the task with this id, until the guard is dropped.
    #[cold]
    fn add_name(&self, id: u64, name: Cow<'static, str>) -> ShownName {
        self.names.lock().insert(id, name);
        ShownName {
            names: Arc::clone(&self.names),
            id,
        }
    }

    fn name_of(&self, id: u64) -> Option<Cow<'static, str>> {
        self.names.lock().get(&id).cloned()
    }

    /// What the system calls the loop's thread.
    pub(crate) fn thread(&self) -> Option<u64> {
        Some(self.thread.get()).filter(|&thread| thread > 0)
    }
}

/// The name of a task.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) text: Cow<'static, str>,
    /// Set by the first poll of a task whose loop is watched.
    shown: OnceCell<ShownName>,
}

impl Named {
    pub(crate) fn new(text: Cow<'static, str>) -> Named {
        Named {
            text,
            shown: OnceCell::new(),
        }
    }
}

/// For another task: it is not shown.
impl Clone for Named {
    fn clone(&self) -> Named {
        Named::new(self.text.clone())
    }
}

/// Removes the name of a task when it is dropped.
#[derive(Debug)]
struct ShownName {
    /// Not the beacon, which may be the last owner of a handler of the user's.
    names: Arc<Names>,
    id: u64,
}

impl Drop for ShownName {
    fn drop(&mut self) {
        // Freed with the lock released.
        let removed = self.names.lock().remove(&self.id);
        drop(removed);
    }
}

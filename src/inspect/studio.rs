//! Where pictures are taken: what is shown, and the last picture of it.
//!
//! A picture is taken when somebody asks for one. Those who ask at about the same time share one.

use std::cell::{Cell, RefCell};
use std::process;
use std::time::{Duration, Instant};

use hyper::body::Bytes;

use crate::group::handle::EventLoopGroup;
use crate::inspect::guard::Guard;
use crate::inspect::page::Page;
use crate::inspect::permit::Permits;
use crate::inspect::picture::{OwnPicture, Picture};
use crate::inspect::watched::{WatchedGroup, WatchedServer};
use crate::sync::{self, Arc};

/// The time from one picture to the next.
pub(super) const PERIOD: Duration = Duration::from_millis(250);

/// How many streams there may be.
const STREAMS: usize = 16;

/// How many dumps and traces may be on their way: each takes megabytes until its client has read it.
const LONG_ANSWERS: usize = 4;

/// What an inspector shows; made before it has a loop.
#[derive(Debug)]
pub(super) struct Exhibits {
    pub(super) groups: Vec<Arc<WatchedGroup>>,
    pub(super) servers: Vec<WatchedServer>,
    pub(super) guard: Guard,
    pub(super) page: Page,
    pub(super) instance: String,
    pub(super) start: Instant,
    /// The inspector's own group: it lives until it is told to stop.
    pub(super) own: EventLoopGroup,
}

/// Where pictures are taken.
pub(super) struct Studio {
    pub(super) exhibits: Arc<Exhibits>,
    pub(super) streams: Permits,
    pub(super) long_answers: Permits,
    taken: Cell<u64>,
    /// The last picture, and when it was taken.
    recent: RefCell<Option<(Instant, Bytes)>>,
}

impl Studio {
    pub(super) fn new(exhibits: Arc<Exhibits>) -> Studio {
        Studio {
            exhibits,
            streams: Permits::new(STREAMS),
            long_answers: Permits::new(LONG_ANSWERS),
            taken: Cell::new(0),
            recent: RefCell::new(None),
        }
    }

    /// A picture that is not older than half a period.
    pub(super) fn recent_picture(&self) -> Bytes {
        let now = sync::now();
        if let Some((at, picture)) = &*self.recent.borrow() {
            if now.saturating_duration_since(*at) < PERIOD / 2 {
                return picture.clone();
            }
        }
        let picture = self.picture();
        self.recent.replace(Some((now, picture.clone())));
        picture
    }

    pub(super) fn picture(&self) -> Bytes {
        let exhibits = &self.exhibits;
        self.taken.set(self.taken.get() + 1);
        let picture = Picture {
            instance: exhibits.instance.clone(),
            at: exhibits.start.elapsed().as_secs_f64(),
            process: process::id(),
            inspector: OwnPicture {
                utilization: exhibits.own.loops()[0].metrics().utilization(),
                streams: self.streams.given(),
                pictures: self.taken.get(),
                period: PERIOD.as_secs_f64(),
            },
            groups: exhibits.groups.iter().map(|one| one.picture()).collect(),
            servers: exhibits.servers.iter().map(|one| one.picture()).collect(),
        };
        json(&picture)
    }
}

/// A value as JSON.
pub(super) fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value)
        .expect("pictures have string keys")
        .into()
}

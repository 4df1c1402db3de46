//! W1 and W6 by hand: a locked list of boxed closures, and an eventfd that only the first of a batch rings.

use std::sync::{Arc, Mutex};

use mio::{Events, Poll, Token, Waker};

type Job = Box<dyn FnOnce() + Send>;

/// The sending side of a loop on a thread of its own.
#[derive(Clone)]
pub(crate) struct Mailbox {
    jobs: Arc<Mutex<Vec<Job>>>,
    bell: Arc<Waker>,
}

impl Mailbox {
    pub(crate) fn start() -> Mailbox {
        let poll = Poll::new().expect("a selector can be made");
        let bell = Waker::new(poll.registry(), Token(0)).expect("an eventfd can be made");
        let mailbox = Mailbox {
            jobs: Arc::default(),
            bell: Arc::new(bell),
        };
        let jobs = Arc::clone(&mailbox.jobs);
        std::thread::spawn(move || run(poll, &jobs));
        mailbox
    }

    pub(crate) fn push(&self, job: impl FnOnce() + Send + 'static) {
        let mut jobs = self.jobs.lock().expect("no job panics");
        jobs.push(Box::new(job));
        let first = jobs.len() == 1;
        drop(jobs);
        if first {
            self.bell.wake().expect("the loop is there");
        }
    }
}

fn run(mut poll: Poll, jobs: &Mutex<Vec<Job>>) {
    let mut events = Events::with_capacity(16);
    let mut batch = Vec::new();
    loop {
        std::mem::swap(&mut *jobs.lock().expect("no job panics"), &mut batch);
        if batch.is_empty() {
            poll.poll(&mut events, None)
                .expect("the wait does not fail");
        }
        for job in batch.drain(..) {
            job();
        }
    }
}

//! A server accepts, hands over, refuses and ends as its terms say.

mod inspector;
mod limits;
mod listeners;
mod moving_http;
mod per_loop_handlers;
mod read_end;
mod rebalance;
mod server;
mod server_regressions;
mod skew;
mod turns;
#[path = "../util/mod.rs"]
mod util;

use std::net::TcpStream as Client;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use loopgroup::net::{Server, ServerHandle, ServerReport};
use loopgroup::{EventLoopGroup, PanicSite};

/// A server of this machine, at a port of its own.
fn serve_on(group: &EventLoopGroup) -> Server {
    Server::new("127.0.0.1:0").unwrap().workers(group)
}

fn connect(server: &ServerHandle) -> Client {
    Client::connect(server.local_addr()).unwrap()
}

/// A group of so many loops, and the places of the panics that it reports.
fn group_that_reports(loops: usize) -> (EventLoopGroup, Arc<Mutex<Vec<PanicSite>>>) {
    let sites = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sites);
    let builder = EventLoopGroup::builder().loops(loops);
    let builder = builder.on_panic(move |panic| seen.lock().unwrap().push(panic.site()));
    (builder.build().unwrap(), sites)
}

/// Does something again and again, on a thread of its own, until it is dropped.
struct Repeated {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Repeated {
    fn start(mut act: impl FnMut() + Send + 'static) -> Repeated {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                act();
            }
        });
        Repeated {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[track_caller]
fn assert_adds_up(report: &ServerReport) {
    let ended = report.completed() + report.failed() + report.aborted() + report.rejected();
    assert_eq!(report.accepted(), ended, "{report}");
}

//! Handles and sockets cross `catch_unwind` without a wrapper, and work after a panic that passed them.

use std::cell::Cell;
use std::future::Ready;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use futures::io::AsyncReadExt;
use loopgroup::blocking::BlockingGroup;
use loopgroup::io::{DuplexStream, Registered, duplex};
use loopgroup::net::{
    OwnedReadHalf, OwnedWriteHalf, ServerHandle, TcpListener, TcpStream, UdpSocket, UnixDatagram,
    UnixListener, UnixOwnedReadHalf, UnixOwnedWriteHalf, UnixStream,
};
use loopgroup::signal::{SignalKind, Signals};
use loopgroup::time::{Interval, Sleep, Timeout};
use loopgroup::{
    EventLoop, EventLoopGroup, GroupMetrics, HookId, JoinHandle, LoopBound, LoopMetrics,
    LoopReport, LoopThread, Scheduled, ShutdownRequested, TerminationFuture, TerminationReport,
    YieldNow, block_on,
};

use crate::util::{LONG, blow_up, group, within};

#[test]
fn handles_and_sockets_are_unwind_safe() {
    fn both<T: UnwindSafe + RefUnwindSafe>() {}
    both::<EventLoopGroup>();
    both::<EventLoop>();
    both::<BlockingGroup>();
    both::<LoopThread>();
    both::<JoinHandle<Rc<Cell<()>>>>();
    both::<Scheduled<Rc<Cell<()>>>>();
    both::<LoopBound<Rc<Cell<()>>>>();
    both::<TerminationFuture>();
    both::<TerminationReport>();
    both::<LoopReport>();
    both::<LoopMetrics>();
    both::<GroupMetrics>();
    both::<HookId>();
    both::<ShutdownRequested>();
    both::<YieldNow>();
    both::<ServerHandle>();
    both::<TcpListener>();
    both::<TcpStream>();
    both::<OwnedReadHalf>();
    both::<OwnedWriteHalf>();
    both::<UdpSocket>();
    both::<UnixListener>();
    both::<UnixStream>();
    both::<UnixOwnedReadHalf>();
    both::<UnixOwnedWriteHalf>();
    both::<UnixDatagram>();
    both::<Registered<std::os::unix::net::UnixStream>>();
    both::<DuplexStream>();
    both::<Sleep>();
    both::<Interval>();
    both::<Timeout<Ready<()>>>();
    both::<Signals>();
    both::<SignalKind>();
}

#[test]
fn handles_work_after_a_panic_that_passed_them() {
    within(|| {
        let group = group(2);
        let ev = group.next().clone();
        let bound = ev.bind(|| Rc::new(Cell::new(1)));
        let (one, mut other) = duplex(8);
        let unwound = catch_unwind(|| {
            let task = group.spawn(async { 7 });
            let later = ev.schedule(Duration::from_secs(3600), || ());
            let _held = (&group, &ev, &bound, task, later, one);
            blow_up()
        });
        assert!(unwound.is_err());
        assert_eq!(block_on(group.spawn(async { 7 })).unwrap(), 7);
        assert_eq!(block_on(ev.submit(|| 8)).unwrap(), 8);
        assert_eq!(block_on(bound.with(|value| value.get())).unwrap(), 1);
        let mut buf = [0];
        let read = block_on(other.read(&mut buf)).unwrap();
        assert_eq!(read, 0, "the other end unwound with the closure");
        let report = group.drain(LONG).wait();
        assert_eq!(report.panicked(), 0, "{report}");
    });
}

//! Uses every part of the crate once, for `.ci/faults`, which has the system refuse its calls.
//!
//! Each part ends well, or with the error that was injected (`LOOPGROUP_FAULT=EMFILE`), and either way it is
//! rolled back: as many threads and descriptors as before. The process ends in time, it does not spin, and
//! nothing panics. What happened is printed, a line for each part; the exit status says which promise is
//! broken.
//!
//! Without a fault (`cargo test --test fault_driver`) every part has to end well.

mod util;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    driver::main();
}

#[cfg(target_os = "linux")]
mod driver {
    use std::future::Future;
    use std::io::{self, IoSlice, IoSliceMut, Read, Write};
    use std::os::fd::IntoRawFd;
    use std::path::Path;
    use std::process::exit;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, mpsc};
    use std::task::Poll;
    use std::thread;
    use std::time::{Duration, Instant, SystemTime};

    use futures::io::{AsyncReadExt, AsyncWriteExt};
    use loopgroup::blocking::{BlockingGroup, unblock};
    use loopgroup::io::{Interest, Registered};
    use loopgroup::net::{
        Server, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
    };
    use loopgroup::time::{interval, sleep, timeout};
    use loopgroup::{EventLoopGroup, TerminationReport, signal, spawn_local};

    use crate::util::{Door, TempPath, entries, patiently};

    /// For everything, in seconds; what takes longer hangs. `LOOPGROUP_BOUND` is another figure.
    const BOUND: u64 = 30;
    /// For one side of a conversation whose other side was refused something.
    const PATIENCE: Duration = Duration::from_secs(3);
    /// Processor time of it all; a run takes a twentieth of it.
    const CPU: Duration = Duration::from_millis(600);

    /// The promises, by exit status.
    const WRONG_ERROR: i32 = 2;
    const PANICKED: i32 = 3;
    const HANGS: i32 = 4;
    const SPINS: i32 = 5;
    const LEAKS: i32 = 6;

    type Part = fn(&Errors) -> io::Result<()>;

    const PARTS: &[(&str, Part)] = &[
        ("group", group),
        ("timers", timers),
        ("precise timers", precise_timers),
        ("tcp", tcp),
        ("options", options),
        ("udp", udp),
        ("unix", unix),
        ("registered", registered),
        ("server", server),
        ("shared port", shared_port),
        ("migration", migration),
        ("signal", signals),
        ("blocking", blocking),
        ("run", run),
    ];

    /// Only when asked for: one needs a clock that can be moved, the others break a promise each.
    const ON_DEMAND: &[(&str, Part)] = &[
        ("clock", clock),
        ("control: spins", spins),
        ("control: leaks", leaks),
        ("control: hangs", hangs),
        ("control: panics", panics),
        ("control: hides the error", hides),
    ];

    /// What may be injected, by name.
    macro_rules! errors {
        ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
    }
    const ERRORS: &[(&str, i32)] = errors!(
        EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EBADF ECONNABORTED ECONNREFUSED ECONNRESET
        EHOSTUNREACH EINTR EINVAL EIO EMFILE ENETDOWN ENETUNREACH ENFILE ENOBUFS ENOMEM ENOPROTOOPT ENOSPC
        ENOSYS ENOTCONN ENOTTY EOPNOTSUPP EPERM EPIPE EPROTO ESRCH ETIMEDOUT
    );

    pub(crate) fn main() {
        static PANIC: AtomicBool = AtomicBool::new(false);
        std::panic::set_hook(Box::new(|info| {
            PANIC.store(true, Ordering::SeqCst);
            say(&format!("{info}"));
        }));
        let bound = Duration::from_secs(match number("LOOPGROUP_BOUND") {
            0 => BOUND,
            other => other,
        });
        let bound = patiently(bound);
        let (done, ended) = mpsc::channel();
        let now = Arc::new(Mutex::new("start"));
        let current = Arc::clone(&now);
        // In a thread of its own, whose calls begin here: the counts of the injections are per thread.
        let driver = thread::spawn(move || {
            // The tracer has to be there before the first call; it is, once there is this file.
            if let Some(go) = std::env::var_os("LOOPGROUP_GO") {
                while !Path::new(&go).exists() {
                    // Another process makes it: nothing here could wait for that. Not a yield: spinning is
                    // measured.
                    thread::sleep(Duration::from_millis(1));
                }
            }
            let status = parts(&current);
            let _ = done.send(status);
        });
        let status = match ended.recv_timeout(bound) {
            Ok(status) => status,
            Err(mpsc::RecvTimeoutError::Disconnected) => PANICKED,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                say(&format!("{}: hangs", now.lock().unwrap()));
                exit(HANGS);
            }
        };
        let _ = driver.join();
        let used = cpu_time();
        say(&format!("{} ms of processor time", used.as_millis()));
        exit(if PANIC.load(Ordering::SeqCst) {
            PANICKED
        } else if status == 0 && used > patiently(CPU) {
            SPINS
        } else {
            status
        });
    }

    fn parts(current: &Mutex<&'static str>) -> i32 {
        // Leaks that the injection itself makes: a close that is refused is not made.
        let spilt: usize = number("LOOPGROUP_FAULT_SPILLS");
        let only = std::env::var("LOOPGROUP_PART").ok();
        let chosen: Vec<_> = match &only {
            None => PARTS.to_vec(),
            Some(only) => {
                let all = PARTS.iter().chain(ON_DEMAND);
                all.filter(|(name, _)| name == only).copied().collect()
            }
        };
        assert!(!chosen.is_empty(), "there is no such part");
        // What lives as long as the process: threads for blocking work, the handlers of signals.
        drop(signal::ctrl_c());
        let _ = loopgroup::block_on(unblock(|| ()));
        let mut threads = entries("/proc/self/task");
        let mut status = 0;
        for (name, part) in chosen {
            *current.lock().unwrap() = name;
            let mut descriptors = entries("/proc/self/fd");
            if name == "signal" {
                // What signals take they keep, if they had it not before: a pair, an end for each, and a
                // thread.
                descriptors += 4;
                threads += 1;
            }
            let errors = Errors::default();
            errors.note(part(&errors));
            let verdict = errors.verdict();
            say(&format!(
                "{name}: {}",
                verdict.as_ref().unwrap_or_else(|e| e)
            ));
            if verdict.is_err() {
                status = status.max(WRONG_ERROR);
            }
            let deadline = Instant::now() + patiently(Duration::from_secs(5));
            let back = || {
                (entries("/proc/self/task") <= threads)
                    && (entries("/proc/self/fd") <= descriptors + spilt)
            };
            while !back() {
                if Instant::now() > deadline {
                    say(&format!(
                        "{name}: {} threads instead of {threads}, {} descriptors instead of {descriptors}",
                        entries("/proc/self/task"),
                        entries("/proc/self/fd")
                    ));
                    status = LEAKS;
                    break;
                }
                // Nobody announces the end of a thread of the system. Not a yield: spinning is measured.
                thread::sleep(Duration::from_millis(1));
            }
        }
        status
    }

    /// What went wrong in a part, on all its sides.
    #[derive(Clone, Default)]
    struct Errors(Arc<Mutex<Vec<io::Error>>>);

    impl Errors {
        fn note<T>(&self, result: io::Result<T>) -> Option<T> {
            result.map_err(|e| self.0.lock().unwrap().push(e)).ok()
        }

        /// What happened, as an error if it is none that was asked for.
        ///
        /// One side's error is the other side's early end: it is enough that one of them tells the cause.
        fn verdict(&self) -> Result<String, String> {
            let errors = self.0.lock().unwrap();
            if errors.is_empty() {
                return Ok("ok".to_owned());
            }
            let text = errors.iter().map(|e| format!("{:?}: {e}", e.kind()));
            let text = text.collect::<Vec<_>>().join("; ");
            let expected = injected().is_some_and(|fault| errors.iter().any(|e| tells(e, &fault)));
            if expected {
                Ok(format!("error {text}"))
            } else {
                Err(format!("wrong error {text}"))
            }
        }
    }

    fn injected() -> Option<io::Error> {
        let name = std::env::var("LOOPGROUP_FAULT").ok()?;
        if name == "PREMATURE" {
            // No error of the system: waits that end at once and with nothing.
            return Some(io::Error::other("the selector returns at once"));
        }
        let known = ERRORS.iter().find(|(known, _)| *known == name);
        let (_, errno) = known.unwrap_or_else(|| panic!("{name} is not in the list"));
        Some(io::Error::from_raw_os_error(*errno))
    }

    fn tells(error: &io::Error, fault: &io::Error) -> bool {
        let text = fault.to_string();
        error.raw_os_error() == fault.raw_os_error()
            || error.to_string().contains(&text)
            || (error.kind() == fault.kind() && error.raw_os_error().is_none())
            // The same of a socket, whose `WouldBlock` would be a wait.
            || (fault.kind() == io::ErrorKind::WouldBlock
                && error.to_string().contains("a limit on threads"))
    }

    fn number<T: std::str::FromStr + Default>(name: &str) -> T {
        let text = std::env::var(name).unwrap_or_default();
        text.parse().unwrap_or_default()
    }

    /// Prints a line, whatever is injected: `println!` would panic.
    fn say(text: &str) {
        let mut out = io::stdout().lock();
        for _ in 0..10 {
            if writeln!(out, "{text}").and_then(|()| out.flush()).is_ok() {
                return;
            }
        }
    }

    fn cpu_time() -> Duration {
        // SAFETY: zeroed is a valid rusage, and the call only writes to it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let time = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
        };
        time(usage.ru_utime) + time(usage.ru_stime)
    }

    /// Ends a group, whatever it went through; a loop that failed says why.
    fn end(group: &EventLoopGroup, errors: &Errors) {
        let report: TerminationReport = group.drain(Duration::from_secs(5)).wait();
        for one in report.loops() {
            if let Some(error) = one.error() {
                let text = format!("loop {}: {error}", one.index());
                errors.note::<()>(Err(io::Error::new(error.kind(), text)));
            }
        }
        let ended = report.completed() + report.panicked() + report.cancelled();
        assert_eq!(report.accepted(), ended, "accepted is accounted for");
    }

    /// A part in a group of two loops.
    fn with_group<F>(
        errors: &Errors,
        part: impl FnOnce(EventLoopGroup, Errors) -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = io::Result<()>>,
    {
        run_part(EventLoopGroup::new(2)?, errors, part)
    }

    /// A part in this group.
    fn run_part<F>(
        group: EventLoopGroup,
        errors: &Errors,
        part: impl FnOnce(EventLoopGroup, Errors) -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = io::Result<()>>,
    {
        let part = part(group.clone(), errors.clone());
        let result = group.block_on(timeout(patiently(3 * PATIENCE), part));
        let result = result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        end(&group, errors);
        result
    }

    /// The other side may have been refused what it needs to answer.
    async fn patient<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        timeout(patiently(PATIENCE), future)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    fn check(got: &[u8], wanted: &[u8]) -> io::Result<()> {
        if got == wanted {
            return Ok(());
        }
        Err(io::Error::other("the bytes are others"))
    }

    fn group(errors: &Errors) -> io::Result<()> {
        // As many loops as processors: what asks the system for their number.
        drop(EventLoopGroup::builder().build()?);
        with_group(errors, |group, _| async move {
            group.start()?;
            let (there, here) = (Door::new(), Door::new());
            let (opens, waits) = (there.clone(), here.clone());
            let one = group.spawn_on(0, async move {
                opens.open();
                waits.opened().await;
            });
            let other = group.spawn_on(1, async move {
                there.opened().await;
                here.open();
            });
            one.await?;
            other.await?;
            group.next().submit(|| ()).await?;
            Ok(())
        })
    }

    fn timers(errors: &Errors) -> io::Result<()> {
        timers_in(EventLoopGroup::new(2)?, errors)
    }

    fn precise_timers(errors: &Errors) -> io::Result<()> {
        let builder = EventLoopGroup::builder().loops(2).precise_timers(true);
        timers_in(builder.build()?, errors)
    }

    fn timers_in(group: EventLoopGroup, errors: &Errors) -> io::Result<()> {
        run_part(group, errors, |group, _| async move {
            group
                .spawn(async {
                    let start = Instant::now();
                    let mut ticks = interval(Duration::from_millis(2));
                    for _ in 0..5 {
                        futures::StreamExt::next(&mut ticks).await;
                    }
                    sleep(Duration::from_millis(5)).await;
                    let took = start.elapsed();
                    if took < Duration::from_millis(13) || took > patiently(Duration::from_secs(1))
                    {
                        return Err(io::Error::other(format!("13 ms took {took:?}")));
                    }
                    Ok(())
                })
                .await??;
            group
                .next()
                .schedule(Duration::from_millis(2), || ())
                .await?;
            Ok(())
        })
    }

    /// Sends everything back, and ends when the other side does.
    async fn echo(stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut buf = [0; 512];
        let mut stream = stream;
        loop {
            let read = stream.read(&mut buf).await?;
            if read == 0 {
                return stream.close().await;
            }
            stream.write_all(&buf[..read]).await?;
        }
    }

    async fn ask(mut stream: TcpStream) -> io::Result<()> {
        let mut buf = [0; 5];
        for _ in 0..3 {
            stream.write_all(b"hello").await?;
            stream.read_exact(&mut buf).await?;
            check(&buf, b"hello")?;
        }
        let (read, mut write) = stream.into_split();
        write.close().await?;
        let mut stream = read
            .reunite(write)
            .map_err(|_| io::Error::other("two halves of one stream"))?;
        let read = stream.read(&mut buf).await?;
        check(&buf[..read], b"")
    }

    fn tcp(errors: &Errors) -> io::Result<()> {
        with_group(errors, |group, errors| async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let side = errors.clone();
            let server = group.spawn_on(1, async move {
                let accepted = patient(listener.accept()).await;
                if let Some((stream, _)) = side.note(accepted) {
                    side.note(patient(echo(stream)).await);
                }
            });
            let client = group.spawn_on(
                0,
                async move { ask(TcpStream::connect(address).await?).await },
            );
            // Noted before the other side is waited for, which knows of it by the silence alone.
            let asked = client.await.map_err(io::Error::from);
            errors.note(asked.and_then(|asked| asked));
            server.await?;
            Ok(())
        })
    }

    fn options(errors: &Errors) -> io::Result<()> {
        with_group(errors, |_, _| async move {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            let listener = TcpListener::from_std(listener)?;
            let (near, far) =
                futures::join!(TcpStream::connect(address), patient(listener.accept()));
            let (near, (mut far, _)) = (near?, far?);
            near.set_ttl(64)?;
            near.ttl()?;
            near.set_linger(None)?;
            near.linger()?;
            near.set_keepalive(Some(Duration::from_secs(60)))?;
            near.keepalive()?;
            near.set_recv_buffer_size(65536)?;
            near.send_buffer_size()?;
            near.peer_addr()?;
            near.local_addr()?;
            let mut near = TcpStream::from_std(near.into_std())?;
            // Large enough for a vectored call of the system: small ones are sent as one.
            let sent = near
                .write_vectored(&[IoSlice::new(&[b'a'; 500]), IoSlice::new(&[b'b'; 500])])
                .await?;
            let mut byte = [0];
            far.peek(&mut byte).await?;
            let (mut one, mut two) = ([0; 1], [0; 3]);
            let read = far
                .read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)])
                .await?;
            drop(listener.into_std());
            check(&[(sent / 250) as u8, read as u8], &[4, 4])
        })
    }

    fn udp(errors: &Errors) -> io::Result<()> {
        with_group(errors, |group, errors| async move {
            let one = UdpSocket::bind("127.0.0.1:0").await?;
            let two = UdpSocket::bind("127.0.0.1:0").await?;
            let address = one.local_addr()?;
            two.connect(address).await?;
            let side = errors.clone();
            let answer = group.spawn(async move {
                side.note(
                    patient(async {
                        let mut buf = [0; 16];
                        let (read, from) = one.recv_from(&mut buf).await?;
                        one.send_to(&buf[..read], from).await
                    })
                    .await,
                );
            });
            let asked = patient(async {
                two.send(b"there").await?;
                let mut buf = [0; 16];
                let read = two.recv(&mut buf).await?;
                check(&buf[..read], b"there")
            })
            .await;
            errors.note(asked);
            answer.await?;
            Ok(())
        })
    }

    fn unix(errors: &Errors) -> io::Result<()> {
        with_group(errors, |group, errors| async move {
            let path = TempPath::new("driver");
            let listener = UnixListener::bind(&path.0)?;
            let side = errors.clone();
            let server = group.spawn(async move {
                let accepted = patient(listener.accept()).await;
                if let Some((mut stream, _)) = side.note(accepted) {
                    side.note(stream.peer_cred());
                    side.note(patient(stream.write_all(b"unix")).await);
                }
            });
            let result = async {
                let mut stream = UnixStream::connect(&path.0).await?;
                let mut buf = [0; 4];
                patient(stream.read_exact(&mut buf)).await?;
                check(&buf, b"unix")
            };
            errors.note(result.await);
            server.await?;
            let (one, two) = UnixDatagram::pair()?;
            one.send(b"datagram").await?;
            let mut buf = [0; 16];
            let read = two.recv(&mut buf).await?;
            check(&buf[..read], b"datagram")?;
            let (mut one, two) = UnixStream::pair()?;
            one.write_all(b"pair").await?;
            drop(one);
            let mut text = String::new();
            (&two).read_to_string(&mut text).await?;
            check(text.as_bytes(), b"pair")
        })
    }

    fn registered(errors: &Errors) -> io::Result<()> {
        with_group(errors, |group, errors| async move {
            let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
            let ours = Registered::new(ours)?;
            let side = errors.clone();
            let reading = group.spawn(async move {
                let read = patient(async {
                    loop {
                        ours.readable().await?;
                        let mut buf = [0; 8];
                        match ours.try_io(Interest::READABLE, |mut end| end.read(&mut buf)) {
                            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                            other => return other,
                        }
                    }
                });
                side.note(read.await);
            });
            errors.note(theirs.write_all(b"x"));
            drop(theirs);
            reading.await?;
            Ok(())
        })
    }

    /// Three clients of a server; errors of its accepts are its own business, as long as it serves.
    fn served(errors: &Errors, workers: &EventLoopGroup, server: Server) -> io::Result<()> {
        let side = errors.clone();
        let handle = server.serve(move |stream, _| {
            let side = side.clone();
            async move {
                side.note(patient(echo(stream)).await);
            }
        })?;
        let address = handle.local_addr();
        let side = errors.clone();
        workers.block_on(async move {
            for _ in 0..3 {
                let one = async { ask(TcpStream::connect(address).await?).await };
                side.note(patient(one).await);
            }
            handle.stop();
            let report = handle.await;
            if report.accepted() != report.completed() + report.aborted() + report.rejected() {
                return Err(io::Error::other(format!("does not add up: {report:?}")));
            }
            match report.last_accept_error() {
                // Its own business, unless somebody was not served for it.
                Some(error) if !side.0.lock().unwrap().is_empty() => {
                    Err(io::Error::new(error.kind(), error.to_string()))
                }
                _ => Ok(()),
            }
        })
    }

    fn server(errors: &Errors) -> io::Result<()> {
        let boss = EventLoopGroup::new(1)?;
        let workers = EventLoopGroup::new(2)?;
        let bound = Server::new("127.0.0.1:0")?;
        let result = served(errors, &workers, bound.boss(&boss).workers(&workers));
        end(&boss, errors);
        end(&workers, errors);
        result
    }

    fn shared_port(errors: &Errors) -> io::Result<()> {
        let workers = EventLoopGroup::new(2)?;
        let bound = Server::new("127.0.0.1:0")?;
        let server = bound.workers(&workers).reuse_port(true).max_connections(2);
        let result = served(errors, &workers, server);
        end(&workers, errors);
        result
    }

    fn migration(errors: &Errors) -> io::Result<()> {
        with_group(errors, |group, _| async move {
            let (mut one, mut two) = UnixStream::pair()?;
            let mut buf = [0; 1];
            for ev in group.loops() {
                one.migrate_to(ev).await?;
                two.write_all(b"m").await?;
                one.read_exact(&mut buf).await?;
            }
            check(&buf, b"m")
        })
    }

    fn signals(errors: &Errors) -> io::Result<()> {
        if std::env::var("LOOPGROUP_FAULT_CALL").is_ok_and(|call| call == "sendto") {
            say("signal: left out, what is refused is how the handler tells us");
            return Ok(());
        }
        with_group(errors, |_, _| async move {
            let both = signal::shutdown();
            let mut one = signal::ctrl_c();
            match futures::poll!(&mut one) {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    // SAFETY: there is a handler, or the poll would have said that there is none.
                    unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
                    one.await?;
                }
            }
            both.await
        })
    }

    fn blocking(errors: &Errors) -> io::Result<()> {
        let group = BlockingGroup::new(2)?;
        let jobs = [(); 3].map(|()| group.spawn(|| thread::current().id()));
        for job in jobs {
            if let Err(error) = loopgroup::block_on(job) {
                errors.note::<()>(Err(error.into()));
            }
        }
        let report = group.drain(Duration::from_secs(5)).wait();
        assert_eq!(report.accepted(), report.completed(), "{report}");
        Ok(())
    }

    fn run(errors: &Errors) -> io::Result<()> {
        let side = errors.clone();
        loopgroup::run(async move {
            let (mut one, mut two) = UnixStream::pair()?;
            let reading = spawn_local(async move {
                let mut buf = [0; 3];
                side.note(patient(two.read_exact(&mut buf)).await);
            });
            sleep(Duration::from_millis(1)).await;
            one.write_all(b"run").await?;
            reading.await?;
            Ok(())
        })?
    }

    /// Sleeps while the wall clock jumps (libfaketime reads the offset from a file): nobody may notice.
    fn clock(errors: &Errors) -> io::Result<()> {
        let file = std::env::var_os("FAKETIME_TIMESTAMP_FILE").expect("a clock that can be moved");
        let day = Duration::from_secs(24 * 60 * 60);
        with_group(errors, |group, _| async move {
            for jump in ["+400d", "-400d", "+0d"] {
                let (file, before) = (file.clone(), SystemTime::now());
                let slept = group.spawn(async move {
                    let start = Instant::now();
                    let sleeps = async {
                        let mut ticks = interval(Duration::from_millis(10));
                        for _ in 0..6 {
                            futures::StreamExt::next(&mut ticks).await;
                        }
                        sleep(Duration::from_millis(50)).await;
                        start.elapsed()
                    };
                    let moves = async {
                        sleep(Duration::from_millis(20)).await;
                        std::fs::write(file, jump)
                    };
                    let (slept, moved) = futures::join!(sleeps, moves);
                    moved.map(|()| slept)
                });
                let slept = slept.await??;
                let now = SystemTime::now();
                let jumped = now.duration_since(before).unwrap_or_else(|e| e.duration());
                if jumped < 300 * day {
                    return Err(io::Error::other("the wall clock did not jump"));
                }
                if slept < Duration::from_millis(100) || slept > Duration::from_millis(900) {
                    return Err(io::Error::other(format!("100 ms took {slept:?}")));
                }
            }
            Ok(())
        })
    }

    /// What a naive server does when it is out of descriptors.
    fn spins(_: &Errors) -> io::Result<()> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let _client = std::net::TcpStream::connect(listener.local_addr()?)?;
        loop {
            match listener.accept() {
                Ok(_) => return Ok(()),
                Err(error) if cpu_time() > CPU + CPU / 4 => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Forgets what it already had when the rest is refused.
    fn leaks(_: &Errors) -> io::Result<()> {
        let (one, _two) = std::os::unix::net::UnixStream::pair()?;
        EventLoopGroup::new(1).map(drop).inspect_err(|_| {
            let _forgotten = one.into_raw_fd();
        })
    }

    fn hangs(_: &Errors) -> io::Result<()> {
        EventLoopGroup::new(1).map(drop).inspect_err(|_| {
            Door::new().pass();
        })
    }

    fn panics(_: &Errors) -> io::Result<()> {
        drop(EventLoopGroup::new(1).unwrap());
        Ok(())
    }

    fn hides(_: &Errors) -> io::Result<()> {
        let made = EventLoopGroup::new(1).map(drop);
        made.map_err(|_| io::Error::other("something went wrong"))
    }
}

//! In which order, and when, the addresses of a connect are tried.
//!
//! - One address is one attempt, and its error is the system's own.
//! - A list that the caller gives is tried in its order, one address after the other: the first may be
//!   preferred for a reason. Each attempt but the last has a time limit.
//! - The addresses of a host name are raced, as RFC 8305 (Happy Eyeballs) says: the families take turns,
//!   beginning with the family that the system's resolver prefers; the next attempt begins when the last
//!   one fails, and after [`ATTEMPT_DELAY`] at the latest; the first success wins, and the others are
//!   dropped.
//! - Delays are timers of the loop: they follow virtual time. Where there are no timers, attempts only
//!   follow each other.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use crate::net::addr::{Target, ToSocketAddrs, look_up, no_address};
use crate::net::address_error::ConnectError;
use crate::time::here::has_timers;
use crate::time::sleep::sleep;

/// The time limit for each address of a list but the last.
const LIST_LIMIT: Duration = Duration::from_secs(5);
/// How long an attempt has to succeed before the next one begins beside it (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to the first address that succeeds.
pub(super) async fn connect<A, R, F>(
    address: &A,
    mut attempt: impl FnMut(SocketAddr) -> F,
) -> io::Result<R>
where
    A: ToSocketAddrs + ?Sized,
    F: Future<Output = io::Result<R>>,
{
    match address.target().0 {
        Target::Known(addresses) if addresses.len() == 1 => attempt(addresses[0]).await,
        // Boxed: the future of a connect to one address has no room for the others.
        several => Box::pin(connect_to_any(several, attempt)).await,
    }
}

async fn connect_to_any<R, F>(target: Target, attempt: impl FnMut(SocketAddr) -> F) -> io::Result<R>
where
    F: Future<Output = io::Result<R>>,
{
    let (name, outcome) = match target {
        Target::Known(addresses) if addresses.is_empty() => {
            return Err(no_address("an empty list"));
        }
        Target::Known(addresses) => (None, in_turn(addresses, attempt).await),
        Target::Name(name) => {
            let addresses = look_up(&name).await?;
            (Some(name), race(interleaved(addresses), attempt).await)
        }
    };
    outcome.map_err(|attempts| ConnectError::from_attempts(name, attempts))
}

/// Connects with a time limit for all of it, the look-up included.
pub(super) async fn connect_within<A, R, F>(
    limit: Duration,
    address: &A,
    attempt: impl FnMut(SocketAddr) -> F,
) -> io::Result<R>
where
    A: ToSocketAddrs + ?Sized,
    F: Future<Output = io::Result<R>>,
{
    if limit.is_zero() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a connect timeout of zero cannot be met: use a longer one, or connect without",
        ));
    }
    let connected = with_limit(limit, connect(address, attempt)).await;
    connected.unwrap_or_else(|| {
        let text = format!("cannot connect to {} within {limit:?}", address.target().0);
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    })
}

/// The addresses that were tried, each with its error.
type Attempts = Vec<(SocketAddr, io::Error)>;

/// Tries one address after the other, with a time limit for each but the last.
async fn in_turn<R, F>(
    addresses: Vec<SocketAddr>,
    mut attempt: impl FnMut(SocketAddr) -> F,
) -> Result<R, Attempts>
where
    F: Future<Output = io::Result<R>>,
{
    let mut failed = Vec::new();
    let last = addresses.len() - 1;
    for (place, address) in addresses.into_iter().enumerate() {
        let outcome = if place == last {
            attempt(address).await
        } else {
            let limited = with_limit(LIST_LIMIT, attempt(address)).await;
            limited.unwrap_or_else(|| {
                let text = format!("no answer within {LIST_LIMIT:?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            })
        };
        match outcome {
            Ok(done) => return Ok(done),
            Err(error) => failed.push((address, error)),
        }
    }
    Err(failed)
}

/// Orders addresses so that the families take turns; the order within a family stays.
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else {
        return addresses;
    };
    let first_is_v6 = first.is_ipv6();
    let (preferred, other): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let mut ordered = Vec::with_capacity(preferred.len() + other.len());
    let (mut preferred, mut other) = (preferred.into_iter(), other.into_iter());
    while ordered.len() < ordered.capacity() {
        ordered.extend(preferred.next());
        ordered.extend(other.next());
    }
    ordered
}

/// Races attempts against each other, each with a head start of [`ATTEMPT_DELAY`] before the next.
async fn race<R, F>(
    addresses: Vec<SocketAddr>,
    mut attempt: impl FnMut(SocketAddr) -> F,
) -> Result<R, Attempts>
where
    F: Future<Output = io::Result<R>>,
{
    let mut waiting = addresses.into_iter().enumerate();
    let mut running: Vec<(usize, SocketAddr, Pin<Box<F>>)> = Vec::new();
    let mut failed: Vec<(usize, SocketAddr, io::Error)> = Vec::new();
    let mut head_start = sleep(ATTEMPT_DELAY);
    let outcome = poll_fn(|cx| {
        loop {
            let failed_before = failed.len();
            let mut place = 0;
            while let Some((_, _, attempt)) = running.get_mut(place) {
                match attempt.as_mut().poll(cx) {
                    Poll::Ready(Ok(done)) => return Poll::Ready(Some(done)),
                    Poll::Ready(Err(error)) => {
                        let (index, address, _) = running.remove(place);
                        failed.push((index, address, error));
                    }
                    Poll::Pending => place += 1,
                }
            }
            if waiting.len() == 0 {
                return match running.is_empty() {
                    true => Poll::Ready(None),
                    false => Poll::Pending,
                };
            }
            let begins = running.is_empty()
                || failed.len() > failed_before
                || (has_timers() && pin!(&mut head_start).poll(cx).is_ready());
            if !begins {
                return Poll::Pending;
            }
            if let Some((index, address)) = waiting.next() {
                running.push((index, address, Box::pin(attempt(address))));
                head_start = sleep(ATTEMPT_DELAY);
            }
        }
    })
    .await;
    outcome.ok_or_else(|| {
        failed.sort_by_key(|&(index, ..)| index);
        let named = |(_, address, error)| (address, error);
        failed.into_iter().map(named).collect()
    })
}

/// Awaits a future for at most `limit`; without a limit where there are no timers.
async fn with_limit<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let (mut future, mut pause) = (pin!(future), sleep(limit));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if has_timers() => pin!(&mut pause).poll(cx).map(|()| None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Arc, Mutex};
    use crate::testing::TestLoop;
    use crate::time::here::now;
    use Fate::{Answers, Refuses, Silent};

    fn v4(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 1))
    }

    fn v6(last: u16) -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, last], 1))
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// What happens to an address that is tried, and after which time.
    #[derive(Clone, Copy)]
    enum Fate {
        Answers(Duration),
        Refuses(Duration),
        Silent,
    }

    /// When each attempt began, and which of them were dropped without an end.
    type Begun = Vec<(SocketAddr, Duration)>;
    type Seen = Arc<Mutex<(Begun, Vec<SocketAddr>)>>;

    /// Adds its address to those that were cancelled, unless it is disarmed.
    struct CancelNote(SocketAddr, Seen, bool);

    impl Drop for CancelNote {
        fn drop(&mut self) {
            if self.2 {
                self.1.lock().1.push(self.0);
            }
        }
    }

    /// Races the addresses in virtual time; returns the winner or the errors, and the time that it took.
    fn raced(
        fates: &[(SocketAddr, Fate)],
    ) -> (
        Result<SocketAddr, Attempts>,
        Duration,
        Begun,
        Vec<SocketAddr>,
    ) {
        let seen = Seen::default();
        let notes = Arc::clone(&seen);
        let (outcome, took) = TestLoop::new().block_on(async move {
            let start = now();
            let attempt = |address: SocketAddr| {
                let notes = Arc::clone(&notes);
                async move {
                    notes.lock().0.push((address, now() - start));
                    let mut note = CancelNote(address, notes, true);
                    let fate = fates.iter().find(|(one, _)| *one == address).unwrap().1;
                    let outcome = match fate {
                        Fate::Answers(after) => {
                            sleep(after).await;
                            Ok(address)
                        }
                        Fate::Refuses(after) => {
                            sleep(after).await;
                            Err(io::ErrorKind::ConnectionRefused.into())
                        }
                        Fate::Silent => std::future::pending().await,
                    };
                    note.2 = false;
                    outcome
                }
            };
            let addresses = fates.iter().map(|(address, _)| *address).collect();
            (race(interleaved(addresses), attempt).await, now() - start)
        });
        let (begun, cancelled) = std::mem::take(&mut *seen.lock());
        (outcome, took, begun, cancelled)
    }

    #[test]
    fn families_take_turns_and_the_first_family_begins() {
        let mixed = vec![v6(1), v6(2), v6(3), v4(1), v4(2)];
        assert_eq!(interleaved(mixed), [v6(1), v4(1), v6(2), v4(2), v6(3)]);
        let mixed = vec![v4(1), v6(1), v6(2), v6(3)];
        assert_eq!(interleaved(mixed), [v4(1), v6(1), v6(2), v6(3)]);
        assert_eq!(interleaved(Vec::new()), []);
    }

    #[test]
    fn a_silent_address_delays_the_next_by_a_quarter_of_a_second_and_is_dropped_when_that_wins() {
        let fates = [
            (v6(1), Silent),
            (v4(1), Answers(ms(20))),
            (v4(2), Answers(ms(1))),
        ];
        let (winner, took, begun, cancelled) = raced(&fates);
        assert_eq!(winner.unwrap(), v4(1));
        assert_eq!(took, ms(270));
        assert_eq!(begun, [(v6(1), ms(0)), (v4(1), ms(250))]);
        assert_eq!(cancelled, [v6(1)]);
    }

    #[test]
    fn a_refusal_starts_the_next_attempt_at_once() {
        let fates = [
            (v6(1), Refuses(ms(10))),
            (v4(1), Silent),
            (v6(2), Answers(ms(5))),
        ];
        let (winner, took, begun, cancelled) = raced(&fates);
        assert_eq!(winner.unwrap(), v6(2));
        assert_eq!(took, ms(265));
        let expected = [(v6(1), ms(0)), (v4(1), ms(10)), (v6(2), ms(260))];
        assert_eq!(begun, expected);
        assert_eq!(cancelled, [v4(1)]);
    }

    #[test]
    fn a_slow_first_address_still_wins_over_a_slower_second() {
        let fates = [(v6(1), Answers(ms(300))), (v4(1), Answers(ms(100)))];
        let (winner, took, begun, cancelled) = raced(&fates);
        assert_eq!(winner.unwrap(), v6(1));
        assert_eq!((took, begun.len()), (ms(300), 2));
        assert_eq!(cancelled, [v4(1)]);
    }

    #[test]
    fn if_all_fail_every_error_is_there_in_the_order_of_the_attempts() {
        let fates = [
            (v6(1), Refuses(ms(1_000))),
            (v6(2), Refuses(ms(0))),
            (v4(1), Refuses(ms(30))),
        ];
        let (failed, took, _, cancelled) = raced(&fates);
        let failed = failed.unwrap_err();
        let addresses: Vec<_> = failed.iter().map(|(address, _)| *address).collect();
        assert_eq!(addresses, [v6(1), v4(1), v6(2)]);
        assert_eq!(took, ms(1_000));
        assert_eq!(cancelled, []);
        let error = ConnectError::from_attempts(Some("host:1".into()), failed);
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let text = error.to_string();
        let beginning = "cannot connect to \"host:1\": [::1]:1: connection refused; 127.0.0.1:1: ";
        assert!(text.starts_with(beginning), "{text}");
    }

    #[test]
    fn a_list_is_tried_in_its_order_with_five_seconds_for_each_but_the_last() {
        let (outcome, took) = TestLoop::new().block_on(async {
            let start = now();
            let attempt = |address: SocketAddr| async move {
                if address == v4(3) {
                    sleep(Duration::from_secs(60)).await;
                    return Ok(address);
                }
                std::future::pending().await
            };
            let outcome = connect(&[v4(1), v4(2), v4(3)][..], attempt).await;
            (outcome, now() - start)
        });
        assert_eq!(outcome.unwrap(), v4(3));
        assert_eq!(took, Duration::from_secs(70));
    }

    #[test]
    fn a_limit_names_what_did_not_answer() {
        let silent = |_| std::future::pending::<io::Result<()>>();
        let cases: [(&[SocketAddr], &str); 2] = [
            (&[v4(1)], "cannot connect to 127.0.0.1:1 within 2s"),
            (
                &[v4(1), v6(1)],
                "cannot connect to 127.0.0.1:1 or [::1]:1 within 2s",
            ),
        ];
        for (addresses, text) in cases {
            let error = TestLoop::new()
                .block_on(connect_within(ms(2_000), addresses, silent))
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(error.to_string(), text);
        }
    }
    #[test]
    fn a_silent_listener_loses_to_one_that_answers_and_its_socket_is_closed() {
        use crate::net::{TcpListener, TcpStream};
        use socket2::{Domain, Socket, Type};

        let connected = crate::run(async {
            let full = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
            full.listen(0)?; // one connection fills it, and the next gets no answer
            let silent = full.local_addr()?.as_socket().expect("an IP address");
            let _first = std::net::TcpStream::connect(silent)?;
            let answers = TcpListener::bind("127.0.0.1:0").await?;
            let address = answers.local_addr()?;
            let race = race(vec![silent, address], TcpStream::connect);
            let raced = with_limit(Duration::from_secs(30), race).await;
            let raced = raced.expect("the system would try for two minutes");
            let stream = raced.map_err(|failed| ConnectError::from_attempts(None, failed))?;
            assert_eq!(stream.peer_addr()?, address);
            let here = crate::EventLoop::current().expect("on a loop");
            // A connection that was made at once is not registered.
            assert!(here.registered_channels() <= 1, "the loser is closed");
            io::Result::Ok(())
        });
        connected.unwrap().unwrap();
    }
}

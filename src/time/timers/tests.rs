//! The timers of one thread, step by step.

use super::*;
use crate::clock::VirtualClock;
use crate::sync::Arc;
use crate::time::block_on::Letterbox;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Timers that belong to no thread.
fn timers() -> Timers {
    Timers::new(HomeId::register(Weak::<Letterbox>::new()), Clock::System)
}

fn noop() -> Waker {
    Waker::noop().clone()
}

fn due(timers: &Timers, now: Instant, limit: usize) -> usize {
    let mut woken = Vec::new();
    timers.collect_due(now, limit, &mut woken);
    woken.len()
}

#[test]
fn no_more_timers_are_collected_than_the_limit() {
    let timers = timers();
    for _ in 0..5 {
        timers.arm(Some(timers.zero), noop(), TimerKind::Sleep);
    }
    let dues = [0, 2, 2, 2].map(|limit| due(&timers, timers.zero, limit));
    assert_eq!(dues, [0, 2, 2, 1]);
    assert!(timers.is_empty());
}

#[test]
fn a_timer_without_deadline_never_fires() {
    let timers = timers();
    timers.arm(None, noop(), TimerKind::Sleep);
    assert_eq!(timers.next_deadline(), None);
    let late = timers.zero + 600 * YEAR;
    timers.arm(Some(late), noop(), TimerKind::Sleep);
    assert_eq!(
        due(&timers, late, 9),
        0,
        "a deadline out of range is never due"
    );
    assert_eq!(timers.clear().len(), 2);
}

#[test]
fn a_deadline_has_passed_once_a_clock_reading_reaches_it() {
    let timers = timers();
    let now = timers.zero + Duration::from_secs(5);
    let past = now - Duration::from_nanos(1);
    assert!(
        !timers.is_over(Some(past), TimerKind::Sleep),
        "no reading has reached it yet"
    );
    assert_eq!(due(&timers, now, 1), 0);
    timers.note(past); // an earlier reading changes nothing
    assert!(
        timers.is_over(Some(past), TimerKind::Sleep) && timers.is_over(Some(now), TimerKind::Sleep)
    );
    assert!(!timers.is_over(Some(now + Duration::from_nanos(1)), TimerKind::Sleep));
    assert!(!timers.is_over(None, TimerKind::Sleep));
    timers.arm(Some(now), noop(), TimerKind::Scheduled);
    assert_eq!(timers.next_deadline(), Some(now));
    assert_eq!(timers.next_deadline_after(now), None);
    assert_eq!(timers.next_deadline_after(past), Some(now));
    assert_eq!(due(&timers, past, 1), 0, "never early");
    assert_eq!(due(&timers, now, 1), 1);
}

#[test]
fn a_test_clock_is_read_each_time_and_the_system_clock_is_not() {
    let clock = Arc::new(VirtualClock::new());
    let home = HomeId::register(Weak::<Letterbox>::new());
    let timers = Timers::new(home, Clock::Virtual(Arc::clone(&clock)));
    let second = clock.now() + Duration::from_secs(1);
    assert!(!timers.is_over(Some(second), TimerKind::Sleep));
    clock.move_to(second);
    assert!(timers.is_over(Some(second), TimerKind::Sleep));
    let timers = self::timers();
    let soon = timers.zero + Duration::from_nanos(1);
    assert!(!timers.is_over(Some(soon), TimerKind::Sleep));
    while timers.read_clock() < soon {}
    assert!(timers.is_over(Some(soon), TimerKind::Sleep));
}

#[test]
fn a_timer_is_checked_reset_and_cancelled_by_its_key() {
    let timers = timers();
    let second = timers.zero + Duration::from_secs(1);
    let (one, other) = (waker_fn::waker_fn(|| ()), waker_fn::waker_fn(|| ()));
    let key = timers.arm(Some(second), one.clone(), TimerKind::Scheduled);
    assert_eq!(timers.state_of(key, &one), Armed::Waiting);
    assert_eq!(timers.state_of(key, &other), Armed::Stale);
    assert!(timers.replace(key, other.clone()).will_wake(&one));
    assert_eq!(timers.state_of(key, &other), Armed::Waiting);
    assert!(timers.scheduled()[0].will_wake(&other));
    assert!(timers.reset(key, second + YEAR));
    assert_eq!(due(&timers, second, 1), 0);
    assert!(
        timers
            .cancel(key)
            .is_some_and(|waker| waker.will_wake(&other))
    );
    assert!(timers.cancel(key).is_none());
    assert!(!timers.reset(key, second));
    assert_eq!(timers.state_of(key, &other), Armed::Fired);
}

#[test]
fn only_scheduled_closures_are_found_as_such() {
    let timers = timers();
    timers.arm(None, noop(), TimerKind::Sleep);
    assert!(timers.scheduled().is_empty());
    timers.arm(None, noop(), TimerKind::Scheduled);
    timers.arm(None, noop(), TimerKind::Scheduled);
    assert_eq!(timers.scheduled().len(), 2);
}

#[test]
fn a_home_is_registered_until_it_is_left() {
    let letters: Arc<Letterbox> = Arc::default();
    letters.open();
    let home = HomeId::register(Arc::<Letterbox>::downgrade(&letters));
    let timers = Timers::new(home, Clock::System);
    assert_eq!(timers.home(), home);
    let key = timers.arm(None, noop(), TimerKind::Sleep);
    home.notify(key, Away::Dropped);
    assert_eq!(letters.drain(), [(key, Away::Dropped)]);
    home.deregister();
    home.notify(key, Away::Reset);
    assert_eq!(letters.drain(), []);
    assert!(!HOMES.lock().contains_key(&home), "its entry is removed");
}

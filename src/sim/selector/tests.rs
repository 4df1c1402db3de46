use super::super::bell::Awake;
use super::*;

#[test]
fn a_bell_wakes_its_loop_once_until_it_is_answered() {
    let awake = Arc::new(Awake::new());
    let bells = [3, 5].map(|number| Bell::new(number, Arc::clone(&awake)));
    let taken = || {
        let mut numbers = Vec::new();
        awake.take(&mut numbers);
        numbers
    };
    bells[1].ring();
    bells[0].clone().ring();
    bells[1].ring();
    assert_eq!(taken(), [5, 3]);
    bells[0].ring();
    assert!(bells[0].was_rung());
    assert_eq!(taken(), [0; 0]);
    bells[0].answer();
    assert!(!bells[0].was_rung());
    bells[0].ring();
    assert_eq!(taken(), [3]);
}

#[test]
fn a_later_report_takes_the_place_of_the_earlier_one() {
    let bell = Bell::new(0, Arc::new(Awake::new()));
    let selector = Selector::new(bell.clone());
    let report = |token, readable| {
        let ready = Ready {
            readable,
            ..Ready::default()
        };
        selector.report(ReadyEvent { token, ready });
    };
    report(1, false);
    report(2, true);
    report(3, true);
    report(1, true);
    selector.forget(2);
    assert!(bell.was_rung() && !selector.is_empty());
    let mut events = Vec::new();
    selector.take(&mut events);
    let seen: Vec<_> = events
        .iter()
        .map(|event| (event.token, event.ready.readable))
        .collect();
    assert_eq!(seen, [(1, true), (3, true)]);
    assert!(selector.is_empty());
    report(2, true);
    assert!(!selector.is_empty());
}

#[test]
fn flags_are_read_as_mio_reads_them() {
    let error = Polled {
        error: true,
        ..Polled::default()
    };
    assert!(error.ready().write_closed && error.ready().error);
    let hung_up = Polled {
        hung_up: true,
        ..Polled::default()
    };
    assert!(hung_up.ready().read_closed && hung_up.ready().write_closed);
    assert!(!hung_up.ready().readable && !hung_up.ready().writable);
}

use super::*;

/// One operation: `put a 0-1`; `put a 0-?`, with an unknown outcome; `get - 2-3`, of no value.
pub(super) fn operation(text: &str) -> Operation {
    let [verb, value, times] = text.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{text}");
    };
    let (invoked, returned) = times.split_once('-').unwrap();
    let at = |time: &str| time.parse().ok().map(Duration::from_millis);
    Operation {
        key: "key".to_string(),
        action: match verb {
            "put" => Action::Put(value.to_string()),
            _ => Action::Get(Some(value.to_string()).filter(|value| value != "-")),
        },
        invoked: at(invoked).unwrap(),
        returned: at(returned),
    }
}

fn check_all(texts: &str) -> Result<(), String> {
    check(&texts.split(", ").map(operation).collect::<Vec<_>>())
}

#[track_caller]
fn fails(texts: &str, why: &str) {
    let error = check_all(texts).unwrap_err();
    assert!(error.contains(why), "{error}");
}

#[test]
fn one_after_the_other() {
    check_all("get - 0-1, put a 2-3, get a 4-5, put b 6-7, get b 8-9").unwrap();
}

#[test]
fn a_read_beside_a_write_sees_either() {
    check_all("put a 0-1, put b 2-9, get a 3-4, get b 5-6, get b 7-8").unwrap();
    fails("put a 0-1, put b 2-9, get b 3-4, get a 5-6", "each older");
}

#[test]
fn a_stale_read() {
    fails("put a 0-1, put b 2-3, get a 4-5", "each older");
}

#[test]
fn a_lost_write() {
    fails("put a 0-1, get - 2-3", "each older");
}

#[test]
fn a_value_of_nowhere_and_one_of_the_future() {
    fails("get a 0-1", "never written");
    fails("get a 0-1, put a 2-3", "before it was written");
    fails("put a 0-1, put a 2-3", "twice");
}

#[test]
fn an_unknown_write_takes_effect_late_or_never_and_once() {
    check_all("put a 0-?, get - 1-2, put b 3-4, get b 5-6").unwrap();
    check_all("put a 0-?, put b 3-4, get b 5-6, get a 7-8").unwrap();
    fails(
        "put a 0-?, get a 1-2, put b 3-4, get b 5-6, get a 7-8",
        "each older",
    );
}

#[test]
fn keys_are_apart() {
    let other = Operation {
        key: "other".to_string(),
        ..operation("get - 4-5")
    };
    check(&[operation("put a 0-1"), other, operation("get a 6-7")]).unwrap();
}

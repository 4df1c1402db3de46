//! The check beside a search through all orders.

use super::tests::operation;
use super::*;

/// By trial: does some order explain the rest, when the register has this value?
fn explained(rest: &[Operation], register: Option<&str>) -> bool {
    let end = |one: &Operation| one.returned.unwrap_or(Duration::MAX);
    rest.iter().all(|one| one.returned.is_none())
        || (0..rest.len()).any(|next| {
            let one = &rest[next];
            let others = [&rest[..next], &rest[next + 1..]].concat();
            others.iter().all(|other| end(other) >= one.invoked)
                && match &one.action {
                    Action::Put(value) => explained(&others, Some(value)),
                    Action::Get(value) => {
                        value.as_deref() == register && explained(&others, register)
                    }
                }
        })
}

#[test]
fn agrees_with_trying_every_order() {
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut good = 0;
    for _ in 0..20_000 {
        let mut history = Vec::new();
        for value in ["a", "b", "c"] {
            let (invoked, lasts) = (random(12), random(8));
            let returned = Some(invoked + lasts).filter(|_| lasts < 6);
            let returned = returned.map_or("?".to_string(), |time| time.to_string());
            history.push(operation(&format!("put {value} {invoked}-{returned}")));
        }
        for _ in 0..3 {
            let (value, invoked) = (["-", "a", "b", "c"][random(4) as usize], random(16));
            let returned = invoked + random(4);
            history.push(operation(&format!("get {value} {invoked}-{returned}")));
        }
        let expected = explained(&history, None);
        assert_eq!(check(&history).is_ok(), expected, "{history:#?}");
        good += u32::from(expected);
    }
    assert!(
        (2_000..18_000).contains(&good),
        "{good} of 20,000 are of little use"
    );
}

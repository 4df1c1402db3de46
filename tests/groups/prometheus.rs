//! The text for Prometheus is one that a strict parser takes, and says what the metrics say.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream as Client;
use std::thread;

use loopgroup::net::Server;
use loopgroup::{EventLoopGroup, Prometheus, block_on, yield_now};

use crate::util::{LONG, eventually, group, ms, within};

/// A sample: its name, its labels in order, its value.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }
}

/// Samples of one name, and the type of it.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<Sample>,
}

fn is_name(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|one| one.is_ascii_lowercase())
        && text
            .chars()
            .all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_')
}

/// Reads `name="value",...}` up to the brace; returns the rest.
fn labels(mut text: &str) -> (Vec<(String, String)>, &str) {
    let mut all = Vec::new();
    loop {
        let (name, rest) = text.split_once("=\"").expect("a label has a value");
        assert!(is_name(name), "{name:?}");
        let (mut value, mut letters) = (String::new(), rest.char_indices());
        let end = loop {
            match letters.next().expect("a value ends with a quote") {
                (end, '"') => break end,
                (_, '\\') => value.push(match letters.next() {
                    Some((_, '\\')) => '\\',
                    Some((_, '"')) => '"',
                    Some((_, 'n')) => '\n',
                    other => panic!("{other:?} is no escape"),
                }),
                (_, letter) => value.push(letter),
            }
        };
        all.push((name.to_owned(), value));
        let rest = &rest[end + 1..];
        match rest.strip_prefix(',') {
            Some(rest) => text = rest,
            None => {
                return (
                    all,
                    rest.strip_prefix('}').expect("a brace ends the labels"),
                );
            }
        }
    }
}

/// Parses a text as strictly as the rules of the format and of its names allow.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut helped = String::new();
    assert!(text.ends_with('\n') && !text.contains("\n\n"), "{text}");
    for line in text.strip_suffix('\n').unwrap().split('\n') {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(is_name(name) && name.starts_with("loopgroup_"), "{line}");
            assert!(!words.is_empty() && !words.contains('\\'), "{line}");
            helped = name.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, helped, "the help comes right before");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            let family = Family {
                kind: kind.to_owned(),
                samples: Vec::new(),
            };
            let before = families.insert(name.to_owned(), family);
            assert!(before.is_none(), "{name} has two types");
            current = name.to_owned();
        } else {
            let (name, rest) = line.split_once('{').expect("every sample has labels");
            let (labels, value) = labels(rest);
            let value: f64 = value.strip_prefix(' ').unwrap().parse().unwrap();
            assert!(value >= 0.0 && value.is_finite(), "{line}");
            let family = families.get_mut(&current).expect("the type comes first");
            let belongs = match &*family.kind {
                "histogram" => ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|suffix| name.strip_suffix(suffix) == Some(&current)),
                _ => name == current,
            };
            assert!(belongs, "{name} is between the samples of {current}");
            family.samples.push(Sample {
                name: name.to_owned(),
                labels,
                value,
            });
        }
    }
    families
        .iter()
        .for_each(|(name, family)| check(name, family));
    families
}

/// Checks that series are unique, and that histograms add up.
fn check(name: &str, family: &Family) {
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        labels.sort();
        let names: BTreeSet<_> = labels.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), labels.len(), "a label twice: {sample:?}");
        assert!(
            seen.insert((&sample.name, labels.clone())),
            "{sample:?} twice"
        );
    }
    assert!(
        !family.samples.is_empty(),
        "{name} has a type and no samples"
    );
    if family.kind != "histogram" {
        return;
    }
    type Series = (Vec<(f64, f64)>, Option<f64>, Option<f64>);
    let mut series: BTreeMap<_, Series> = BTreeMap::new();
    for sample in &family.samples {
        let of = (
            sample.label("group").unwrap(),
            sample.label("loop").unwrap(),
        );
        let (buckets, sum, count) = series.entry(of).or_default();
        match sample.label("le") {
            Some("+Inf") => buckets.push((f64::INFINITY, sample.value)),
            Some(le) => buckets.push((le.parse().unwrap(), sample.value)),
            None if sample.name.ends_with("_sum") => *sum = Some(sample.value),
            None => *count = Some(sample.value),
        }
    }
    for (buckets, sum, count) in series.values() {
        assert_eq!(buckets.len(), 16);
        assert!(
            buckets.windows(2).all(|two| two[0].0 < two[1].0),
            "{buckets:?}"
        );
        assert!(
            buckets.windows(2).all(|two| two[0].1 <= two[1].1),
            "{buckets:?}"
        );
        assert_eq!(buckets.last().unwrap().1, count.unwrap(), "{name}");
        assert!(sum.is_some());
    }
}

/// The value of a series, by the labels that it has at least.
#[track_caller]
fn value(families: &BTreeMap<String, Family>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let family = name.trim_end_matches("_bucket").trim_end_matches("_count");
    let samples = &families[family].samples;
    let fits = |sample: &&Sample| {
        sample.name == name
            && labels
                .iter()
                .all(|(label, value)| sample.label(label) == Some(value))
    };
    let found: Vec<_> = samples.iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
    found[0].value
}

#[test]
fn the_text_says_what_the_metrics_say() {
    within(|| {
        let builder = EventLoopGroup::builder().loops(2).measure_time(true);
        let group = builder.build().unwrap();
        block_on(group.spawn_on(0, async { yield_now().await })).unwrap();
        block_on(group.spawn_on(1, async { thread::sleep(ms(3)) })).unwrap();
        group.drain(LONG).wait();
        let metrics = group.metrics();
        let families = parse(&metrics.to_prometheus());
        for (index, one) in metrics.loops().iter().enumerate() {
            let index = index.to_string();
            let of = |name: &str| value(&families, name, &[("group", "default"), ("loop", &index)]);
            assert_eq!(of("loopgroup_polls_total"), one.polls() as f64);
            assert_eq!(of("loopgroup_parks_total"), one.parks() as f64);
            assert_eq!(of("loopgroup_tasks_accepted_total"), 1.0);
            assert_eq!(of("loopgroup_utilization_ratio"), one.utilization());
            let longest = one.longest_poll().unwrap().as_secs_f64();
            assert_eq!(of("loopgroup_longest_poll_seconds"), longest);
            assert_eq!(
                of("loopgroup_poll_duration_seconds_count"),
                one.polls() as f64
            );
            assert_eq!(
                of("loopgroup_wake_to_poll_seconds_count"),
                one.polls() as f64
            );
            let ended = [("loop", &*index), ("outcome", "completed")];
            assert_eq!(value(&families, "loopgroup_tasks_ended_total", &ended), 1.0);
        }
        let within = |bound| {
            let labels = [("loop", "1"), ("le", bound)];
            value(&families, "loopgroup_poll_duration_seconds_bucket", &labels)
        };
        assert_eq!([within("0.002"), within("10")], [0.0, 1.0]);
        let woken = [("loop", "0"), ("from", "itself")];
        assert_eq!(value(&families, "loopgroup_wakes_total", &woken), 1.0);
    });
}

#[test]
fn the_text_has_what_servers_have_counted() {
    within(|| {
        let group = group(1);
        let serve = || {
            let server = Server::new("127.0.0.1:0").unwrap().workers(&group);
            server.serve(|_, _| async {}).unwrap()
        };
        let servers = [serve(), serve()];
        for _ in 0..3 {
            Client::connect(servers[1].local_addr()).unwrap();
        }
        eventually("they are served", || {
            (servers[1].accepted(), servers[1].connections()) == (3, 0)
        });
        let text = Prometheus::new()
            .server("one", &servers[0])
            .server("two", &servers[0])
            .server("two", &servers[1])
            .to_string();
        let families = parse(&text);
        let of = |name, labels: &[(&str, &str)]| value(&families, name, labels);
        assert_eq!(
            of("loopgroup_server_accepted_total", &[("server", "one")]),
            0.0
        );
        assert_eq!(
            of("loopgroup_server_accepted_total", &[("server", "two")]),
            3.0
        );
        let completed = [("server", "two"), ("outcome", "completed")];
        assert_eq!(of("loopgroup_server_ended_total", &completed), 3.0);
        assert_eq!(
            of("loopgroup_server_rebalanced_total", &[("server", "two")]),
            0.0
        );
        assert_eq!(families["loopgroup_server_connections"].kind, "gauge");
        assert_eq!(families["loopgroup_server_moves_total"].samples.len(), 2);
    });
}

#[test]
fn groups_that_do_not_measure_time_have_no_histograms() {
    within(|| {
        let plain = group(1);
        let families = parse(&plain.metrics().to_prometheus());
        assert!(families.values().all(|family| family.kind != "histogram"));
        let measured = EventLoopGroup::builder().loops(1).measure_time(true);
        let text = Prometheus::new()
            .group("plain", &plain.metrics())
            .group("measured", &measured.build().unwrap().metrics());
        let families = parse(&text.to_string());
        let samples = &families["loopgroup_poll_duration_seconds"].samples;
        assert!(
            samples
                .iter()
                .all(|one| one.label("group") == Some("measured"))
        );
    });
}

#[test]
fn the_names_of_groups_are_data() {
    within(|| {
        let group = group(3);
        let names = [
            "",
            "plain",
            "quo\"te",
            "back\\slash",
            "new\nline\r\t\0",
            "{},=#",
            "größe 🚀",
        ];
        let text = names.iter().fold(Prometheus::new(), |text, name| {
            text.group(*name, &group.metrics())
        });
        let families = parse(&text.to_string());
        let samples = &families["loopgroup_polls_total"].samples;
        let found: Vec<_> = samples
            .iter()
            .filter_map(|one| one.label("group"))
            .collect();
        let expected: Vec<_> = names.iter().flat_map(|name| [*name; 3]).collect();
        assert_eq!(found, expected);
    });
}

#[test]
fn a_name_that_is_used_twice_has_the_last_metrics() {
    within(|| {
        let (one, two) = (group(1), group(2));
        let text = Prometheus::new()
            .group("workers", &one.metrics())
            .group("workers", &two.metrics());
        let families = parse(&text.to_string());
        assert_eq!(families["loopgroup_tasks_live"].samples.len(), 2);
        assert_eq!(Prometheus::new().to_string(), "");
    });
}

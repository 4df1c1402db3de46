//! One measurement: runs a workload on a runtime and prints its figures as one line of JSON.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::params::Params;
use crate::runtimes::Runtime;
use crate::workloads;

/// What a child found out: figures by name, or why there are none.
pub(crate) type Outcome = Result<Figures, Cannot>;

/// The figures of one measurement, by the names of the catalogue.
#[derive(Debug)]
pub(crate) struct Figures {
    figures: Vec<(&'static str, f64)>,
    /// What has to be known to read them.
    note: Option<String>,
}

impl Figures {
    pub(crate) fn get(&self, name: &str) -> f64 {
        let figure = self.figures.iter().find(|(it, _)| *it == name);
        figure.map_or(f64::NAN, |(_, figure)| *figure)
    }

    pub(crate) fn one(name: &'static str, figure: f64) -> Figures {
        Figures {
            figures: vec![(name, figure)],
            note: None,
        }
    }

    pub(crate) fn with(mut self, name: &'static str, figure: f64) -> Figures {
        self.figures.push((name, figure));
        self
    }

    pub(crate) fn note(mut self, note: String) -> Figures {
        self.note = Some(note);
        self
    }
}

/// Why a workload cannot run on a runtime, here or at all.
#[derive(Debug)]
pub(crate) struct Cannot(pub(crate) String);

impl<T: Into<String>> From<T> for Cannot {
    fn from(reason: T) -> Cannot {
        Cannot(reason.into())
    }
}

pub(crate) fn main(mut args: impl Iterator<Item = String>) -> ExitCode {
    let runtime = args.next().and_then(|name| Runtime::named(&name));
    let (Some(runtime), Some(workload)) = (runtime, args.next()) else {
        eprintln!("usage: compare child <runtime> <workload> [key=value ...]");
        return ExitCode::from(2);
    };
    let outcome = match Params::parse(args) {
        Ok(params) => workloads::run(runtime, &workload, &params),
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    println!("{}", to_json(&outcome));
    // Loops that still wait on their threads, and tasks that never end, go with the process.
    std::process::exit(0)
}

fn to_json(outcome: &Outcome) -> Value {
    match outcome {
        Ok(Figures { figures, note }) => {
            let figures: Map<_, _> = figures
                .iter()
                .map(|&(name, figure)| (name.to_owned(), json!(figure)))
                .collect();
            json!({ "figures": figures, "note": note })
        }
        Err(Cannot(reason)) => json!({ "cannot": reason }),
    }
}

//! The command line of the parent.

use std::path::PathBuf;

use crate::catalogue;
use crate::runtimes::Runtime;

const USAGE: &str = "\
usage: compare [options]
  --workloads w1,w3    only these (default: all)
  --runtimes a,b       only these; `tokio` stands for all of tokio's (default: all of this build)
  --rounds N           interleaved rounds (default: 5)
  --scale X            multiplies counts and durations (default: 1)
  --repeats N          takes a disturbed sample again so often at most (default: 3)
  --out DIR            where results go (default: target/compare)
  --quick              a smoke test: one round, tiny counts, tokio, smol, floor and loopgroup
  --awake              keeps the cores from halting meanwhile (needs chrt and taskset)
  --list               says what there is, and ends";

#[derive(Debug)]
pub(crate) struct Options {
    /// Empty for all.
    workloads: Vec<String>,
    pub(crate) runtimes: Vec<Runtime>,
    pub(crate) rounds: usize,
    pub(crate) scale: f64,
    /// How often a disturbed sample is taken again at most.
    pub(crate) repeats: usize,
    pub(crate) out: PathBuf,
    /// Whether spinners of the lowest priority keep the cores awake.
    pub(crate) awake: bool,
}

impl Options {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let built = || Runtime::ALL.iter().copied().filter(|it| it.is_built());
        let mut options = Options {
            workloads: Vec::new(),
            runtimes: built().collect(),
            rounds: 5,
            scale: 1.0,
            repeats: 3,
            out: PathBuf::from("target/compare"),
            awake: false,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg}: what?\n{USAGE}"));
            match arg.as_str() {
                "--workloads" => options.workloads = workloads(&value()?)?,
                "--runtimes" => options.runtimes = runtimes(&value()?)?,
                "--rounds" => options.rounds = number(&arg, &value()?)?,
                "--scale" => options.scale = number(&arg, &value()?)?,
                "--repeats" => options.repeats = number(&arg, &value()?)?,
                "--out" => options.out = value()?.into(),
                "--awake" => options.awake = true,
                "--quick" => {
                    options.runtimes = runtimes("loopgroup,floor,tokio,smol")?;
                    options.rounds = 1;
                    options.scale = 0.01;
                    options.repeats = 0;
                }
                "--list" => return Err(list()),
                _ => return Err(format!("{arg}: no such option\n{USAGE}")),
            }
        }
        if options.rounds == 0 || options.scale.is_nan() || options.scale <= 0.0 {
            return Err(format!("--rounds and --scale are above 0\n{USAGE}"));
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, workload: &str) -> bool {
        self.workloads.is_empty() || self.workloads.iter().any(|it| it == workload)
    }
}

fn workloads(text: &str) -> Result<Vec<String>, String> {
    text.split(',')
        .map(|name| {
            let name = name.to_lowercase();
            match catalogue::cases().any(|case| case.family() == name) {
                true => Ok(name),
                false => Err(format!("{name}: no such workload\n{}", list())),
            }
        })
        .collect()
}

/// Runtimes by name, or by the first word of their names.
fn runtimes(text: &str) -> Result<Vec<Runtime>, String> {
    let names: Vec<_> = text.split(',').collect();
    let fits = |name: &str, runtime: Runtime| {
        let rest = runtime.name().strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    for name in &names {
        if !Runtime::ALL.iter().any(|&it| fits(name, it)) {
            return Err(format!("{name}: no such runtime\n{}", list()));
        }
    }
    let wanted = |it: &Runtime| names.iter().any(|name| fits(name, *it));
    Ok(Runtime::ALL.iter().copied().filter(wanted).collect())
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{option} {text}: not a number\n{USAGE}"))
}

fn list() -> String {
    let mut text = String::from("workloads:\n");
    for case in catalogue::cases() {
        for figure in case.figures {
            text += &format!("  {:8} {}, {}\n", case.family(), figure.title, figure.unit);
        }
    }
    text += "runtimes:\n";
    for runtime in Runtime::ALL {
        let missing = runtime.feature().filter(|_| !runtime.is_built());
        let hint = missing.map_or(String::new(), |it| format!(" (with --features {it})"));
        text += &format!("  {}{hint}\n", runtime.name());
    }
    text
}

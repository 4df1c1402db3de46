//! What can be said on the command line.

use std::thread::available_parallelism;

pub(crate) const USAGE: &str = "\
usage: echo [--loops N] [--connections N] [--size BYTES] [--seconds N]   serve clients of its own
       echo --listen ADDRESS:PORT [--loops N]                            serve until Ctrl-C
       --metrics   also print what the worker loops have counted";

pub(crate) struct Options {
    pub(crate) listen: Option<String>,
    pub(crate) loops: usize,
    pub(crate) connections: usize,
    pub(crate) size: usize,
    pub(crate) seconds: usize,
    pub(crate) metrics: bool,
}

impl Options {
    pub(crate) fn from_args() -> Result<Options, String> {
        let mut options = Options {
            listen: None,
            loops: available_parallelism().map_or(2, usize::from),
            connections: 64,
            size: 64,
            seconds: 3,
            metrics: false,
        };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            let field = match &*name {
                "--listen" => {
                    options.listen = Some(args.next().ok_or("--listen needs an address")?);
                    continue;
                }
                "--metrics" => {
                    options.metrics = true;
                    continue;
                }
                "--loops" => &mut options.loops,
                "--connections" => &mut options.connections,
                "--size" => &mut options.size,
                "--seconds" => &mut options.seconds,
                "--help" | "-h" => {
                    println!("{USAGE}");
                    std::process::exit(0);
                }
                other => return Err(format!("there is no option {other:?}\n{USAGE}")),
            };
            let value = args.next().unwrap_or_default();
            let number = value.parse().ok().filter(|&number| number > 0);
            *field = number.ok_or(format!("{name} needs a number above 0, not {value:?}"))?;
        }
        Ok(options)
    }

    /// Where to listen: on a port of the system's choice, if nothing was said.
    pub(crate) fn address(&self) -> String {
        self.listen.clone().unwrap_or("127.0.0.1:0".into())
    }
}

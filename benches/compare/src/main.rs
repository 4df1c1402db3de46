//! Workloads on loopgroup and on its peers, in one process and interleaved rounds.
//!
//!     cargo run --release --manifest-path benches/compare/Cargo.toml -- lateness [rounds]

mod lateness;

fn main() {
    let mut args = std::env::args().skip(1);
    let workload = args.next().unwrap_or_default();
    let rounds = args.next().and_then(|text| text.parse().ok()).unwrap_or(3);
    match workload.as_str() {
        "lateness" => lateness::main(rounds),
        _ => {
            eprintln!("usage: compare lateness [rounds]");
            std::process::exit(2);
        }
    }
}

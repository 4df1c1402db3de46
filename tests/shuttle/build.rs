//! Compiles this package, and only this one, with `cfg(shuttle)`; with one of the seeded bugs if
//! `LOOPGROUP_BUG` names one.

fn main() {
    println!("cargo::rustc-cfg=shuttle");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LOOPGROUP_BUG");
    if let Ok(bug) = std::env::var("LOOPGROUP_BUG") {
        println!("cargo::rustc-cfg=loopgroup_bug=\"{bug}\"");
    }
}

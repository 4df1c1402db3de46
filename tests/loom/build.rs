//! Sets `--cfg loom` for this crate only; `RUSTFLAGS` would set it for every dependency as well.

fn main() {
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}

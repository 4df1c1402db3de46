//! What `RUSTFLAGS` would say to every dependency as well.

fn main() {
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}

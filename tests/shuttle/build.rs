//! Compiles this package, and only this one, with `cfg(shuttle)`.

fn main() {
    println!("cargo::rustc-cfg=shuttle");
    println!("cargo::rerun-if-changed=build.rs");
}

//! Netty as another command: a few classes, compiled here and now, beside the system's own jars.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian puts the jars of libnetty-java and libjctools-java.
const JARS: &str = "/usr/share/java";
const NEEDED: [&str; 5] = [
    "netty-common.jar",
    "netty-buffer.jar",
    "netty-resolver.jar",
    "netty-transport.jar",
    "jctools-core.jar",
];
const SOURCES: [(&str, &str); 2] = [
    ("Compare.java", include_str!("../../netty/Compare.java")),
    ("Servers.java", include_str!("../../netty/Servers.java")),
];

/// The command that a workload is given to; the error says what is missing. `exe` makes the clients.
pub(super) fn command(out: &Path, exe: &Path) -> Result<Vec<OsString>, String> {
    let jars: Vec<PathBuf> = NEEDED.iter().map(|jar| Path::new(JARS).join(jar)).collect();
    if let Some(missing) = jars.iter().find(|jar| !jar.exists()) {
        return Err(format!("no {} (libnetty-java)", missing.display()));
    }
    compile(out, &jars)?;
    let mut exe_property = OsString::from("-Dcompare.exe=");
    exe_property.push(exe);
    let path = std::iter::once(out.to_owned()).chain(jars);
    Ok(vec![
        "java".into(),
        "-Dio.netty.leakDetection.level=disabled".into(),
        exe_property,
        "-cp".into(),
        class_path(path)?,
        "Compare".into(),
    ])
}

fn compile(out: &Path, jars: &[PathBuf]) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(out).map_err(text)?;
    for (name, source) in SOURCES {
        std::fs::write(out.join(name), source).map_err(text)?;
    }
    let compiled = Command::new("javac")
        .args(["-nowarn", "-d"])
        .arg(out)
        .arg("-cp")
        .arg(class_path(jars.iter().cloned())?)
        .args(SOURCES.map(|(name, _)| out.join(name)))
        .output()
        .map_err(|error| format!("javac: {error}"))?;
    match compiled.status.success() {
        true => Ok(()),
        false => Err(format!(
            "javac: {}",
            String::from_utf8_lossy(&compiled.stderr)
        )),
    }
}

fn class_path(paths: impl Iterator<Item = PathBuf>) -> Result<OsString, String> {
    std::env::join_paths(paths).map_err(|error| error.to_string())
}

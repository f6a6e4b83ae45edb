//! Notes what the program is built from and with: the commit, which results name, and the versions that `doctor` tells.
//!
//! The commit is that of a checkout, or the one a package was made from. `TOVA_BENCH_COMMIT` says it where neither is there,
//! as in the Dockerfiles.

use std::fs;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TOVA_BENCH_COMMIT");
    // In a worktree `.git` is a file, and git knows where they are; the log grows with every commit. A path that is not
    // there would make cargo build anew every time.
    let in_git = |name: &str| output(Command::new("git").args(["rev-parse", "--git-path", name]));
    let of_git = ["HEAD", "logs/HEAD"].into_iter().filter_map(in_git);
    for path in of_git.chain([".cargo_vcs_info.json".into(), "Cargo.lock".into()]) {
        if Path::new(path.trim()).exists() {
            println!("cargo:rerun-if-changed={}", path.trim());
        }
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let commit = variable("TOVA_BENCH_COMMIT").or_else(packaged).or_else(checked_out);
    let rustc = variable("RUSTC").and_then(|rustc| output(Command::new(rustc).arg("--version")));
    for (name, value) in [
        ("TOVA_BENCH_COMMIT", commit),
        ("TOVA_BENCH_RUSTC", rustc),
        ("TOVA_BENCH_TARGET", variable("TARGET")),
        ("TOVA_BENCH_CANDLE", locked("candle-core")),
    ] {
        if let Some(value) = value {
            println!("cargo:rustc-env={name}={}", value.trim());
        }
    }
}

/// The commit `cargo package` wrote down. It comes before git's: a package may be unpacked inside another's checkout.
fn packaged() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    let hash: String = rest.chars().skip_while(|c| !c.is_ascii_hexdigit()).take(12).collect();
    (hash.len() == 12).then_some(hash)
}

/// The commit of this checkout; of a folder inside another's there is none.
fn checked_out() -> Option<String> {
    let top = output(Command::new("git").args(["rev-parse", "--show-toplevel"]))?;
    let here = fs::canonicalize(".").ok()?;
    (fs::canonicalize(top.trim()).ok()? == here).then_some(())?;
    output(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))
}

/// The version of a crate in the lock file.
fn locked(name: &str) -> Option<String> {
    let lock = fs::read_to_string("Cargo.lock").ok()?;
    let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(rest.split_once('"')?.0.to_string())
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok())?
}

//! Notes the commit the program is built from; results name it. Outside a checkout there is none.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A path that is not there would make cargo build anew every time.
    for path in [".git/HEAD", ".git/refs/heads"].into_iter().filter(|path| Path::new(path).exists()) {
        println!("cargo:rerun-if-changed={path}");
    }
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    if let Ok(output) = commit
        && output.status.success()
        && let Ok(commit) = String::from_utf8(output.stdout)
    {
        println!("cargo:rustc-env=TOVA_BENCH_COMMIT={}", commit.trim());
    }
}

//! Notes the commit the program is built from; results name it. Outside a checkout there is none.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=.git/HEAD");
    println!("cargo:rerun-if-changed=.git/refs/heads");
    println!("cargo:rerun-if-changed=build.rs");
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    if let Ok(output) = commit
        && output.status.success()
        && let Ok(commit) = String::from_utf8(output.stdout)
    {
        println!("cargo:rustc-env=TOVA_BENCH_COMMIT={}", commit.trim());
    }
}

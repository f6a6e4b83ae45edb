//! Foreign files: every seed of the fuzzer is read by the reader it was made for.
//!
//! `fuzz/README.md` lists what readers promise. Each target runs in a process with limits of its own, so that a
//! reader that hangs or exhausts memory fails its test without ending the others.

#[path = "../../fuzz/src/lib.rs"]
mod readers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Kilobytes of address space: far more than any reader needs, far less than a hostile file asks for.
const MEMORY: u64 = 3 << 20;
/// Longer than all seeds of a target take on a slow and busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Names the target to the process that reads its seeds.
const TARGET: &str = "TOVA_BENCH_HOSTILE_TARGET";

fn seeds(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut seeds: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    seeds.sort();
    seeds
}

#[test]
fn every_target_has_seeds_and_every_seed_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let mut bytes = 0;
    for (target, _) in readers::TARGETS {
        assert!(seeds(target).len() >= 5, "{target} has too few seeds");
        bytes += seeds(target).iter().map(|seed| seed.metadata().unwrap().len()).sum::<u64>();
        assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} is no target of cargo-fuzz");
        assert!(root.join(format!("targets/{target}.rs")).is_file(), "{target} has no file");
    }
    assert_eq!(fs::read_dir(root.join("seeds")).unwrap().count(), readers::TARGETS.len());
    assert!(bytes < 1 << 20, "the seeds have {bytes} bytes");
}

/// Reads the seeds of one target in this process; does nothing unless the test below starts it.
#[test]
fn seeds_of_one_target() {
    let Ok(target) = std::env::var(TARGET) else { return };
    for seed in seeds(&target) {
        // If reading fails, the last name printed is the cause.
        println!("{}", seed.display());
        let input = fs::read(&seed).unwrap();
        let start = Instant::now();
        readers::read(&target, &input);
        println!("{:?}", start.elapsed());
    }
    println!("all read");
}

#[test]
fn every_seed_is_read_within_limits() {
    let program = std::env::current_exe().unwrap();
    let mut wrong = Vec::new();
    for (target, _) in readers::TARGETS {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let file = fs::File::create(&log).unwrap();
        let mut command = if cfg!(target_os = "linux") {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"")]).arg(&program);
            shell
        } else {
            Command::new(&program)
        };
        let mut child = command
            .args(["fuzz_seeds::seeds_of_one_target", "--exact", "--nocapture", "--test-threads=1"])
            .env(TARGET, target)
            .env("POLARS_MAX_THREADS", "2")
            .stdout(Stdio::from(file.try_clone().unwrap()))
            .stderr(Stdio::from(file))
            .spawn()
            .unwrap();
        let end = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if Instant::now() > end {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let output = fs::read_to_string(&log).unwrap();
        if !status.is_some_and(|status| status.success()) || !output.contains("all read") {
            let tail: Vec<&str> = output.lines().rev().take(12).collect();
            wrong.push(format!("{target}: {status:?}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

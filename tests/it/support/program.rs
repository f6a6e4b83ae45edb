//! Runs of the program: arguments in; exit code, stdout and stderr out.
//!
//! Each run has its own environment, so that neither the machine's caches nor its variables matter. Backtraces are
//! enabled, so that a panic would be seen.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The result of a run.
#[derive(Debug)]
pub struct Ended {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Checks the exit code, and that there was no panic.
    #[track_caller]
    pub fn with_code(self, code: i32) -> Ended {
        self.sound();
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        self
    }

    /// Checks that stderr contains all of these words.
    #[track_caller]
    pub fn says(&self, words: &[&str]) -> &Ended {
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing from:\n{}", self.stderr);
        }
        self
    }

    /// Checks that the user saw neither a panic nor a backtrace.
    #[track_caller]
    pub fn sound(&self) {
        for sign in ["panicked at", "stack backtrace", "RUST_BACKTRACE", "Stack backtrace"] {
            assert!(!self.stderr.contains(sign), "a panic was seen:\n{}", self.stderr);
        }
        assert_ne!(self.code, Some(101), "{}", self.stderr);
    }
}

/// A run in progress; killed when dropped.
pub struct Running {
    child: Child,
    folder: TempDir,
    timeout: Duration,
}

/// Longer than any test takes, so that a program that hangs fails its test.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Prints a line that is seen even if the test passes and its output is captured.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The program in a folder, with this process's environment.
pub fn plain(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tova-bench"));
    command.current_dir(folder);
    command
}

/// The program in a folder, with an environment of its own.
pub fn command(folder: &Path) -> Command {
    isolated(plain(folder), folder)
}

/// Any command with the environment that the program is tested in.
pub fn isolated(mut command: Command, folder: &Path) -> Command {
    let foreign =
        ["TOVA_BENCH_", "HF_", "HUGGING", "TRANSFORMERS_", "XDG_", "RUST_", "SLURM_", "NO_COLOR", "TERM"];
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if foreign.iter().any(|start| name.starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.current_dir(folder).env("HOME", folder).env("RUST_BACKTRACE", "1");
    command
}

/// Starts a command.
pub fn start(mut command: Command) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| File::create(folder.path().join(name)).unwrap();
    let child = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn().unwrap();
    Running { child, folder, timeout: TIMEOUT }
}

/// Runs a command to its end.
pub fn finish(command: Command) -> Ended {
    start(command).wait()
}

/// Runs the program in `folder` with `arguments`.
pub fn run(folder: &Path, arguments: &[&str]) -> Ended {
    let mut command = command(folder);
    command.args(arguments);
    finish(command)
}

impl Running {
    /// Removes the timeout.
    pub fn unhurried(mut self) -> Running {
        self.timeout = Duration::MAX;
        self
    }

    pub fn wait(mut self) -> Ended {
        let started = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
            assert!(started.elapsed() < self.timeout, "the program hangs; it said:\n{}", self.read("err"));
        };
        Ended { code: status.code(), stdout: self.read("out"), stderr: self.read("err") }
    }

    /// What it has printed on stderr so far.
    pub fn stderr(&self) -> String {
        self.read("err")
    }

    /// Whether it is still running.
    pub fn goes_on(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until the condition holds or the program has ended.
    pub fn until(&mut self, mut holds: impl FnMut() -> bool) {
        while self.goes_on() && !holds() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends a signal; returns whether the process was still running.
    pub fn signal(&mut self, number: i32) -> bool {
        let process = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: the child is not waited for yet unless `goes_on` says so, so its process id is still its own.
        #[expect(unsafe_code)]
        let sent = self.goes_on() && unsafe { libc::kill(process, number) } == 0;
        sent
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join(name)).unwrap()).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

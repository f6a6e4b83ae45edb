//! `doctor`: what this machine can do, what would make runs fail, and what to do about it.
//!
//! Measures for about a second, asks the hub once, and writes and removes a small file in each folder it checks. Whether a
//! sweep fits is for `plan`. Tokens and keys are never shown.

use std::fs::TryLockError;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::machine_args::MachineArguments;
use super::output::print;
use crate::bounded_read;
use crate::format::{Bytes, counted, plain};
use crate::ledger::{ENGINE_VERSION, SCHEMA_VERSION};
use crate::lm::source::{HubSettings, whoami};
use crate::lm::{self, Arithmetic, Device, matrix_rate};

/// Check this machine: device, speed, memory, folders, hub
#[derive(Debug, Args)]
#[command(
    after_help = "Each line begins with ok, note (runs work, but you may want to know) or PROBLEM (runs would fail).\n\
The exit code is 0 without problems, else 1. With HF_HUB_OFFLINE=1 or --offline the hub is not asked; else it has 4\n\
seconds to answer."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    machine: MachineArguments,
    /// The folder that results will be written to; it need not exist
    #[arg(short, long, env = "TOVA_BENCH_RESULTS", value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Do not ask the hub
    #[arg(long)]
    offline: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Ok,
    /// Runs work, but something could be better.
    Note,
    /// Runs would fail.
    Problem,
}

/// The outcome of one check, and what to do about it.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    #[serde(rename = "verdict")]
    severity: Severity,
    value: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    advice: String,
}

fn ok(name: &'static str, value: impl Into<String>) -> Finding {
    Finding { name, severity: Severity::Ok, value: value.into(), advice: String::new() }
}

impl Finding {
    fn note(self, advice: impl Into<String>) -> Finding {
        Finding { severity: Severity::Note, advice: advice.into(), ..self }
    }

    fn problem(self, advice: impl Into<String>) -> Finding {
        Finding { severity: Severity::Problem, advice: advice.into(), ..self }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let threads = arguments.machine.threads();
    let mut findings = vec![version()];
    match arguments.machine.device.open() {
        Ok(device) => {
            findings.push(ok("device", lm::device_name(&device)));
            findings.extend(attention(&device));
            findings.push(ok("machine", lm::machine_name(&device, threads)));
        }
        Err(error) => {
            let device = format!("{}: {}", arguments.machine.device, one_line(&error));
            findings.push(ok("device", device).problem("choose another with --device"));
        }
    }
    let [f32, fast] = [Arithmetic::F32, Arithmetic::Fast].map(|arithmetic| matrix_rate(threads, arithmetic));
    let (f32, fast, threads) = (f32? / 1e9, fast? / 1e9, counted(threads, "thread"));
    let rates = format!("{f32:.0} GFLOP/s in f32 and {fast:.0} in integers (`arithmetic: fast`) with {threads}");
    findings.extend([ok("products", rates), memory()]);
    findings.push(folder(
        "results",
        &arguments.results,
        "choose another with --results, or change its permissions",
    ));
    match HubSettings::from_env() {
        Ok(hub) => {
            let offline = arguments.offline || hub.offline;
            let advice = "models cannot be fetched: set HF_HOME or HF_HUB_CACHE to a folder of your own";
            let cache = folder("cache", &hub.cache_dir, advice);
            // Offline nothing is fetched.
            let severity = if offline { cache.severity.min(Severity::Note) } else { cache.severity };
            findings.push(Finding { severity, ..cache });
            findings.extend(hub_findings(&hub, offline));
        }
        Err(error) => {
            let advice = "correct the variable or file; until then models of the hub cannot be used";
            findings.push(ok("hub", one_line(&error)).problem(advice));
        }
    }
    let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
    print(&match arguments.json {
        true => serde_json::to_string_pretty(&json!({ "verdict": worst, "checks": findings }))? + "\n",
        false => text(&findings),
    })?;
    Ok(if worst == Severity::Problem { 1 } else { 0 })
}

fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { name, severity, value, advice } in findings {
        let severity = match severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Problem => "PROBLEM",
        };
        text += &format!("{severity:<8} {name:<13} {}\n", plain(value));
        if !advice.is_empty() {
            text += &format!("{:22} -> {}\n", "", plain(advice));
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (problems, notes) = (count(Severity::Problem), count(Severity::Note));
    let end = if problems > 0 { "runs would fail" } else { "ready to run" };
    text + &format!("\n{}, {}: {end}\n", counted(problems, "problem"), counted(notes, "note"))
}

/// An error with its causes on one line.
fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

/// The versions that results name, and what the program was built with.
fn version() -> Finding {
    let version = env!("CARGO_PKG_VERSION");
    let [commit, rustc, candle] =
        [option_env!("TOVA_BENCH_COMMIT"), option_env!("TOVA_BENCH_RUSTC"), option_env!("TOVA_BENCH_CANDLE")]
            .map(|built| built.unwrap_or("unknown"));
    let cuda = option_env!("TOVA_BENCH_CUDA").map_or("without CUDA".into(), |version| format!("CUDA {version}"));
    ok(
        "version",
        format!(
            "{version}, commit {commit}, engine {ENGINE_VERSION}, schema {SCHEMA_VERSION}; {rustc}, candle {candle}, {cuda}"
        ),
    )
}

/// Whether attention on the device decides as on the host; `None` where it is the host's.
fn attention(device: &Device) -> Option<Finding> {
    let refused = "attention runs on the host; please report this with the line above";
    if let Some(why) = device.refused() {
        let advice =
            if device.gpu().is_some() { refused } else { "update the driver, or choose another with --device" };
        return Some(ok("attention", why).problem(advice));
    }
    match device.check().transpose()? {
        Ok(cases) => Some(ok("attention", format!("on the device; {} as on the host", counted(cases, "case")))),
        Err(error) => Some(ok("attention", one_line(&error)).problem(refused)),
    }
}

/// The built-in sweep takes 0.42 GB with two threads.
const LEAST_MEMORY: u64 = 500_000_000;

fn memory() -> Finding {
    let Some(memory) = lm::host_memory() else {
        let advice = "runs cannot check whether a model fits: look at `plan` first";
        return ok("memory", "unknown on this system").note(advice);
    };
    let available = memory.available;
    let finding = ok("memory", format!("{} available of {}", Bytes(available), Bytes(memory.total)));
    match available {
        ..LEAST_MEMORY => finding.problem(
            "not enough for the built-in sweep: end other programs, raise the limit (Slurm: --mem, Docker: --memory), or use a \
             larger machine",
        ),
        _ => finding,
    }
}

/// A sweep of a thousand cells takes some megabytes, and a model some gigabytes.
const LEAST_FREE: u64 = 50_000_000;

/// A folder that runs write to, or its nearest parent that exists: whether it is writable and has space, and whether locks hold.
fn folder(name: &'static str, folder: &Path, if_not_writable: &str) -> Finding {
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    let checked = whole.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let free = rustix::fs::statvfs(checked).ok().map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    let free_text = free.map_or(String::new(), |free| format!(", {} free", Bytes(free)));
    let finding = ok(name, format!("{}{free_text}", folder.display()));
    match probe(checked) {
        Err(error) => {
            finding.problem(format!("cannot write to {}: {error}; {if_not_writable}", checked.display()))
        }
        Ok(_) if free.is_some_and(|free| free < LEAST_FREE) => finding.problem("there is too little space"),
        Ok(false) => finding.note("this file system has no locks: give each process a --results of its own"),
        Ok(true) => finding,
    }
}

/// Writes and removes a small file; whether a lock on it keeps others out.
fn probe(folder: &Path) -> io::Result<bool> {
    if !folder.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "a file is in the way"));
    }
    let mut file = tempfile::Builder::new().prefix(".doctor-").tempfile_in(folder)?;
    file.write_all(&[0; 4096])?;
    file.as_file().sync_all()?;
    let second = bounded_read::open(file.path())?;
    let holds = file.as_file().try_lock().is_ok() && matches!(second.try_lock(), Err(TryLockError::WouldBlock));
    file.close()?;
    Ok(holds)
}

/// The hub and its token.
fn hub_findings(hub: &HubSettings, offline: bool) -> [Finding; 2] {
    let answer = (!offline).then(|| whoami(hub, Duration::from_secs(4)));
    let endpoint = &hub.endpoint;
    let found = match &answer {
        None => ok("hub", format!("{endpoint}, not asked: offline, only the cache is used")),
        // 401 without a login, 404 from mirrors that do not know the question.
        Some(Ok(200 | 401 | 404)) => ok("hub", format!("{endpoint} answers")),
        Some(Ok(status)) => ok("hub", format!("{endpoint} answers with status {status}")).note("cached models work"),
        Some(Err(error)) => ok("hub", format!("{endpoint} does not answer: {}", one_line(error))).note(
            "built-in and cached models work without it; without a network set HF_HUB_OFFLINE=1, behind a proxy HTTPS_PROXY, \
             for a mirror HF_ENDPOINT",
        ),
    };
    let token = match (&hub.token_fault, &hub.token_place, answer.and_then(Result::ok)) {
        (Some(fault), ..) => ok("hub token", fault.as_str())
            .problem("correct the variable or file; until then nothing is downloaded from the hub"),
        (_, None, _) => ok("hub token", "none; only gated and private models need one (HF_TOKEN)"),
        (_, Some(place), Some(401)) => ok("hub token", format!("present, from {place}, REFUSED by the hub"))
            .problem(
                "with an invalid token even public models may be refused: make a new one \
             (https://huggingface.co/settings/tokens), or remove this one",
            ),
        (_, Some(place), _) => ok("hub token", format!("present, from {place}")),
    };
    [found, token]
}

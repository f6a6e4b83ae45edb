//! `doctor`: what this machine can do, what stands in the way, and what to do about each.
//!
//! Looks and measures for a second, asks the hub once, and changes nothing but two files of a few bytes that it writes
//! and removes. Whether a sweep fits is `plan`'s to say. A token is never shown.

mod arithmetic;
mod finding;
mod folders;
mod hub;
mod memory;
mod program;
mod slurm;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::lm::DeviceChoice;
use crate::lm::source::HubSettings;
use finding::{Finding, Verdict};

#[derive(Debug, Args)]
#[command(
    after_help = "Each line begins with ok, note (works, but you may want to know) or problem (runs would fail).\n\
Exit code 0 where there is no problem, else 1. HF_HUB_OFFLINE=1 and --offline leave the hub alone;\n\
without a network the question is given up after 4 seconds."
)]
pub struct DoctorArguments {
    /// Where to compute: cpu, cuda, cuda:N or auto
    #[arg(long, env = "TOVA_BENCH_DEVICE", default_value = "auto")]
    pub device: DeviceChoice,
    /// The folder that results will be written to; it need not be there yet
    #[arg(short, long, env = "TOVA_BENCH_RESULTS", value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
    /// Threads to measure with [default: all cores]
    #[arg(long, env = "TOVA_BENCH_THREADS", value_name = "N")]
    pub threads: Option<usize>,
    /// Do not ask the hub
    #[arg(long)]
    pub offline: bool,
    /// Print one JSON object, with figures as numbers
    #[arg(long)]
    pub json: bool,
}

/// The text, and 1 if something would make runs fail.
pub fn doctor(arguments: &DoctorArguments) -> Result<(String, ExitCode)> {
    let threads = super::threads(arguments.threads)?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let settings = HubSettings::from_env();
    let offline = arguments.offline || settings.as_ref().is_ok_and(|settings| settings.offline);

    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let mut findings = program::findings(settings.as_ref().ok());
    findings.extend(arithmetic::findings(arguments.device, threads)?);
    findings.extend(memory::findings());
    findings.extend(slurm::findings(variable, available));
    findings.push(folders::results(&arguments.results));
    match &settings {
        Ok(settings) => {
            findings.extend(folders::cache(settings, offline));
            findings.extend(hub::findings(settings, offline, variable));
        }
        Err(error) => findings.push(Finding::problem(
            "hub",
            finding::one_line(&format!("{error:#}")),
            "mend the variable or the file; models of the hub cannot be used before",
        )),
    }
    findings.push(hub::judge_key(variable));

    let text = if arguments.json { finding::json(&findings)? } else { finding::text(&findings) };
    let fails = findings.iter().any(|finding| finding.verdict == Verdict::Problem);
    Ok((text, if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS }))
}

//! `doctor`: what this machine can do, what would make runs fail, and what to do about it.
//!
//! Measures for about a second, asks the hub once, and writes and removes a small file in each folder it checks. Whether a
//! sweep fits is for `plan`. Tokens and keys are never shown.

mod finding;
mod folders;
mod hub;
mod machine;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::machine_args::MachineArguments;
use super::output::print;
use crate::lm::source::HubSettings;
use finding::{Finding, Severity};

/// Check this machine: device, instruction sets, speed, memory, folders, hub
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
    /// Print one JSON object, with figures as numbers
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let threads = arguments.machine.threads();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let mut findings = vec![machine::version(), machine::build(), machine::device(arguments.machine.device)];
    findings.extend(machine::attention(arguments.machine.device));
    findings.extend(machine::card_memory());
    findings.extend(machine::processor(threads)?);
    findings.push(machine::memory());
    findings.extend(machine::slurm(variable));
    findings.push(folders::results(&arguments.results));
    match HubSettings::from_env() {
        Ok(settings) => {
            let offline = arguments.offline || settings.offline;
            findings.push(folders::cache(&settings.cache_dir, offline));
            findings.extend(hub::findings(&settings, offline));
        }
        Err(error) => {
            let advice = "correct the variable or file; until then models of the hub cannot be used";
            findings.push(Finding::ok("hub", finding::one_line(&error)).problem(advice));
        }
    }
    findings.push(hub::judge_key(variable));
    print(&if arguments.json { finding::json(&findings)? } else { finding::text(&findings) })?;
    let fails = findings.iter().any(|finding| finding.severity == Severity::Problem);
    Ok(if fails { 1 } else { 0 })
}

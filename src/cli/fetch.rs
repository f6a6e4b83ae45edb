//! `fetch`: what a sweep needs from the network, before it is needed.

use std::process::ExitCode;

use anyhow::Result;

use super::args::FetchArguments;
use super::failure::Usage;
use super::print;
use super::progress::Downloads;
use super::sweeps::{bytes, cells_of, read_sweep};
use crate::lm::source::HubSettings;
use crate::run;
use crate::sweep::Selection;

/// Fetches, reads and checks all that `run` would, and says what is there. The exit code is 4 where something is not.
pub(super) fn fetch(arguments: &FetchArguments) -> Result<ExitCode> {
    let sweep = read_sweep(Some(&arguments.sweep))?;
    let selection = Selection { only: arguments.only.clone(), ..Selection::default() };
    selection.of(sweep.expand()).map_err(Usage::from_error)?;
    let hub = HubSettings::from_env()?;
    // Who times them is no part of what is fetched.
    let prepared = run::prepare(&sweep, &selection, None, &hub, &Downloads::new(), "")?;
    let mut text = String::new();
    let mut model = None;
    for group in &prepared.model_tasks {
        if model != Some(&group.model) {
            let weights = bytes(group.files.weight_bytes());
            text += &format!("{}: {weights} of weights, {}\n", group.model, group.revision);
            model = Some(&group.model);
        }
        text += &format!("  {}: {}, {} samples\n", group.task.name(), group.task.dataset(), group.samples.len());
    }
    print(&text)?;
    for unavailable in &prepared.unavailable {
        let of = format!("{} of {} with {}", cells_of(unavailable.cells), unavailable.task, unavailable.model);
        eprintln!("not there: {of}: {:#}", unavailable.error);
    }
    if !prepared.unavailable.is_empty() {
        return Ok(ExitCode::from(4));
    }
    eprintln!("all is there (cache: {}); with HF_HUB_OFFLINE=1 `run` asks no network", hub.cache_dir.display());
    Ok(ExitCode::SUCCESS)
}

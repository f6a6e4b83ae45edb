//! `fetch`: downloads what a sweep needs, so that `run` needs no network.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::output::{print, tell};
use super::progress::{Mode, Progress};
use crate::format::counted;
use crate::ledger::Only;
use crate::lm::source::HubSettings;
use crate::run;
use crate::sweep::{Selection, Sweep};

/// Fetch the models and texts of a sweep, so that `run` needs no network
///
/// For machines without one, such as the compute nodes of a cluster: fetch on a machine with a network, then run there
/// with HF_HUB_OFFLINE=1 and the same HF_HOME.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The sweep's YAML file
    #[arg(value_name = "SWEEP")]
    sweep: PathBuf,
    /// Only cells with one of these values, such as model=owner/name; may be repeated
    #[arg(long, value_name = "KEY=VALUES")]
    only: Vec<Only>,
    /// Leave out the weights of models: fetch descriptions, tokenizers and texts, from which `plan` says what the weights would need
    #[arg(long)]
    without_weights: bool,
}

/// Prepares the sweep as `run` does, which fetches and checks everything. Exit code 4 if something cannot be had.
pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let sweep = Sweep::read(&arguments.sweep, &[])?;
    let selection = Selection { only: arguments.only.clone(), ..Selection::default() };
    let cells = selection.of(&sweep)?;
    let hub = HubSettings { without_weights: arguments.without_weights, ..HubSettings::from_env()? };
    let prepared = run::prepare(&sweep, &cells, None, &hub, &Progress::new(Mode::Auto), "")?;
    let mut text = String::new();
    let mut model = None;
    for group in &prepared.model_tasks {
        if model != Some(&group.model) {
            text += &format!("{}: {}, {}\n", group.model, group.files.weights_in_words(), group.revision);
            model = Some(&group.model);
        }
        let samples = counted(group.samples.len(), "sample");
        text += &format!("  {}: {}, {samples}\n", group.task.name, group.task.dataset);
    }
    print(&text)?;
    for missing in &prepared.unavailable {
        let cells = counted(missing.cells, "cell");
        tell(format!("not there: {cells} of {} with {}: {:#}", missing.task, missing.model, missing.error));
    }
    if !prepared.unavailable.is_empty() {
        return Ok(4);
    }
    let cache = hub.cache_dir.display();
    match arguments.without_weights {
        true => tell(format!("what `plan` reads is there (cache: {cache})")),
        false => tell(format!("all is there (cache: {cache}); with HF_HUB_OFFLINE=1 `run` uses no network")),
    }
    Ok(0)
}

//! The arguments of commands that work on a sweep: which sweep, which of its cells, and where its results are.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::error::UsageError;
use super::machine_args::MachineArguments;
use super::progress::Mode;
use super::sweep_notes;
use crate::ledger::Only;
use crate::sweep::{SelectedCells, Selection, Shard, Sweep};

#[derive(Debug, Args)]
pub(super) struct SweepArguments {
    /// The sweep's YAML file, or a built-in sweep, which needs no file and no network: pocket or smoke
    #[arg(default_value = "pocket")]
    sweep: PathBuf,
    /// Results folder [default: results/<name of the sweep>]
    #[arg(short, long, env = "TOVA_BENCH_RESULTS", value_name = "DIR")]
    results: Option<PathBuf>,
    /// Only cells with one of these values, such as policy=tova,h2o or size=64; may be repeated: values of one key add up,
    /// different keys must all hold
    #[arg(long, value_name = "KEY=VALUES")]
    only: Vec<Only>,
    /// Only the first N cells
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    /// Only shard I of N of the cells, such as 2/8; shards are balanced by estimated run time [default: all; in a Slurm array
    /// job the shard of the task]
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    #[command(flatten)]
    pub(super) machine: MachineArguments,
}

impl SweepArguments {
    pub(super) fn sweep(&self) -> Result<Sweep> {
        Ok(Sweep::read(&self.sweep, &[])?)
    }

    pub(super) fn results_folder(&self, sweep: &Sweep) -> PathBuf {
        self.results.clone().unwrap_or_else(|| PathBuf::from("results").join(&sweep.name))
    }

    /// Expands a sweep and selects the cells that the flags ask for; without `--shard`, the shard of a Slurm array task.
    pub(super) fn cells(&self, sweep: &Sweep, mode: Mode) -> Result<SelectedCells> {
        let shard = match self.shard {
            Some(shard) => Some(shard),
            None => Shard::of_slurm(|name| std::env::var(name).ok()).map_err(UsageError::from_error)?.inspect(
                |shard| {
                    let task = std::env::var("SLURM_ARRAY_TASK_ID").unwrap_or_default();
                    mode.note(&format!(
                        "task {task} of a Slurm array job: shard {shard} of the cells (--shard overrides it)"
                    ));
                },
            ),
        };
        if let Some(note) = sweep_notes::unlisted(sweep) {
            mode.note(&note);
        }
        let selection = Selection { only: self.only.clone(), limit: self.limit.map(usize::from), shard };
        Ok(selection.of(sweep)?)
    }
}

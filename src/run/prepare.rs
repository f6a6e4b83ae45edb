//! Before anything is measured: models found, texts cut, cells named, and what the ledger knows of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;

use super::cost::{self, Cost, Speed};
use super::shares::{self, Common, Piece};
use crate::ledger::{CellId, CellName, Ledger, Status};
use crate::lm::source::{DownloadProgress, HubSettings};
use crate::lm::{Device, ModelFiles};
use crate::sweep::{Cell, ModelSpec, Selection, Shard, Sweep};
use crate::task::{Asking, Reading, Samples, TaskSpec};

/// One model and one task: what is opened together.
pub struct Group {
    pub model: ModelSpec,
    pub task: TaskSpec,
    pub files: Arc<ModelFiles>,
    /// Tells the model's weights from others.
    pub revision: Arc<str>,
    pub samples: Samples,
    pub data_digest: String,
    pub bos: bool,
    pub cells: Vec<NamedCell>,
}

impl Group {
    /// Whether it is measured against the clock.
    pub(super) fn is_timed(&self) -> bool {
        matches!(self.samples, Samples::Repeats(..))
    }
}

/// A cell and what the ledger knew of it when the run started.
#[derive(Debug)]
pub struct NamedCell {
    pub cell: Cell,
    pub name: CellName,
    pub status: Status,
}

impl NamedCell {
    /// How this cell reads a sample.
    pub fn reading(&self) -> Reading {
        let task = &self.cell.task;
        Reading {
            rule: self.cell.rule,
            positions: self.cell.positions,
            prefill: task.prefill(),
            query_aware: task.style().is_none_or(|style| style.query_aware),
            seed: self.cell.seed,
            compare: matches!(task, TaskSpec::Perplexity(perplexity) if perplexity.compare_to_full),
        }
    }

    /// Samples that are measured already.
    pub fn samples_done(&self) -> usize {
        match &self.status {
            Status::Done => usize::MAX,
            Status::Partial { samples } | Status::Failed { samples, .. } => *samples,
            Status::Missing => 0,
        }
    }
}

/// Cells that cannot even be named, as their model or their texts cannot be had.
pub struct Unavailable {
    pub model: String,
    pub task: String,
    pub cells: usize,
    pub error: anyhow::Error,
}

/// What a sweep comes down to on this machine.
pub struct Prepared {
    pub groups: Vec<Group>,
    pub unavailable: Vec<Unavailable>,
    /// Cells another shard takes.
    pub elsewhere: usize,
}

/// Prepares a sweep. `machine` names the machine in the meaning of cells that are timed.
///
/// # Errors
/// A selection that selects nothing, or a ledger that cannot be read; a model or a data set that cannot be had fails
/// its own cells only.
pub fn prepare(
    sweep: &Sweep,
    selection: &Selection,
    ledger: Option<&Ledger>,
    hub: &HubSettings,
    progress: &dyn DownloadProgress,
    machine: &str,
) -> Result<Prepared> {
    let cells = selection.of(sweep.expand())?;
    let mut prepared = Prepared { groups: Vec::new(), unavailable: Vec::new(), elsewhere: 0 };
    let mut rest = cells.as_slice();
    let mut found: Option<(ModelSpec, Found)> = None;
    while let Some(first) = rest.first() {
        // Cells come ordered by model, then by task.
        // What the unbounded cache cannot notice does not decide which samples a task has: cells that agree in the rest
        // share their readings.
        let task = first.task.clone().unbounded();
        let same = |cell: &&Cell| cell.model == first.model && cell.task.clone().unbounded() == task;
        let together = rest.iter().take_while(same).count();
        let (cells, others) = rest.split_at(together);
        rest = others;
        let files = match &found {
            Some((model, files)) if *model == first.model => Ok(files.clone()),
            _ => find(&first.model, hub, progress),
        };
        let group = files.and_then(|files| {
            found = Some((first.model.clone(), files.clone()));
            group(files, &task, cells, (hub, progress), machine)
        });
        match group {
            Ok(group) => prepared.groups.push(group),
            Err(error) => prepared.unavailable.push(Unavailable {
                model: first.model.to_string(),
                task: first.task.name().into(),
                cells: cells.len(),
                error,
            }),
        }
    }
    if let Some(shard) = selection.shard {
        prepared.keep_share(shard);
    }
    if let Some(ledger) = ledger {
        for named in prepared.groups.iter_mut().flat_map(|group| &mut group.cells) {
            named.status = ledger.status(&named.name)?;
        }
    }
    Ok(prepared)
}

impl Prepared {
    /// Leaves the cells of one share. Whatever of them is measured already, and whatever the machine, the shares of a
    /// sweep are the same, so that the tasks of an array job need not speak to each other.
    fn keep_share(&mut self, shard: Shard) {
        let shares =
            self.shares(shard.count(), |group, cell| cost::whole(group, cell, &Device::Cpu, Speed::NOMINAL));
        for group in &mut self.groups {
            let all = group.cells.len();
            group.cells.retain(|named| shares[&named.name.id()] == shard.index());
            self.elsewhere += all - group.cells.len();
        }
    }

    /// The cells cut into `count` shares of about the same time: the share of each, from 0.
    pub(super) fn shares(
        &self,
        count: usize,
        cost: impl Fn(&Group, &NamedCell) -> Cost,
    ) -> BTreeMap<CellId, usize> {
        let mut models: Vec<(&str, &ModelSpec)> = Vec::new();
        let mut commons = Vec::new();
        let mut pieces = Vec::new();
        let mut ids = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            let model = (&*group.revision, &group.model);
            let model = models.iter().position(|known| *known == model).unwrap_or_else(|| {
                models.push(model);
                models.len() - 1
            });
            commons.push(Common { model, opening: cost::opening(group, Speed::NOMINAL) });
            for cell in &group.cells {
                pieces.push(Piece { group: index, cost: cost(group, cell) });
                ids.push(cell.name.id());
            }
        }
        ids.into_iter().zip(shares::cut(&pieces, &commons, count)).collect()
    }
}

/// A model's files, and what tells its weights from others.
type Found = (Arc<ModelFiles>, Arc<str>);

fn find(model: &ModelSpec, hub: &HubSettings, progress: &dyn DownloadProgress) -> Result<Found> {
    let files = ModelFiles::find(&model.source, hub, progress)?;
    let files = match model.rope_scaling {
        Some(rope_override) => files.with_rope_override(rope_override)?,
        None => files,
    };
    let revision = files.revision()?.into();
    Ok((Arc::new(files), revision))
}

fn group(
    (files, revision): Found,
    task: &TaskSpec,
    cells: &[Cell],
    (hub, progress): (&HubSettings, &dyn DownloadProgress),
    machine: &str,
) -> Result<Group> {
    let Asking { samples, digest: data_digest, bos } = Asking::prepare(task, &files, hub, progress, machine)?;
    let named = cells.iter().map(|cell| {
        let name = cell.name(cell.id(&revision, &data_digest));
        NamedCell { cell: cell.clone(), name, status: Status::Missing }
    });
    Ok(Group {
        model: cells[0].model.clone(),
        task: task.clone(),
        cells: named.collect(),
        revision,
        files,
        samples,
        data_digest,
        bos,
    })
}

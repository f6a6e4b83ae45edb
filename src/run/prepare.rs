//! Prepares a sweep: finds models, makes samples, names cells, and looks them up in the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;

use super::cost::{self, Cost, Speed};
use super::shards::{self, Common, Piece};
use crate::eviction::CacheRule;
use crate::ledger::{CellId, CellName, Ledger, Status};
use crate::lm::source::{DownloadProgress, HubSettings};
use crate::lm::{Device, ModelFiles};
use crate::sweep::{Cell, ModelSpec, Selection, Shard, Sweep};
use crate::task::{CacheConfig, PrepareContext, PreparedTask, Samples, TaskSpec};

/// One model with one task, and their cells.
pub struct ModelTask {
    pub model: ModelSpec,
    pub task: TaskSpec,
    pub files: Arc<ModelFiles>,
    /// Identifies the model's weights.
    pub revision: Arc<str>,
    pub samples: Box<dyn Samples>,
    pub bos: bool,
    pub cells: Vec<NamedCell>,
}

/// A cell and what the ledger knew of it when the run started.
#[derive(Debug)]
pub struct NamedCell {
    pub cell: Cell,
    pub name: CellName,
    pub status: Status,
}

impl NamedCell {
    /// The cache that the cell is measured with.
    pub fn cache_config(&self) -> CacheConfig {
        let task = &self.cell.task;
        CacheConfig {
            rule: self.cell.rule,
            positions: self.cell.positions,
            prefill: task.prefill(),
            query_aware: task.generation.as_ref().is_none_or(|generation| generation.query_aware),
            seed: self.cell.seed,
            compare: task.compare_to_full.unwrap_or(false),
        }
    }

    /// Samples that are already measured.
    pub fn samples_done(&self) -> usize {
        match &self.status {
            Status::Done => usize::MAX,
            Status::Partial { samples } | Status::Failed { samples, .. } => *samples,
            Status::Missing => 0,
        }
    }
}

/// Cells whose model or texts are missing, so that they have no id.
pub struct Unavailable {
    pub model: String,
    pub task: String,
    pub cells: usize,
    pub error: anyhow::Error,
}

/// A sweep, ready to run.
pub struct Prepared {
    pub model_tasks: Vec<ModelTask>,
    pub unavailable: Vec<Unavailable>,
    /// Cells another shard takes.
    pub elsewhere: usize,
}

/// Prepares a sweep. `machine` is the machine's name, which is part of the meaning of timed cells.
///
/// # Errors
/// A selection that selects nothing, or a ledger that cannot be read. A missing model or data set fails only its own
/// cells.
pub fn prepare(
    sweep: &Sweep,
    selection: &Selection,
    ledger: Option<&Ledger>,
    hub: &HubSettings,
    progress: &dyn DownloadProgress,
    machine: &str,
) -> Result<Prepared> {
    let cells = selection.of(sweep.expand())?;
    let mut prepared = Prepared { model_tasks: Vec::new(), unavailable: Vec::new(), elsewhere: 0 };
    let mut rest = cells.as_slice();
    let mut found: Option<(ModelSpec, Found)> = None;
    while let Some(first) = rest.first() {
        // Cells are ordered by model, then by task. Settings that have no effect on the full cache do not change a task's
        // samples, so cells that agree in the others share their prefixes.
        let task = first.task.for_rule(CacheRule::Unbounded);
        let same = |cell: &&Cell| cell.model == first.model && cell.task.for_rule(CacheRule::Unbounded) == task;
        let together = rest.iter().take_while(same).count();
        let (cells, others) = rest.split_at(together);
        rest = others;
        let files = match &found {
            Some((model, files)) if *model == first.model => Ok(files.clone()),
            _ => find(&first.model, hub, progress),
        };
        let model_task = files.and_then(|files| {
            found = Some((first.model.clone(), files.clone()));
            let context = PrepareContext { files: &files.0, hub, progress, machine };
            let task_samples = task.prepare(&context)?;
            Ok(model_task(files, &task, cells, task_samples))
        });
        match model_task {
            Ok(model_task) => prepared.model_tasks.push(model_task),
            Err(error) => prepared.unavailable.push(Unavailable {
                model: first.model.to_string(),
                task: first.task.name.into(),
                cells: cells.len(),
                error,
            }),
        }
    }
    if let Some(shard) = selection.shard {
        prepared.keep_shard(shard);
    }
    if let Some(ledger) = ledger {
        for named in prepared.model_tasks.iter_mut().flat_map(|model_task| &mut model_task.cells) {
            named.status = ledger.status(&named.name)?;
        }
    }
    Ok(prepared)
}

impl Prepared {
    /// Keeps the cells of one shard. Shards depend neither on the machine nor on what is already measured, so the tasks of
    /// an array job need no communication.
    fn keep_shard(&mut self, shard: Shard) {
        let cost =
            |model_task: &ModelTask, cell: &NamedCell| cost::whole(model_task, cell, &Device::Cpu, Speed::NOMINAL);
        let shards = self.shards(shard.count(), cost);
        for model_task in &mut self.model_tasks {
            let all = model_task.cells.len();
            model_task.cells.retain(|named| shards[&named.name.id()] == shard.index());
            self.elsewhere += all - model_task.cells.len();
        }
    }

    /// Splits the cells into `count` shards of about the same run time. Returns the shard of each, from 0.
    pub(super) fn shards(
        &self,
        count: usize,
        cost: impl Fn(&ModelTask, &NamedCell) -> Cost,
    ) -> BTreeMap<CellId, usize> {
        let mut models: Vec<(&str, &ModelSpec)> = Vec::new();
        let mut commons = Vec::new();
        let mut pieces = Vec::new();
        let mut ids = Vec::new();
        for (index, model_task) in self.model_tasks.iter().enumerate() {
            let model = (&*model_task.revision, &model_task.model);
            let model = models.iter().position(|known| *known == model).unwrap_or_else(|| {
                models.push(model);
                models.len() - 1
            });
            commons.push(Common { model, loading: cost::loading(model_task) });
            for cell in &model_task.cells {
                pieces.push(Piece { model_task: index, cost: cost(model_task, cell) });
                ids.push(cell.name.id());
            }
        }
        ids.into_iter().zip(shards::split(&pieces, &commons, count)).collect()
    }
}

/// A model's files, and its revision.
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

fn model_task((files, revision): Found, task: &TaskSpec, cells: &[Cell], prepared: PreparedTask) -> ModelTask {
    let PreparedTask { samples, digest, bos } = prepared;
    let named = cells.iter().map(|cell| {
        let name = cell.name(cell.id(&revision, &digest));
        NamedCell { cell: cell.clone(), name, status: Status::Missing }
    });
    ModelTask {
        model: cells[0].model.clone(),
        task: task.clone(),
        cells: named.collect(),
        revision,
        files,
        samples,
        bos,
    }
}

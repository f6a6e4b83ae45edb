//! Prepares a sweep: finds models, makes samples, names cells, and looks them up in the ledger.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use indexmap::{IndexMap, IndexSet};

use super::cost::{self, Cost};
use super::missing::MissingPath;
use super::shards::{self, Piece};
use crate::eviction::CacheSpec;
use crate::ledger::{CellId, CellName, Ledger, Manifest, ManifestCell, Status, Text};
use crate::lm::source::{DownloadProgress, Hub, HubSettings};
use crate::lm::{Device, ModelFiles};
use crate::sweep::{Cell, ModelSpec, ResolvedCell, SelectedCells, Shard, Sweep};
use crate::task::{CacheConfig, PrepareContext, PreparedTask, Samples, TaskSpec, digest_of};

/// One model with one task, and their cells.
pub struct ModelTask {
    pub model: ModelSpec,
    pub task: TaskSpec,
    pub files: Arc<ModelFiles>,
    /// Identifies the model's weights.
    pub revision: Arc<str>,
    pub samples: Box<dyn Samples>,
    /// The work of each sample, in tokens. A prefix that samples share counts once.
    pub work: Vec<usize>,
    /// Digest of the texts.
    pub data: Arc<str>,
    pub bos: bool,
    /// Cells to measure, each once, under the first of its names.
    pub cells: Vec<NamedCell>,
    /// Further names of cells.
    pub aliases: Vec<Alias>,
    /// Digests of what the samples' measurements depend on; `None`: a measurement is never used again.
    contents: Vec<Option<String>>,
}

/// A cell under another name of its policy: a definition that equals a preset, say.
pub struct Alias {
    pub cell: ResolvedCell,
    /// The policy under which it is measured.
    pub of: String,
}

/// A cell and what the ledger knew of it when the run started.
#[derive(Debug)]
pub struct NamedCell {
    pub cell: ResolvedCell,
    pub name: CellName,
    pub status: Status,
    /// Estimated seconds on the nominal machine.
    pub cost: Cost,
    /// Samples that another cell of the ledger has: their numbers, and the files they are in.
    pub reusable: BTreeMap<usize, PathBuf>,
}

impl NamedCell {
    /// Whether a sample is measured already, in this cell or in another.
    pub fn is_measured(&self, sample: usize) -> bool {
        match &self.status {
            Status::Done => true,
            Status::Partial { samples } | Status::Failed { samples, .. } if samples.contains(&sample) => true,
            _ => self.reusable.contains_key(&sample),
        }
    }
}

/// Cells whose model or texts are missing, or whose cache the model cannot have, so that they have no id.
pub struct Unavailable {
    pub model: String,
    pub task: String,
    pub cells: usize,
    pub error: anyhow::Error,
}

/// A sweep, ready to run.
#[derive(Default)]
pub struct Prepared {
    pub model_tasks: Vec<ModelTask>,
    pub unavailable: Vec<Unavailable>,
    /// Cells another shard takes.
    pub in_other_shards: usize,
    /// All cells of the sweep, selected or not; those whose model or texts were not read have no id.
    pub manifest: Manifest,
}

impl ModelTask {
    /// Says why the host computes the attention of a cell although there is a GPU; `None` where the GPU does.
    pub fn why_on_host(&self, cell: &NamedCell) -> Option<Cow<'static, str>> {
        let (config, shape) = (self.cache_config(cell), &self.files.shape);
        let policy = (self.samples.len() > 0).then(|| config.sized_for(shape, &self.samples.lengths(0, &config)));
        shape.why_on_host(policy.flatten(), cell.cell.cache.options)
    }

    /// Whether the host computes the attention of a cell beside this device, which computes that of others.
    pub(super) fn is_on_host(&self, device: &Device, cell: &NamedCell) -> bool {
        device.has_attention() && self.why_on_host(cell).is_some()
    }

    /// Lists what the host computes although there is a GPU, a sentence for each reason.
    pub fn on_host(&self) -> Vec<String> {
        let mut by_reason: IndexMap<Cow<'static, str>, IndexSet<String>> = IndexMap::new();
        for cell in &self.cells {
            if let Some(reason) = self.why_on_host(cell) {
                by_reason.entry(reason).or_default().insert(cell.cell.label());
            }
        }
        let line = |(reason, policies): (Cow<'static, str>, IndexSet<String>)| {
            let policies: Vec<String> = policies.into_iter().collect();
            format!("on a GPU the processor computes attention of {}: {reason}", policies.join(", "))
        };
        by_reason.into_iter().map(line).collect()
    }

    /// Makes the configuration of the cache that a cell is measured with.
    pub fn cache_config(&self, cell: &NamedCell) -> CacheConfig {
        cell.cell.cache_config(&self.files.shape)
    }

    /// The id of a sample under the cache of a cell.
    pub fn sample_id(&self, cell: &NamedCell, sample: usize) -> Option<Text> {
        let content = self.contents[sample].as_deref()?;
        Some(cell.cell.sample_id(&self.revision, content).to_string().into())
    }

    /// The samples of a cell that are measured already: how many, and their part of the work of all, from 0 to 1.
    pub fn measured(&self, cell: &NamedCell) -> (usize, f64) {
        let measured: Vec<usize> = (0..self.samples.len()).filter(|sample| cell.is_measured(*sample)).collect();
        let work: usize = measured.iter().map(|sample| self.work[*sample]).sum();
        (measured.len(), work as f64 / self.total_work().max(1) as f64)
    }

    /// The part of a sample in the work of all.
    pub(super) fn share(&self, sample: usize) -> f64 {
        self.work[sample] as f64 / self.total_work().max(1) as f64
    }

    /// The seconds of a cell on the nominal machine, with its part of the prefix.
    pub(super) fn seconds(&self, cell: &NamedCell) -> f64 {
        cell.cost.own + cell.cost.shared / self.cells.len().max(1) as f64
    }

    /// The work of all samples, in tokens.
    pub fn total_work(&self) -> usize {
        self.work.iter().sum()
    }
}

/// Prepares the selected cells of a sweep. `machine` is the machine's name, which is part of the meaning of timed cells.
///
/// # Errors
/// A ledger that cannot be read. A missing model or data set fails only its own
/// cells, and so does a budget that does not fit the model.
pub fn prepare(
    sweep: &Sweep,
    cells: &SelectedCells,
    ledger: Option<&Ledger>,
    hub: &HubSettings,
    progress: &dyn DownloadProgress,
    machine: &str,
) -> Result<Prepared> {
    let mut names = Names::default();
    let mut prepared = Prepared::default();
    let mut found: Option<(&ModelSpec, Found)> = None;
    let hub = Hub { settings: hub, progress };
    // Cells are ordered by model, then by task, and those whose tasks have the same samples share prefixes. Settings without an
    // effect on the full cache do not change samples.
    let task_of = |cell: &Cell| cell.task.for_cache(&CacheSpec::default());
    for cells in cells.selected.chunk_by(|a, b| a.model == b.model && task_of(a) == task_of(b)) {
        let (first, task) = (&cells[0], task_of(&cells[0]));
        let files = match &found {
            Some((model, files)) if **model == first.model => Ok(files.clone()),
            _ => find(&first.model, &hub),
        };
        let model_task = files.and_then(|(files, revision)| {
            found = Some((&first.model, (Arc::clone(&files), Arc::clone(&revision))));
            let texts = task.prepare(&PrepareContext { files: &files, hub: &hub, machine })?;
            Ok(names.model_task(cells, task, (files, revision), texts))
        });
        let unavailable = |cells: usize, error: anyhow::Error| {
            let (model, task) = (first.model.to_string(), first.task.name.to_string());
            Unavailable { model, task, cells, error }
        };
        match model_task {
            Ok((model_task, refused)) => {
                prepared.unavailable.extend(refused.into_iter().map(|error| unavailable(1, error)));
                prepared.model_tasks.push(model_task);
            }
            Err(error) => {
                let error = MissingPath::or(error, sweep, &first.model, &first.task);
                prepared.unavailable.push(unavailable(cells.len(), error));
            }
        }
    }
    prepared.manifest = Manifest {
        sweep: sweep.name.as_str().into(),
        seed: sweep.seed,
        contrasts: sweep.contrasts.clone(),
        cells: cells.sweep.iter().map(|cell| manifest_cell(cell, names.resolved.get(&cell.spec()))).collect(),
    };
    if let Some(shard) = cells.shard {
        prepared.keep_shard(shard);
    }
    if let Some(ledger) = ledger {
        prepared.find_measured(ledger)?;
    }
    Ok(prepared)
}

/// Cells that have an id so far.
#[derive(Default)]
struct Names {
    /// The label of each cell that has an id.
    ids: HashMap<CellId, String>,
    /// Id and number of samples of each cell, by the digest of what the sweep asks for.
    resolved: HashMap<Text, (CellId, usize)>,
}

impl Names {
    /// Names the cells of a model and a task; also returns why the model cannot have the others.
    fn model_task(
        &mut self,
        cells: &[Cell],
        task: TaskSpec,
        (files, revision): Found,
        texts: PreparedTask,
    ) -> (ModelTask, Vec<anyhow::Error>) {
        let PreparedTask { samples, digest, bos } = texts;
        let contents = (0..samples.len()).map(|sample| samples.content(sample).map(|text| digest_of([text])));
        let contents: Vec<Option<String>> = contents.collect();
        // Files of a model that its revision leaves out (templates, special tokens, ends of texts) change numbers only through samples.
        let used = digest_of([&digest].into_iter().chain(contents.iter().flatten()));
        let model = &cells[0].model;
        let dtype = files.weight_type(model.dtype);
        let (mut named, mut aliases, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for asked in cells {
            let cell = match asked
                .resolve(&files.shape, dtype, bos, |config| samples.largest_cache(&files.shape, config))
            {
                Ok(cell) => cell,
                Err(error) => {
                    refused.push(error);
                    continue;
                }
            };
            let id = cell.id(&revision, &used);
            self.resolved.insert(asked.spec(), (id, samples.len()));
            match self.ids.get(&id) {
                Some(of) => aliases.push(Alias { cell, of: of.clone() }),
                None => {
                    self.ids.insert(id, cell.label());
                    let name = cell.name(id);
                    let (status, cost, reusable) = (Status::Missing, Cost::default(), BTreeMap::new());
                    named.push(NamedCell { cell, name, status, cost, reusable });
                }
            }
        }
        let work = (0..samples.len()).map(|sample| samples.work(sample)).collect();
        let (model, data, cells) = (model.clone(), digest.into(), named);
        let mut model_task =
            ModelTask { model, task, files, revision, samples, work, data, bos, cells, aliases, contents };
        let costs: Vec<Cost> = model_task.cells.iter().map(|cell| Cost::nominal(&model_task, cell)).collect();
        model_task.cells.iter_mut().zip(costs).for_each(|(cell, cost)| cell.cost = cost);
        (model_task, refused)
    }
}

fn manifest_cell(cell: &Cell, found: Option<&(CellId, usize)>) -> ManifestCell {
    ManifestCell {
        spec: cell.spec(),
        cell: found.map(|(id, _)| id.to_string().into()),
        model: cell.model.to_string().into(),
        dataset: cell.task.dataset.as_str().into(),
        policy: cell.policy.as_str().into(),
        samples: found.map_or(0, |(_, samples)| *samples),
        timed: cell.task.is_timed(),
    }
}

impl Prepared {
    /// Finds what the ledger has of the cells, and the samples of open cells that other cells have.
    fn find_measured(&mut self, ledger: &Ledger) -> Result<()> {
        let mut cells: Vec<_> = self.model_tasks.iter_mut().flat_map(|task| &mut task.cells).collect();
        let statuses = ledger.statuses(cells.iter().map(|cell| &cell.name))?;
        cells.iter_mut().zip(statuses).for_each(|(cell, status)| cell.status = status);
        let mut wanted = HashSet::new();
        let mut lacking: BTreeMap<CellId, Vec<(usize, Text)>> = BTreeMap::new();
        for model_task in &self.model_tasks {
            for cell in model_task.cells.iter().filter(|cell| cell.status != Status::Done) {
                let open = (0..model_task.samples.len()).filter(|sample| !cell.is_measured(*sample));
                let ids = open.filter_map(|sample| Some((sample, model_task.sample_id(cell, sample)?)));
                let ids: Vec<(usize, Text)> = ids.collect();
                wanted.extend(ids.iter().map(|(_, id)| id.clone()));
                lacking.insert(cell.name.id(), ids);
            }
        }
        let measured = ledger.measured(&wanted)?;
        for cell in self.model_tasks.iter_mut().flat_map(|model_task| &mut model_task.cells) {
            let ids = lacking.remove(&cell.name.id()).unwrap_or_default().into_iter();
            cell.reusable = ids.filter_map(|(sample, id)| Some((sample, measured.get(&id)?.clone()))).collect();
        }
        Ok(())
    }

    /// Keeps the cells of one shard. Shards depend neither on the machine nor on what is already measured, so the tasks of
    /// an array job need no communication.
    fn keep_shard(&mut self, shard: Shard) {
        let shards = self.shards(shard.count, |_, cell| cell.cost);
        for model_task in &mut self.model_tasks {
            let all = model_task.cells.len();
            model_task.cells.retain(|named| shards[&named.name.id()] == shard.index);
            self.in_other_shards += all - model_task.cells.len();
        }
    }

    /// Splits the cells into `count` shards of about the same run time. Returns the shard of each, from 0.
    pub(super) fn shards(
        &self,
        count: usize,
        cost: impl Fn(&ModelTask, &NamedCell) -> Cost,
    ) -> BTreeMap<CellId, usize> {
        let mut pieces = Vec::new();
        for (index, model_task) in self.model_tasks.iter().enumerate() {
            let is_same =
                |other: &ModelTask| other.revision == model_task.revision && other.model == model_task.model;
            let model = self.model_tasks.iter().position(is_same).unwrap_or(index);
            let loading = cost::loading(model_task);
            pieces.extend(model_task.cells.iter().map(|cell| {
                let cost = cost(model_task, cell);
                Piece { cost, model_task: index, model, loading }
            }));
        }
        let cells = self.model_tasks.iter().flat_map(|model_task| &model_task.cells);
        cells.map(|cell| cell.name.id()).zip(shards::split(&pieces, count)).collect()
    }
}

/// A model's files, and its revision.
type Found = (Arc<ModelFiles>, Arc<str>);

fn find(model: &ModelSpec, hub: &Hub<'_>) -> Result<Found> {
    let files = ModelFiles::find(&model.source, model.tokenizer.as_ref(), hub.settings, hub.progress)?;
    let files = match model.rope_scaling {
        Some(rope_override) => files.with_rope_override(rope_override)?,
        None => files,
    };
    let files = files.with_arithmetic(model.arithmetic);
    let revision = files.revision()?.into();
    Ok((Arc::new(files), revision))
}

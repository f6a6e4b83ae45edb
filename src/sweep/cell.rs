//! A cell: one experiment, identified by its meaning.
//!
//! The id of a cell is a digest of one canonical encoding of its meaning, so equal experiments share a result file whatever the
//! sweep calls them, and different ones never do. Display names, devices, dates and commits are not part of the meaning. Once
//! published, an id must not change silently: a test pins one.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::eviction::{Budget, CacheRule, CacheSpec, LocalLayers, Policy, Score, SizedPolicy, presets};
use crate::ledger::{CellId, CellName, ENGINE_VERSION, SCHEMA_VERSION, Text};
use crate::lm::source::ModelSource;
use crate::lm::{Arithmetic, ModelShape, RopeOverride, WeightType};
use crate::task::{CacheConfig, GenerationConfig, Setting, TaskSpec};

/// One entry of `models:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelSpec {
    /// Name in tables and rows; `None`: the description of the model.
    pub name: Option<String>,
    pub source: ModelSource,
    /// Where the tokenizer comes from, unless from the source.
    pub tokenizer: Option<ModelSource>,
    pub dtype: WeightType,
    pub arithmetic: Arithmetic,
    pub rope_scaling: Option<RopeOverride>,
}

impl ModelSpec {
    /// The source, followed by an override of positions, another tokenizer, and an arithmetic other than f32.
    pub fn described(&self) -> String {
        let tokenizer = self.tokenizer.as_ref().map(|tokenizer| format!("tokenizer {tokenizer}"));
        let arithmetic = Some(self.arithmetic.name().to_owned()).filter(|_| self.arithmetic != Arithmetic::F32);
        let rope_scaling = self.rope_scaling.map(|rope_override| rope_override.to_string());
        let changes = rope_scaling.into_iter().chain(tokenizer).chain(arithmetic);
        let changes: Vec<String> = changes.collect();
        if changes.is_empty() {
            self.source.to_string()
        } else {
            format!("{} ({})", self.source, changes.join(", "))
        }
    }
}

impl fmt::Display for ModelSpec {
    /// Writes the name that tables and rows have.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_ref().unwrap_or(&self.described()))
    }
}

/// One experiment as a sweep asks for it: one model under one cache doing one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub model: ModelSpec,
    /// The policy as the sweep calls it: `full`, `truncate`, a preset, or a name under `define:`.
    pub policy: String,
    pub cache: CacheSpec,
    pub task: TaskSpec,
}

/// A cell as a model takes it. However a sweep wrote it, the same experiment is the same resolved cell, from which ids are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedCell(Cell);

impl Deref for ResolvedCell {
    type Target = Cell;

    fn deref(&self) -> &Cell {
        &self.0
    }
}

impl Cell {
    /// Writes the size as the sweep has it: `64`, `25%` or `memory 25%`; `None` for the unbounded cache.
    pub fn size_text(&self) -> Option<String> {
        let entries = || self.cache.rule.size().map(|size| size.to_string());
        self.cache.relative.map(|relative| relative.to_string()).or_else(entries)
    }

    /// Writes the policy as a sweep would: `tova`, `tova@cut` where the prompt is cut and a preset of the name does not cut it,
    /// `tova@squeezed` where keys move, or `tova@exempt` where layers with a window are left alone.
    pub fn label(&self) -> String {
        let own_schedule = presets::own_schedule(&self.policy).to_string();
        let shown = self.kinds().into_iter().filter(|kind| *kind != own_schedule);
        std::iter::once(self.policy.clone()).chain(shown).collect::<Vec<_>>().join("@")
    }

    /// Lists what a sweep can write after the policy's name: its schedule, and the options that are not usual.
    pub fn kinds(&self) -> Vec<String> {
        let CacheSpec { rule, options, .. } = self.cache;
        let schedule = rule.policy().map(|policy| policy.schedule.to_string());
        schedule.into_iter().chain(options.unusual().map(Cow::into_owned)).collect()
    }

    /// Makes the configuration of the cache for a model of this shape.
    pub fn cache_config(&self, shape: &ModelShape) -> CacheConfig {
        CacheConfig {
            cache: self.cache,
            query_aware: self.task.generation.as_ref().is_none_or(|generation| generation.query_aware),
            compare: self.task.compare_to_full.unwrap_or(false),
            log: false,
            bounded: shape.bounded_layers(self.cache.options),
            kv_heads: shape.heads.kv_heads,
        }
    }

    /// Resolves the cell for a model of this shape: its weights in the type `dtype` that they have, its samples with or without BOS, the
    /// `largest_cache` that one of its samples has, no setting for windows that the model does not have, and no budget that gives each of its
    /// heads the same.
    ///
    /// # Errors
    /// A cache that the model cannot have.
    pub fn resolve(
        &self,
        shape: &ModelShape,
        dtype: WeightType,
        bos: bool,
        largest_cache: impl FnOnce(&CacheConfig) -> Result<CacheSpec>,
    ) -> Result<ResolvedCell> {
        let refused = || match self.size_text() {
            Some(size) => format!("policy `{}` cannot have a cache of {size}", self.label()),
            None => format!("policy `{}` cannot be used", self.label()),
        };
        let mut cell = self.clone();
        cell.cache = largest_cache(&self.cache_config(shape)).with_context(refused)?;
        shape.check_cache(&cell.cache, self.task.length).with_context(refused)?;
        cell.model.dtype = dtype;
        cell.task = cell.task.with_bos(bos);
        let bounded = shape.bounded_layers(cell.cache.options);
        let is_uniform = |policy: SizedPolicy| policy.is_uniform(bounded, shape.heads.kv_heads);
        if let (Some(sized), CacheRule::Evict { policy, .. }) = (cell.cache.rule.sized(), &mut cell.cache.rule)
            && is_uniform(sized)
        {
            *policy = Policy { budget: Budget::Uniform, ..*policy }.canonical();
        }
        if !shape.has_windows() {
            cell.cache.options.local_layers = LocalLayers::Bounded;
        }
        Ok(ResolvedCell(cell))
    }

    /// Names the cell's files.
    pub fn name(&self, id: CellId) -> CellName {
        let source = self.model.source.to_string();
        let policy = self.cache.relative.map_or(self.label(), |relative| format!("{} {relative}", self.label()));
        // Only the last part of a folder: the path to it does not say what it is.
        let model = match &self.model.source {
            ModelSource::Folder(path) | ModelSource::File(path) => path.rsplit('/').find(|part| !part.is_empty()),
            _ => None,
        };
        CellName::new(id, self.task.name, model.unwrap_or(&source), &policy, self.cache.rule.size())
    }

    /// Digest of what the sweep says of the cell, known before model and texts are.
    pub fn spec(&self) -> Text {
        let model = self.model.described();
        let asked = Meaning {
            request: self.task.request.as_deref(),
            ..self.meaning(&model, self.task.of_cell(), &self.task.dataset)
        };
        asked.digest().to_string().into()
    }

    /// Collects what the cell's numbers depend on. `revision` identifies the model's weights, `task` has the task's settings, and `content`
    /// identifies the texts.
    pub(super) fn meaning<'a>(&'a self, revision: &'a str, task: Vec<Setting>, content: &'a str) -> Meaning<'a> {
        let samples = self.task.generation.as_ref().is_some_and(GenerationConfig::samples);
        let draws = self.cache.rule.policy().is_some_and(|policy| policy.scores().any(Score::draws));
        Meaning {
            schema: SCHEMA_VERSION,
            engine: ENGINE_VERSION,
            model: revision,
            dtype: self.model.dtype.name(),
            arithmetic: self.model.arithmetic.name(),
            cache: CacheSpec { seed: 0, ..self.cache },
            task,
            content,
            seed: (samples || draws).then_some(self.cache.seed),
            request: None,
        }
    }
}

/// What a measurement depends on. Its JSON is the canonical text that ids are digests of.
#[derive(Serialize)]
pub(super) struct Meaning<'a> {
    schema: u32,
    engine: u32,
    model: &'a str,
    dtype: &'a str,
    arithmetic: &'a str,
    cache: CacheSpec,
    task: Vec<Setting>,
    content: &'a str,
    /// Seed, where it can change a number.
    seed: Option<u64>,
    /// Request of a story; `None` once the texts are known, of which it is a part.
    request: Option<&'a str>,
}

impl Meaning<'_> {
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("its keys are texts")
    }

    fn digest(&self) -> CellId {
        CellId::of(&self.text())
    }
}

impl ResolvedCell {
    /// The content id. `revision` is the hub's commit or a digest of the checkpoint's files, `data` a digest of the texts and of what the
    /// model makes of them; for timed tasks it names the machine, which is not part of other meanings.
    pub fn id(&self, revision: &str, data: &str) -> CellId {
        self.meaning(revision, self.task.of_cell(), data).digest()
    }

    /// The id of one of the cell's samples, from a digest of its own content: all that its measurement depends on. It is the
    /// same in every cell that has the sample under this cache.
    pub fn sample_id(&self, revision: &str, content: &str) -> CellId {
        self.meaning(revision, self.task.of_sample(), content).digest()
    }
}

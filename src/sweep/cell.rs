//! A cell: one experiment, identified by its meaning.
//!
//! The id of a cell is a hash of a canonical text ([`Cell::canonical_text`]), so equal experiments share a result file
//! whatever the sweep calls them, and different ones never do. Display names, devices, dates and commits are not part of
//! the meaning. Once published, an id must not change silently: a test pins one.

use std::fmt;

use anyhow::{Context, Result};

use crate::eviction::{Budget, CacheRule, LocalLayers, Policy, Positions, Schedule, Score, SizeShare, presets};
use crate::ledger::{CellId, CellName, ENGINE_VERSION, SCHEMA_VERSION, Text};
use crate::lm::source::ModelSource;
use crate::lm::{Arithmetic, ModelShape, RopeOverride, WeightType};
use crate::task::{GenerationConfig, TaskSpec, option, quoted};

/// One entry of `models:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelSpec {
    /// As tables and rows call it; by default what it is.
    pub name: Option<String>,
    pub source: ModelSource,
    /// Where the tokenizer comes from, unless from the source.
    pub tokenizer: Option<ModelSource>,
    pub dtype: WeightType,
    pub arithmetic: Arithmetic,
    pub rope_scaling: Option<RopeOverride>,
}

impl ModelSpec {
    /// What it is: the source, with what is done to its positions, and another arithmetic than f32.
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
    /// As tables and rows call it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_ref().unwrap_or(&self.described()))
    }
}

/// One experiment: one model under one cache rule doing one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub model: ModelSpec,
    /// The policy as the sweep calls it: `full`, `truncate`, a preset, or a name under `define:`.
    pub policy: String,
    pub rule: CacheRule,
    /// The share that the rule's size is, if the sweep says a share. Of a prompt that is cut, the size is that of the longest.
    pub share: Option<SizeShare>,
    pub positions: Positions,
    /// What the policy does in layers with a window of their own.
    pub local_layers: LocalLayers,
    pub task: TaskSpec,
    /// Whether prompts are cut in layers with a window. Such cells were measured wrongly once, and have other ids since.
    pub cuts_windows: bool,
    /// Used only by a random score, or by texts drawn at a temperature.
    pub seed: u64,
}

impl Cell {
    /// Entries per layer and key-value head, the mean over layers under a budget; `None` for the unbounded cache.
    pub fn size(&self) -> Option<usize> {
        match self.rule {
            CacheRule::Unbounded => None,
            CacheRule::Truncate { size } | CacheRule::Evict { size, .. } => Some(size),
        }
    }

    /// When entries leave; of caches from which none does, the default.
    pub fn schedule(&self) -> Schedule {
        self.rule.schedule()
    }

    /// The size as the sweep says it: `64` or `25%`; `None` for the unbounded cache.
    pub fn size_text(&self) -> Option<String> {
        let entries = || self.size().map(|size| size.to_string());
        self.share.map(|share| share.to_string()).or_else(entries)
    }

    /// The policy as a sweep would write it: `tova`, `tova@cut` where the prompt is cut and a preset of the name does not cut it,
    /// `tova@squeezed` where keys move, or `tova@exempt` where layers with a window are left alone.
    pub fn label(&self) -> String {
        let own_schedule = presets::own_schedule(&self.policy).to_string();
        let shown = self.kinds().into_iter().filter(|kind| *kind != own_schedule);
        std::iter::once(self.policy.clone()).chain(shown).collect::<Vec<_>>().join("@")
    }

    /// What a sweep can write after the policy's name: its schedule, the positions of its keys and the layers that it leaves alone.
    pub fn kinds(&self) -> Vec<String> {
        let schedule = matches!(self.rule, CacheRule::Evict { .. }).then(|| self.rule.schedule().to_string());
        let positions = (self.positions != Positions::Absolute).then(|| self.positions.name().to_string());
        let local_layers =
            (self.local_layers != LocalLayers::Bounded).then(|| self.local_layers.name().to_string());
        [schedule, positions, local_layers].into_iter().flatten().collect()
    }

    /// Whether the seed can change a number of this cell.
    pub fn uses_seed(&self) -> bool {
        let samples = self.task.generation.as_ref().is_some_and(GenerationConfig::samples);
        samples || matches!(self.rule, CacheRule::Evict { policy, .. } if policy.scores().any(Score::draws))
    }

    /// Refuses a cache that a model of this shape cannot have.
    ///
    /// # Errors
    /// A budget for another number of layers, or one that leaves a layer too small for what is protected; a schedule that layers
    /// with a window cannot have.
    pub fn check_model(&self, shape: &ModelShape) -> Result<()> {
        let CacheRule::Evict { policy, size } = self.rule else { return Ok(()) };
        shape
            .check_positions(self.positions)
            .with_context(|| format!("policy `{}` cannot be used", self.label()))?;
        let bounded = shape.windows_pass(self.task.length) && self.local_layers == LocalLayers::Bounded;
        policy
            .check(size, shape.bounded_layers(self.local_layers), shape.heads.kv_heads)
            .and_then(|()| policy.scores().try_for_each(|score| shape.check_score(score)))
            .and_then(|()| if bounded { policy.check_windows() } else { Ok(()) })
            .with_context(|| format!("policy `{}` cannot have a cache of {size}", self.label()))
    }

    /// The cell as a model takes it: its weights in the type they have, its samples with or without BOS, no setting
    /// for windows that it does not have, and no budget that gives each of its heads the same. However the sweep
    /// wrote these, the meaning is the same. `heads` are the layers that the policy may bound, and the key-value heads of each.
    #[must_use]
    pub fn resolved(&self, dtype: WeightType, bos: bool, heads: (&[bool], usize), has_windows: bool) -> Cell {
        let model = ModelSpec { dtype, ..self.model.clone() };
        let cuts_windows = has_windows && self.local_layers == LocalLayers::Bounded && self.rule.awaits_prompt();
        let local_layers = if has_windows { self.local_layers } else { LocalLayers::Bounded };
        let rule = match self.rule {
            CacheRule::Evict { policy, size }
                if self.rule.sized().is_some_and(|own| own.is_uniform(heads.0, heads.1)) =>
            {
                CacheRule::Evict { policy: Policy { budget: Budget::Uniform, ..policy }.canonical(), size }
            }
            rule => rule,
        };
        Cell { model, rule, local_layers, cuts_windows, task: self.task.with_bos(bos), ..self.clone() }
    }

    /// The meaning of the cell as `key=value` lines, in a fixed order, each ended by a newline. `model_revision` is the
    /// hub's commit or a digest of the checkpoint's files, `data_digest` a digest of the texts and of what the model makes of them. For timed tasks it names the
    /// machine, which is not part of other meanings. The lines of the task are those of its `Display`; `seed` is there only
    /// if it can change a number.
    pub fn canonical_text(&self, model_revision: &str, data_digest: &str) -> String {
        // The same number of entries under another name is shown by itself.
        self.text(model_revision, &self.task.to_string(), self.share, ("data", data_digest))
    }

    /// The id of one of the cell's samples, from a digest of its own content: all that its measurement depends on. It is the
    /// same in every cell that has the sample under this cache.
    pub fn sample_id(&self, model_revision: &str, digest: &str) -> CellId {
        // A sample's share of its own prompt is not that of the longest.
        let share = self.share.filter(|_| self.schedule().cuts());
        CellId::of(&self.text(model_revision, &self.task.of_sample(), share, ("sample", digest)))
    }

    fn text(
        &self,
        model_revision: &str,
        task: &str,
        share: Option<SizeShare>,
        (content, digest): (&str, &str),
    ) -> String {
        let rule = match self.rule {
            CacheRule::Unbounded => "unbounded".to_string(),
            CacheRule::Truncate { size } => format!("truncate size={size}"),
            CacheRule::Evict { policy, size } => match policy.at(size) {
                Ok(sized) => format!("evict {sized}"),
                Err(_) => format!("evict {policy} size={size}"),
            },
        };
        // A line break inside a value would let two meanings share one text.
        let (model, digest) = (model_revision.escape_default(), digest.escape_default());
        let (dtype, positions) = (self.model.dtype.name(), self.positions.name());
        // Left out where it is the default, as it was before there were such layers.
        let local_layers = match self.local_layers {
            LocalLayers::Bounded => String::new(),
            other => format!("local_layers={}\n", other.name()),
        };
        let arithmetic = match self.model.arithmetic {
            Arithmetic::F32 => String::new(),
            other => format!("arithmetic={}\n", other.name()),
        };
        let share = share.map_or(String::new(), |share| format!("share={share}\n"));
        let windows = if self.cuts_windows { "windows=cut\n" } else { "" };
        let seed = if self.uses_seed() { format!("seed={}\n", self.seed) } else { String::new() };
        format!(
            "schema={SCHEMA_VERSION}\nengine={ENGINE_VERSION}\nmodel={model}\ndtype={dtype}\n{arithmetic}rule={rule}\n\
             {share}positions={positions}\n{local_layers}{windows}{task}{content}={digest}\n{seed}"
        )
    }

    /// Digest of what the sweep says of the cell, known before model and texts are.
    pub fn spec(&self) -> Text {
        let meaning = self.canonical_text(&self.model.described(), &self.task.dataset);
        let request = option(self.task.request.as_deref().map(quoted));
        CellId::of(&format!("{meaning}request={request}\n")).to_string().into()
    }

    /// The content id.
    pub fn id(&self, model_revision: &str, data_digest: &str) -> CellId {
        CellId::of(&self.canonical_text(model_revision, data_digest))
    }

    /// The names of the cell's files.
    pub fn name(&self, id: CellId) -> CellName {
        let source = self.model.source.to_string();
        let policy = self.share.map_or(self.label(), |share| format!("{} {share}", self.label()));
        // Only the last part of a folder: the path to it does not say what it is.
        let model = match &self.model.source {
            ModelSource::Folder(path) | ModelSource::File(path) => path.rsplit('/').find(|part| !part.is_empty()),
            _ => None,
        };
        CellName::new(id, self.task.name, model.unwrap_or(&source), &policy, self.size())
    }
}

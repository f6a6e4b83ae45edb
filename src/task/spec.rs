//! What every task has: settings with a meaning, and samples made of them for one model.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::canonical::{BOS, Setting, shown};
use super::data::Texts;
use super::prepared::PreparedTask;
use super::request::GenerationConfig;
use crate::eviction::{CacheRule, CacheSpec};
use crate::format::Bytes;
use crate::lm::source::Hub;
use crate::lm::{ModelFiles, ModelShape};

/// One checked entry of `tasks:`. Specs with the same settings and the same data are equal.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// The name in YAML, file names and result rows.
    pub name: &'static str,
    /// Where the texts come from, as the sweep names it.
    pub dataset: String,
    /// Tokens of the longest sample.
    pub length: usize,
    /// The task's own settings, which enter the ids of cells and samples. The data set is left out, as its digest is part
    /// of a cell's id.
    pub settings: Vec<Setting>,
    /// The settings that say which samples there are, for the column `selection`. They enter the ids of cells, but not
    /// those of samples: a sample is the same whichever others are measured with it.
    pub selection: Vec<Setting>,
    /// Whether each prediction is also compared with that of the full cache; `None` for tasks without this setting.
    pub compare_to_full: Option<bool>,
    /// How the task generates text; `None` if it does not.
    pub generation: Option<GenerationConfig>,
    /// How texts are cut into samples, for the columns `stride` and `tail`.
    pub texts: Option<Texts>,
    /// A request from the sweep file, for the column `generation`.
    pub request: Option<String>,
    /// Memory that the weights and caches of a timed task fill; `None` for other tasks.
    pub granted_memory: Option<Bytes>,
    pub(super) task: Arc<dyn Task>,
}

/// What makes the samples of a task.
pub trait Task: fmt::Debug + Send + Sync + 'static {
    /// Reads the task's texts and makes samples of them for a model.
    ///
    /// # Errors
    /// Texts that are missing or give no sample; the message names the file, the row or the sample.
    fn prepare(&self, spec: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask>;
}

/// What preparing a task needs.
#[derive(Clone, Copy)]
pub struct PrepareContext<'a> {
    pub files: &'a ModelFiles,
    pub hub: &'a Hub<'a>,
    /// The machine's name, which is part of what timed results mean.
    pub machine: &'a str,
}

impl TaskSpec {
    /// Makes a task that neither generates text nor cuts texts into samples; `length` is that of the longest sample in tokens.
    pub fn new(
        name: &'static str,
        dataset: impl fmt::Display,
        length: usize,
        settings: Vec<Setting>,
        task: impl Task,
    ) -> TaskSpec {
        TaskSpec {
            name,
            dataset: dataset.to_string(),
            length,
            settings,
            selection: Vec::new(),
            compare_to_full: None,
            generation: None,
            texts: None,
            request: None,
            granted_memory: None,
            task: Arc::new(task),
        }
    }

    /// Makes a task on samples cut from texts.
    pub fn of_texts(name: &'static str, texts: &Texts, task: impl Task) -> TaskSpec {
        let spec = TaskSpec::new(name, &texts.dataset, texts.length, texts.settings(), task);
        TaskSpec { selection: texts.selection(), texts: Some(texts.clone()), ..spec }
    }

    /// Returns the task without the settings that have no effect under a cache. Cells that differ in nothing else are one
    /// cell. Where a prompt ends matters to a cache that is cut there, and to a `relative` size.
    #[must_use]
    pub fn for_cache(&self, cache: &CacheSpec) -> TaskSpec {
        let CacheSpec { rule, relative, options, .. } = *cache;
        let mut spec = self.clone();
        if rule == CacheRule::Unbounded && !options.changes_full_cache() {
            // The full cache would be compared with itself.
            spec.compare_to_full = self.compare_to_full.map(|_| false);
        }
        if let Some(generation) = &mut spec.generation {
            generation.query_aware |=
                !rule.awaits_prompt() && (relative.is_none() || rule == CacheRule::Unbounded);
        }
        spec
    }

    /// Returns the task as a model takes it: with or without BOS, where the setting left that to the model.
    #[must_use]
    pub fn with_bos(&self, bos: bool) -> TaskSpec {
        let mut spec = self.clone();
        for (_, value) in spec.settings.iter_mut().filter(|(key, _)| *key == BOS) {
            *value = bos.to_string();
        }
        spec
    }

    /// Reads the task's texts and makes samples of them for a model.
    ///
    /// # Errors
    /// Texts that are missing or give no sample; the message names the data set, and the file, the row or the sample.
    pub fn prepare(&self, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        self.task.prepare(self, context).with_context(|| format!("data set {}", self.dataset))
    }

    /// How the task generates text.
    ///
    /// # Errors
    /// A task that does not.
    pub fn generation(&self) -> Result<&GenerationConfig> {
        self.generation.as_ref().with_context(|| format!("the task {} generates no text", self.name))
    }

    /// Whether time is what is measured. Such a task runs alone, with the whole machine, and its results are those of
    /// this machine only. It has no texts that the policy `truncate` could cut.
    pub fn is_timed(&self) -> bool {
        self.granted_memory.is_some()
    }

    /// Counts the entries of a cache for every key-value head of every layer of a model.
    pub fn cache_entries(&self, cache: &CacheSpec, shape: &ModelShape) -> Vec<usize> {
        let tokens = match (cache.rule, &self.generation) {
            // What is written is held beside the prompt that was cut.
            (CacheRule::Truncate { size }, Some(writing)) => size.saturating_add(writing.max_new_tokens),
            (CacheRule::Truncate { size }, None) => size,
            _ => self.length,
        };
        let mut entries = shape.most_entries(cache.rule.sized(), cache.options);
        for size in &mut entries {
            // While its newest entry attends, a cache that is timed holds one more.
            *size = size.saturating_add(usize::from(self.is_timed())).min(tokens).min(self.length);
        }
        entries
    }

    /// Whether its texts begin with a prompt, after which a cache can be cut.
    pub fn has_prompt(&self) -> bool {
        self.generation.is_some() || self.texts.as_ref().is_some_and(|texts| texts.prompt.is_some())
    }

    /// Tokens of the longest prompt.
    pub fn longest_prompt(&self) -> usize {
        match (&self.generation, &self.texts) {
            (Some(generation), _) => self.length.saturating_sub(generation.max_new_tokens).max(1),
            (None, Some(texts)) => texts.prompt_of(self.length).unwrap_or(self.length),
            _ => self.length,
        }
    }

    /// The column `prefill`: whether a prompt is cut before its question.
    pub fn prefill(&self) -> &'static str {
        match self.generation {
            Some(GenerationConfig { query_aware: false, .. }) => "cut_before_question",
            _ => "stream",
        }
    }

    /// Lists what the measurement of one sample depends on; the first is the task's name.
    pub fn of_sample(&self) -> Vec<Setting> {
        let mut settings = vec![("task", self.name.to_owned())];
        settings.extend(self.settings.iter().cloned());
        settings.extend(self.compare_to_full.map(|compare| ("compare_to_full", compare.to_string())));
        if let Some(generation) = &self.generation {
            settings.extend(generation.canonical());
            settings.extend((!generation.query_aware).then(|| ("query_aware", "false".to_string())));
        }
        settings
    }

    /// Lists what the measurement of a cell depends on: the settings of its samples, and which samples there are.
    pub fn of_cell(&self) -> Vec<Setting> {
        [self.of_sample(), self.selection.clone()].concat()
    }

    /// The settings that say which samples there are, as the column `selection` shows them.
    pub fn shown_selection(&self) -> Vec<Setting> {
        self.selection.iter().map(shown).collect()
    }

    /// Settings of prompt and generation, or of timing, for the column `generation`. `template` is the digest of the chat template around
    /// the prompts; without one, the settings say that none was used, whatever was asked for. Empty if the task has no such settings.
    pub fn generation_settings(&self, template: Option<&str>) -> Vec<Setting> {
        let own = self.settings.iter().filter(|(key, _)| SHOWN_SETTINGS.contains(key)).map(shown);
        let used =
            |config: &GenerationConfig| GenerationConfig { chat_template: template.is_some(), ..config.clone() };
        let of_generation =
            self.generation.iter().flat_map(|config| used(config).canonical()).map(|setting| shown(&setting));
        // The request comes last, as it may contain anything.
        let texts = [("template", template), ("request", self.request.as_deref())];
        let texts = texts.into_iter().filter_map(|(key, text)| Some((key, text?.to_string())));
        own.chain(of_generation).chain(texts).collect()
    }
}

/// The settings of prompts, limits and timing that the column `generation` shows; `length` has a column of its own.
const SHOWN_SETTINGS: [&str; 6] = ["prompt", "version", "limits", "memory", "repeats", "warm_up"];

impl PartialEq for TaskSpec {
    fn eq(&self, other: &TaskSpec) -> bool {
        (&self.dataset, &self.request, self.of_cell()) == (&other.dataset, &other.request, other.of_cell())
    }
}

impl Eq for TaskSpec {}

impl Hash for TaskSpec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.of_cell().hash(state);
    }
}

//! What every task has: settings with a meaning, and samples made of them for one model.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use anyhow::{Context, Result};

use super::data::Texts;
use super::generation::{GenerationConfig, Prefill};
use super::prepared::PreparedTask;
use crate::eviction::CacheRule;
use crate::format::Bytes;
use crate::lm::ModelFiles;
use crate::lm::source::{DownloadProgress, HubSettings};

/// One checked entry of `tasks:`.
pub trait Task: fmt::Debug + Comparable + Send + Sync {
    /// The name in YAML, file names and result rows.
    fn name(&self) -> &'static str;

    /// Where the texts come from, as the sweep names it.
    fn dataset(&self) -> String;

    /// Tokens of the longest sample.
    fn length(&self) -> usize;

    /// The settings as `key=value` lines, which enter cell ids and so must not change. The data set is left out, as its
    /// digest is part of the id; the name and the settings of `write:` are added for every task alike.
    fn canonical(&self) -> String;

    /// How the task generates text; `None` if it does not.
    fn generation(&self) -> Option<&GenerationConfig> {
        None
    }

    /// The texts that the task cuts into samples, for the columns `stride` and `tail`.
    fn texts(&self) -> Option<&Texts> {
        None
    }

    /// The settings shown in the column `generation`: those of generation, and the task's own around them.
    fn row_settings(&self, of_generation: Vec<Setting>) -> Vec<Setting> {
        of_generation
    }

    /// The task without the settings that have no effect under a cache rule; `None` if all of them have. Cells that
    /// differ in nothing else are one cell.
    fn for_rule(&self, _: CacheRule) -> Option<TaskSpec> {
        None
    }

    /// Whether each prediction is also compared with that of the full cache.
    fn compares_to_full(&self) -> bool {
        false
    }

    /// Memory that the weights and caches of a timed task fill; `None` for other tasks.
    fn granted_memory(&self) -> Option<Bytes> {
        None
    }

    /// Entries of a cache, per layer and key-value head.
    fn cache_entries(&self, rule: CacheRule) -> usize {
        match rule {
            CacheRule::Unbounded => self.length(),
            CacheRule::Truncate { size } | CacheRule::Evict { size, .. } => size.min(self.length()),
        }
    }

    /// Reads the task's texts and makes samples of them for a model.
    ///
    /// # Errors
    /// Texts that are missing or give no sample; the message names the file, the row or the sample.
    fn prepare(&self, context: &PrepareContext<'_>) -> Result<PreparedTask>;
}

/// A key and its value.
pub type Setting = (&'static str, String);

/// What preparing a task needs.
#[derive(Clone, Copy)]
pub struct PrepareContext<'a> {
    pub files: &'a ModelFiles,
    pub hub: &'a HubSettings,
    pub progress: &'a dyn DownloadProgress,
    /// The machine's name, which is part of what timed results mean.
    pub machine: &'a str,
}

/// Equality of tasks whose types are not known.
pub trait Comparable: Any {
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<T: PartialEq + Any> Comparable for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }
}

/// A task that can be cloned and compared. `Display` gives its canonical text.
#[derive(Clone, Debug)]
pub struct TaskSpec(Arc<dyn Task>);

impl TaskSpec {
    pub fn new(task: impl Task) -> TaskSpec {
        TaskSpec(Arc::new(task))
    }

    /// The task without the settings that have no effect under a cache rule.
    #[must_use]
    pub fn for_rule(&self, rule: CacheRule) -> TaskSpec {
        self.0.for_rule(rule).unwrap_or_else(|| self.clone())
    }

    /// Reads the task's texts and makes samples of them for a model.
    ///
    /// # Errors
    /// As [`Task::prepare`]; the message also names the data set. A model with too few positions.
    pub fn prepare(&self, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let files = context.files;
        files.shape.check_length(self.length()).with_context(|| format!("model {}", files.source))?;
        self.0.prepare(context).with_context(|| format!("data set {}", self.dataset()))
    }

    /// Whether time is what is measured. Such a task runs alone, with the whole machine, and its results are those of
    /// this machine only. It has no texts that the policy `truncate` could cut.
    pub fn is_timed(&self) -> bool {
        self.granted_memory().is_some()
    }

    /// How prompts enter the cache.
    pub fn prefill(&self) -> Prefill {
        self.generation().map_or(Prefill::Stream, |generation| generation.prefill)
    }

    /// The same for the column `prefill`, which also says where a prompt that was read whole is cut.
    pub fn prefill_name(&self) -> &'static str {
        match self.generation() {
            Some(GenerationConfig { prefill: Prefill::OneShot, query_aware: false, .. }) => "one_shot_document",
            _ => self.prefill().name(),
        }
    }

    /// The column `generation`: the settings of prompt and generation as one text, with the digest of the chat template
    /// around the prompts. `None` if the task has no such settings.
    pub fn generation_settings(&self, template: Option<&str>) -> Option<String> {
        let mut of_generation = self.generation().map(GenerationConfig::canonical).unwrap_or_default();
        of_generation.extend(template.map(|digest| ("template", digest.to_string())));
        let settings = self.row_settings(of_generation).into_iter();
        let settings: Vec<String> = settings.map(|(key, value)| format!("{key}={value}")).collect();
        (!settings.is_empty()).then(|| settings.join(" "))
    }
}

impl Deref for TaskSpec {
    type Target = dyn Task;

    fn deref(&self) -> &dyn Task {
        &*self.0
    }
}

impl PartialEq for TaskSpec {
    fn eq(&self, other: &TaskSpec) -> bool {
        let other: &dyn Any = &*other.0;
        self.0.equals(other)
    }
}

impl Eq for TaskSpec {}

impl Hash for TaskSpec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_string().hash(state);
    }
}

impl fmt::Display for TaskSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task={}\n{}", self.name(), self.canonical())?;
        let Some(generation) = self.generation() else { return Ok(()) };
        for (key, value) in generation.canonical() {
            writeln!(f, "{key}={value}")?;
        }
        writeln!(f, "prefill={}", generation.prefill.name())?;
        if generation.prefill == Prefill::OneShot {
            writeln!(f, "query_aware={}", generation.query_aware)?;
        }
        Ok(())
    }
}

/// A limit as canonical texts spell it.
pub(super) fn limit_text(limit: Option<usize>) -> String {
    limit.map_or_else(|| "all".to_string(), |limit| limit.to_string())
}

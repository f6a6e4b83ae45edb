//! From the shape of a sweep file to a [`Sweep`]: every name known, every number in range, nothing said twice.
//!
//! Everything that is wrong with a sweep and can be told without loading a model or a text is told here, with the
//! place in the file.

use std::collections::HashSet;
use std::hash::Hash;

use super::model::ModelSpec;
use super::nearest::did_you_mean;
use super::shape::{Entries, PerplexityShape, PolicyShape, SweepShape, TaskShape};
use super::yaml::{ConfigError, Location, Spanned};
use super::{NamedPolicy, Rule, Sweep};
use crate::eviction::presets::{self, PRESETS};
use crate::eviction::{CacheRule, Policy};
use crate::lm::source::{POCKET, RANDOM_TINY};
use crate::task::{
    DataSource, EMBEDDED, EMBEDDED_QUESTIONS, MOST_EMBEDDED_BOOKS, Perplexity, RANDOM_WORDS, TaskSpec,
};

/// The names under `policies:` that are not policies.
const RESERVED: [&str; 2] = ["full", "truncate"];

/// Checks one file; `file` is what errors call it, `stem` names the sweep if the file does not.
pub(super) fn check(shape: SweepShape, file: &str, stem: &str) -> Result<Sweep, ConfigError> {
    let checker = Checker { file };
    let name = match shape.name {
        Some(name) => checker.sweep_name(name)?,
        None => stem.to_string(),
    };
    let models = checker.models(shape.models)?;
    let defined = checker.definitions(shape.define)?;
    let policies = checker.policies(&shape.policies, &defined)?;
    let cache_sizes = checker.sizes(&shape.cache_sizes, &shape.policies, &policies)?;
    let tasks = checker.tasks(shape.tasks)?;
    Ok(Sweep { name, models, policies, cache_sizes, positions: shape.positions, tasks, seed: shape.seed })
}

struct Checker<'a> {
    file: &'a str,
}

impl Checker<'_> {
    fn refuse<T>(
        &self,
        location: Location,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Result<T, ConfigError> {
        Err(ConfigError::at(self.file, location, message, hint))
    }

    fn sweep_name(&self, name: Spanned<String>) -> Result<String, ConfigError> {
        if name.value.trim().is_empty() {
            return self.refuse(name.referenced, "the name is empty", "remove `name:` to use the file's name");
        }
        Ok(name.value)
    }

    /// Refuses an empty list, and the second of two equal entries.
    fn distinct<T: Eq + Hash>(
        &self,
        what: &str,
        list: Location,
        entries: &[(T, Location)],
        spell: impl Fn(&T) -> String,
    ) -> Result<(), ConfigError> {
        if entries.is_empty() {
            return self.refuse(
                list,
                format!("`{what}` is empty"),
                "name at least one, or there is nothing to run",
            );
        }
        let mut seen = HashSet::new();
        for (entry, location) in entries {
            if !seen.insert(entry) {
                let message = format!("{} stands twice under `{what}`", spell(entry));
                return self.refuse(*location, message, "remove one of them");
            }
        }
        Ok(())
    }

    fn models(
        &self,
        shapes: Spanned<Vec<Spanned<super::shape::ModelShape>>>,
    ) -> Result<Vec<ModelSpec>, ConfigError> {
        let mut models = Vec::new();
        for Spanned { value, referenced, .. } in shapes.value {
            let Ok(source) = value.source.parse() else {
                let near = did_you_mean(&value.source, [POCKET, RANDOM_TINY]);
                return self.refuse(
                    referenced,
                    format!("`{}` names no model", value.source),
                    format!(
                        "{near}write owner/name or owner/name@revision for the hub, a path starting with ./, ../ or / \
                         for a folder, {POCKET} or {RANDOM_TINY}"
                    ),
                );
            };
            models.push((ModelSpec { source, dtype: value.dtype }, referenced));
        }
        self.distinct("models", shapes.referenced, &models, |model| format!("model `{}`", model.source))?;
        Ok(models.into_iter().map(|(model, _)| model).collect())
    }

    fn definitions(&self, define: Entries<PolicyShape>) -> Result<Vec<(String, Policy)>, ConfigError> {
        let mut defined = Vec::new();
        for (Spanned { value: name, referenced, .. }, shape) in define.0 {
            // `window+x` would read like a preset with sinks, so the part before `+` must be free as well.
            let base = name.split('+').next().unwrap_or_default();
            if RESERVED.contains(&base) || PRESETS.iter().any(|preset| preset.name == base) {
                return self.refuse(
                    referenced,
                    format!("`{name}` cannot be defined: `{base}` has a fixed meaning"),
                    format!("choose another name, for example `my-{base}`"),
                );
            }
            let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+'));
            if !letters || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || name.len() > 40 {
                return self.refuse(
                    referenced,
                    format!("`{name}` is not a name for a policy"),
                    "use up to 40 ASCII letters, digits, `-`, `_`, `.` and `+`, starting with a letter or digit",
                );
            }
            let PolicyShape { score, scope, keep_first, keep_recent } = shape;
            let policy = Policy { score, scope, keep_first: keep_first as usize, keep_recent: keep_recent.0 };
            defined.push((name, policy));
        }
        Ok(defined)
    }

    fn policies(
        &self,
        names: &Spanned<Vec<Spanned<String>>>,
        defined: &[(String, Policy)],
    ) -> Result<Vec<NamedPolicy>, ConfigError> {
        let spelled: Vec<_> = names.value.iter().map(|name| (&name.value, name.referenced)).collect();
        self.distinct("policies", names.referenced, &spelled, |name| format!("policy `{name}`"))?;
        let find = |name: &str| match name {
            "full" => Some(Rule::Full),
            "truncate" => Some(Rule::Truncate),
            _ => {
                let own = defined.iter().find(|(own, _)| own == name).map(|(_, policy)| *policy);
                own.or_else(|| presets::by_name(name)).map(Rule::Policy)
            }
        };
        let mut policies = Vec::new();
        for Spanned { value: name, referenced, .. } in &names.value {
            let Some(rule) = find(name) else {
                let known: Vec<&str> = RESERVED
                    .into_iter()
                    .chain(PRESETS.iter().map(|preset| preset.name))
                    .chain(defined.iter().map(|(own, _)| own.as_str()))
                    .collect();
                return self.refuse(
                    *referenced,
                    format!("unknown policy `{name}`"),
                    format!(
                        "{}known are {} (name+I protects the first I tokens); a new one is made under `define:`",
                        did_you_mean(name, known.iter().copied()),
                        known.join(", ")
                    ),
                );
            };
            policies.push(NamedPolicy { name: name.clone(), rule });
        }
        Ok(policies)
    }

    fn sizes(
        &self,
        sizes: &[Spanned<u64>],
        names: &Spanned<Vec<Spanned<String>>>,
        policies: &[NamedPolicy],
    ) -> Result<Vec<usize>, ConfigError> {
        let mut checked = Vec::new();
        for size in sizes {
            checked.push((self.count("a cache size", size, 1)?, size.referenced));
        }
        let bounded = policies.iter().zip(&names.value).filter(|(policy, _)| policy.rule != Rule::Full);
        for (policy, place) in bounded {
            if checked.is_empty() {
                return self.refuse(
                    place.referenced,
                    format!("policy `{}` needs cache sizes, and there are none", policy.name),
                    "add them, for example `cache_sizes: [64, 128, 256]`",
                );
            }
            for (size, location) in &checked {
                let cannot = match policy.rule.at(*size) {
                    CacheRule::Unbounded => None,
                    // A piece of one token has nothing before it to predict from.
                    CacheRule::Truncate { size } => {
                        (size < 2).then(|| "a piece of 1 token predicts nothing".to_string())
                    }
                    CacheRule::Evict { policy, size } => policy.at(size).err().map(|error| error.to_string()),
                };
                if let Some(reason) = cannot {
                    return self.refuse(
                        *location,
                        format!("policy `{}` cannot have a cache of {size}: {reason}", policy.name),
                        format!("remove the size {size}, or the policy"),
                    );
                }
            }
        }
        if !checked.is_empty() {
            self.distinct("cache_sizes", Location::UNKNOWN, &checked, |size| format!("size {size}"))?;
        }
        let mut sizes: Vec<usize> = checked.into_iter().map(|(size, _)| size).collect();
        sizes.sort_unstable();
        Ok(sizes)
    }

    fn tasks(&self, shapes: Spanned<Vec<Spanned<TaskShape>>>) -> Result<Vec<TaskSpec>, ConfigError> {
        let mut tasks = Vec::new();
        for Spanned { value, referenced, .. } in shapes.value {
            let TaskShape::Perplexity(shape) = value;
            tasks.push((TaskSpec::Perplexity(self.perplexity(shape)?), referenced));
        }
        self.distinct("tasks", shapes.referenced, &tasks, |task| {
            format!("the same task ({} of {})", task.name(), task.dataset())
        })?;
        Ok(tasks.into_iter().map(|(task, _)| task).collect())
    }

    fn perplexity(&self, shape: PerplexityShape) -> Result<Perplexity, ConfigError> {
        let Spanned { value: dataset, referenced, .. } = shape.dataset;
        let forms = "a folder of .txt files or a .parquet file (starting with ./, ../ or /), a hub data set owner/name, \
                     embedded, embedded-questions or random-words";
        let Ok(dataset) = dataset.parse::<DataSource>() else {
            let near = did_you_mean(&dataset, [EMBEDDED, EMBEDDED_QUESTIONS, RANDOM_WORDS]);
            return self.refuse(
                referenced,
                format!("`{dataset}` names no data set"),
                format!("{near}use {forms}"),
            );
        };
        let limit = |what: &str, number: &Option<Spanned<u64>>| match number {
            Some(number) => self.count(what, number, 1).map(Some),
            None => Ok(None),
        };
        let books = limit("`books`", &shape.books)?;
        if let (DataSource::Embedded | DataSource::EmbeddedQuestions, Some(asked)) = (&dataset, &shape.books)
            && asked.value > MOST_EMBEDDED_BOOKS as u64
        {
            return self.refuse(
                asked.referenced,
                format!("`{dataset}` has no {} texts", asked.value),
                format!("ask for at most {MOST_EMBEDDED_BOOKS}"),
            );
        }
        Ok(Perplexity {
            dataset,
            length: match &shape.length {
                Some(length) => self.count("`length`", length, 2)?,
                None => Perplexity::DEFAULT_LENGTH,
            },
            stride: limit("`stride`", &shape.stride)?,
            bos: shape.bos.0,
            tail: shape.tail,
            books,
            chunks_per_book: limit("`chunks_per_book`", &shape.chunks_per_book)?,
            compare_to_full: shape.compare_to_full,
        })
    }

    /// A number of tokens or things: at least `least`, and small enough for a column of the result rows.
    fn count(&self, what: &str, number: &Spanned<u64>, least: u32) -> Result<usize, ConfigError> {
        match u32::try_from(number.value) {
            Ok(count) if count >= least => Ok(count as usize),
            _ => self.refuse(
                number.referenced,
                format!("{} cannot be {what}", number.value),
                format!("write a whole number from {least} to {}", u32::MAX),
            ),
        }
    }
}

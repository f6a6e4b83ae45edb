//! The cache under which a single text is read.

use std::fmt::Display;

use crate::eviction::{
    self, CacheRule, CacheSize, LocalLayers, Policy, Positions, Schedule, SizedPolicy, Variant, VariantError,
    presets,
};
use crate::lm::{MemoryPlan, ModelShape};
use crate::task::CacheConfig;

/// Settings that exclude each other or have no meaning, with a hint on a line of its own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSettings(String);

impl InvalidSettings {
    pub fn new(message: impl Display, hint: impl Display) -> InvalidSettings {
        InvalidSettings(format!("{message}\nhint: {hint}"))
    }
}

/// A cache rule by its name, and what else a cache depends on.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// `full`, `truncate`, a preset, or a policy of one's own.
    pub policy: String,
    /// Entries that survive each step, per layer and key-value head; for `truncate` the tokens of a piece. A share is that of the
    /// prompt where the policy cuts it, and else of the text.
    pub cache_size: Option<CacheSize>,
    /// Where it is not the policy's own.
    pub schedule: Option<Schedule>,
    pub positions: Positions,
    pub local_layers: LocalLayers,
    pub seed: u64,
}

/// Tokens of a text, and of its beginning that is the prompt, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct TextLength {
    pub prompt: Option<usize>,
    pub text: usize,
}

impl CacheSettings {
    /// With what follows the policy's name as settings, which go before others: `tova@cut` is `tova` with the schedule `cut`.
    ///
    /// # Errors
    /// What follows is no setting of a policy.
    pub fn of_variant(self) -> Result<CacheSettings, InvalidSettings> {
        let refused = |VariantError { message, hint }| InvalidSettings::new(message, hint);
        let Variant { name, schedule, positions, local_layers } = Variant::parse(&self.policy).map_err(refused)?;
        Ok(CacheSettings {
            schedule: schedule.or(self.schedule),
            positions: positions.unwrap_or(self.positions),
            local_layers: local_layers.unwrap_or(self.local_layers),
            policy: name.to_owned(),
            ..self
        })
    }

    /// Checks the settings before a text is known.
    ///
    /// # Errors
    /// An unknown policy, or a size that it cannot have whatever the text is.
    pub fn check(&self, own: &[(String, Policy)]) -> Result<Option<SizedPolicy>, InvalidSettings> {
        const LONG: usize = 1 << 30;
        Ok(self.plan(own, TextLength { prompt: None, text: LONG })?.0.policy)
    }

    /// The memory that these settings ask for, and for `truncate` how many tokens it holds. `own` policies go before presets.
    ///
    /// # Errors
    /// An unknown policy, or a size that it cannot have.
    pub fn plan(
        &self,
        own: &[(String, Policy)],
        length: TextLength,
    ) -> Result<(MemoryPlan<'static>, Option<usize>), InvalidSettings> {
        let (rule, CacheSettings { positions, local_layers, seed, .. }) = (self.rule(own, length)?, self);
        let truncated = if let CacheRule::Truncate { size } = rule { Some(size) } else { None };
        let (policy, positions, local_layers, seed) = (rule.sized(), *positions, *local_layers, *seed);
        Ok((MemoryPlan { policy, positions, local_layers, seed, ..MemoryPlan::unbounded() }, truncated))
    }

    /// The same for the samples of tasks of at most `length` tokens, with a model of this shape.
    ///
    /// # Errors
    /// As [`plan`](Self::plan), or a policy that needs to know the whole text.
    pub fn config(
        &self,
        own: &[(String, Policy)],
        shape: &ModelShape,
        length: usize,
    ) -> Result<CacheConfig, InvalidSettings> {
        let rule = self.rule(own, TextLength { prompt: None, text: length })?;
        let CacheSettings { positions, local_layers, seed, .. } = *self;
        if rule.reads_future().is_some() {
            let message = format!("policy {} needs to know the whole text", self.policy);
            return Err(InvalidSettings::new(message, "choose another policy, such as tova"));
        }
        let share = match self.cache_size {
            Some(CacheSize::Share(share)) if rule.schedule().cuts() => Some(share),
            _ => None,
        };
        let (query_aware, compare, log) = (true, false, false);
        let (bounded, kv_heads) = (shape.bounded_layers(local_layers), shape.heads.kv_heads);
        Ok(CacheConfig {
            rule,
            share,
            positions,
            query_aware,
            seed,
            compare,
            log,
            local_layers,
            bounded,
            kv_heads,
        })
    }

    fn rule(&self, own: &[(String, Policy)], length: TextLength) -> Result<CacheRule, InvalidSettings> {
        let CacheSettings { policy: name, cache_size, schedule, .. } = self;
        let size = |tokens: usize| match cache_size {
            Some(CacheSize::Entries(entries)) => Ok(*entries),
            Some(CacheSize::Share(share)) => Ok(share.of(tokens)),
            None => {
                let needs = format!("policy {name} needs a cache size");
                Err(InvalidSettings::new(needs, "add a cache size, such as 64 or 25%"))
            }
        };
        let unused = match name.as_str() {
            "full" | "truncate" if schedule.is_some() => Some("schedule"),
            "full" if cache_size.is_some() => Some("cache size"),
            _ => None,
        };
        if let Some(what) = unused {
            let message = format!("a {what} has no meaning for the policy {name}");
            return Err(InvalidSettings::new(message, "leave it out, or choose another policy, such as tova"));
        }
        let rule = match name.as_str() {
            "full" => CacheRule::Unbounded,
            "truncate" => CacheRule::Truncate { size: size(length.text)? },
            name => {
                let policy = eviction::named(name, own, None).ok_or_else(|| {
                    InvalidSettings::new(
                        format!("there is no policy {name:?}"),
                        "see `tova-bench list policies`, or define it",
                    )
                })?;
                let cannot = |error: anyhow::Error| {
                    InvalidSettings::new(format!("{name} cannot be used: {error:#}"), presets::hint_of(&error))
                };
                let policy = policy.map_err(cannot)?;
                let policy = Policy { schedule: schedule.unwrap_or(policy.schedule), ..policy };
                let cut = length.prompt.filter(|_| policy.schedule.cuts());
                let size = size(cut.unwrap_or(length.text))?;
                policy.at(size).map_err(|error| InvalidSettings(error.to_string()))?;
                CacheRule::Evict { policy, size }
            }
        };
        if let CacheRule::Truncate { size: size @ 0..2 } = rule {
            let message = format!("with truncate to {size} tokens there is nothing to predict");
            return Err(InvalidSettings::new(message, "sizes start at 2"));
        }
        Ok(rule)
    }
}

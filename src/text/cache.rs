//! The cache under which a single text is read.

use std::fmt::Display;

use crate::eviction::{CacheRule, LocalLayers, Policy, Positions, Schedule, presets};
use crate::lm::MemoryPlan;
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
    /// Entries that survive each step, per layer and key-value head; for `truncate` the tokens of a piece.
    pub cache_size: Option<usize>,
    /// Where it is not the policy's own.
    pub schedule: Option<Schedule>,
    pub positions: Positions,
    pub local_layers: LocalLayers,
    pub seed: u64,
}

impl CacheSettings {
    /// The memory that these settings ask for, and for `truncate` how many tokens it holds. `own` policies go before presets.
    ///
    /// # Errors
    /// An unknown policy, or a size that it cannot have.
    pub fn plan(&self, own: &[(String, Policy)]) -> Result<(MemoryPlan<'static>, Option<usize>), InvalidSettings> {
        let (rule, CacheSettings { positions, local_layers, seed, .. }) = (self.rule(own)?, self);
        let truncated = if let CacheRule::Truncate { size } = rule { Some(size) } else { None };
        let (policy, positions, local_layers, seed) = (rule.sized(), *positions, *local_layers, *seed);
        Ok((MemoryPlan { policy, positions, local_layers, seed, ..MemoryPlan::unbounded() }, truncated))
    }

    /// The same for the samples of tasks, with a model of `layers`.
    ///
    /// # Errors
    /// As [`plan`](Self::plan), or a policy that needs to know the whole text.
    pub fn config(&self, own: &[(String, Policy)], layers: usize) -> Result<CacheConfig, InvalidSettings> {
        let (rule, CacheSettings { positions, local_layers, seed, .. }) = (self.rule(own)?, self.clone());
        if rule.reads_future().is_some() {
            let message = format!("policy {} needs to know the whole text", self.policy);
            return Err(InvalidSettings::new(message, "choose another policy, such as tova"));
        }
        let (share, query_aware, compare) = (None, true, false);
        Ok(CacheConfig { rule, share, positions, query_aware, seed, compare, local_layers, layers })
    }

    fn rule(&self, own: &[(String, Policy)]) -> Result<CacheRule, InvalidSettings> {
        let CacheSettings { policy: name, cache_size, schedule, .. } = self;
        let size = || {
            let needs = format!("policy {name} needs a cache size");
            cache_size.ok_or_else(|| InvalidSettings::new(needs, "add a cache size, such as 64"))
        };
        let rule = match name.as_str() {
            "full" | "truncate" if schedule.is_some() => {
                let message = format!("a schedule has no meaning for {name}, from which nothing leaves");
                return Err(InvalidSettings::new(
                    message,
                    "leave out the schedule, or choose a policy, such as tova",
                ));
            }
            "full" if cache_size.is_some() => {
                return Err(InvalidSettings::new(
                    "a cache size has no meaning for the policy full, whose cache is unbounded",
                    "leave out the cache size, or choose another policy, such as tova",
                ));
            }
            "full" => CacheRule::Unbounded,
            "truncate" => CacheRule::Truncate { size: size()? },
            name => {
                let own = own.iter().find(|(own, _)| own == name).map(|(_, policy)| *policy);
                let policy = own.or_else(|| presets::by_name(name)).ok_or_else(|| {
                    InvalidSettings::new(
                        format!("there is no policy {name:?}"),
                        "see `tova-bench list policies`, or define it",
                    )
                })?;
                let policy = Policy { schedule: schedule.unwrap_or(policy.schedule), ..policy };
                let size = size()?;
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

//! The cache under which a single text is read, as flags, requests and Python ask for it.

use std::fmt::Display;

use crate::eviction::{
    CacheOptions, CacheRule, CacheSize, CacheSpec, DefinedPolicy, KnownPolicies, NamedPolicy, PolicyError,
    Schedule, WrittenPolicy,
};
use crate::lm::ModelShape;
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

impl From<PolicyError> for InvalidSettings {
    fn from(PolicyError { message, hint }: PolicyError) -> InvalidSettings {
        InvalidSettings::new(message, hint)
    }
}

/// A policy as it is written, and what else a cache depends on.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// `full`, `truncate`, a preset, or a policy of one's own, as sweeps write it: also `tova@cut` or `window+4@slot`.
    pub policy: String,
    /// Entries that survive each step, per layer and key-value head; for `truncate` the tokens of a piece. A share is that of
    /// the prompt, or of the text if it has none.
    pub cache_size: Option<CacheSize>,
    /// Where neither the written policy nor the policy's own holds.
    pub schedule: Option<Schedule>,
    /// Where the written policy does not say others.
    pub options: CacheOptions,
    pub seed: u64,
}

/// Tokens of a text, and of its beginning that is the prompt, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct TextLength {
    pub prompt: Option<usize>,
    pub text: usize,
}

impl CacheSettings {
    /// Checks the settings before a text is known.
    ///
    /// # Errors
    /// An unknown policy, or a size that it cannot have whatever the text is.
    pub fn check(&self, defined: &[DefinedPolicy]) -> Result<(), InvalidSettings> {
        const LONG: usize = 1 << 30;
        self.spec(defined, TextLength { prompt: None, text: LONG }).map(|_| ())
    }

    /// The policy that the settings name. `defined` policies go before presets.
    fn named(&self, defined: &[DefinedPolicy]) -> Result<NamedPolicy, InvalidSettings> {
        let mut written = WrittenPolicy::parse(&self.policy, self.options)?;
        written.schedule = written.schedule.or(self.schedule);
        if written.never_evicts() && !written.says_format {
            written.options.format = self.options.format;
        }
        Ok(written.resolve(KnownPolicies { defined, schedule: None })?)
    }

    /// The cache for a text of this length.
    ///
    /// # Errors
    /// An unknown policy, a setting that it does not have, or a size that it cannot have.
    pub fn spec(&self, defined: &[DefinedPolicy], length: TextLength) -> Result<CacheSpec, InvalidSettings> {
        let NamedPolicy { name, rule, options } = self.named(defined)?;
        if rule == CacheRule::Unbounded && self.cache_size.is_some() {
            let message = format!("a cache size has no meaning for the policy {name}");
            return Err(InvalidSettings::new(message, "leave it out, or choose another policy, such as tova"));
        }
        let (size, relative) = match self.cache_size {
            Some(CacheSize::Entries(entries)) => (entries, None),
            Some(size @ CacheSize::Share(share)) => (share.of(length.prompt.unwrap_or(length.text)), Some(size)),
            Some(size @ CacheSize::Memory(_)) => {
                let message = format!("{size} is a size of sweeps");
                return Err(InvalidSettings::new(message, "write entries, such as 64, or a share, such as 25%"));
            }
            None if rule == CacheRule::Unbounded => (0, None),
            None => {
                let message = format!("policy {name} needs a cache size");
                return Err(InvalidSettings::new(message, "add a cache size, such as 64 or 25%"));
            }
        };
        let rule = rule.at(size);
        rule.check().map_err(|error| InvalidSettings(error.to_string()))?;
        Ok(CacheSpec { rule, relative, options, seed: self.seed })
    }

    /// The cache for the samples of tasks of at most `length` tokens, with a model of this shape.
    ///
    /// # Errors
    /// As [`spec`](Self::spec), or a policy that needs to know the whole text.
    pub fn config(
        &self,
        defined: &[DefinedPolicy],
        shape: &ModelShape,
        length: usize,
    ) -> Result<CacheConfig, InvalidSettings> {
        let cache = self.spec(defined, TextLength { prompt: None, text: length })?;
        if cache.rule.reads_future().is_some() {
            let message = format!("policy {} needs to know the whole text", self.policy);
            return Err(InvalidSettings::new(message, "choose another policy, such as tova"));
        }
        let (bounded, kv_heads) = (shape.bounded_layers(cache.options), shape.heads.kv_heads);
        Ok(CacheConfig { cache, query_aware: true, compare: false, log: false, bounded, kv_heads })
    }
}

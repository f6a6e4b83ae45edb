//! What a cache holds for one sample, and the size that a share or an amount of memory comes to.

use std::ops::Range;

use anyhow::{Result, bail, ensure};

use super::cache::CacheConfig;
use crate::eviction::{CacheOptions, CacheRule, CacheSize, CacheSpec, MemorySize, SizedPolicy};
use crate::format::Bytes;
use crate::lm::{Memory, ModelShape};

/// Tokens of a sample that its cache depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleLengths {
    /// Tokens of the prompt, up to where a cache is cut; `None` where the sample has no prompt.
    pub prompt: Option<usize>,
    /// Tokens that are read and, at most, written.
    pub tokens: usize,
    /// Positions of the tokens that are predicted: token t after t tokens were read. Those that follow the prompt, if there is one.
    pub predicted: Range<usize>,
    /// How `truncate` cuts the sample.
    pub pieces: Pieces,
}

/// How `truncate` cuts a sample into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// The prompt keeps its last tokens, and what is written follows them.
    LastOfPrompt,
    /// The text is cut into pieces that each begin with so many tokens of the first (BOS, or none).
    OfText { lead: usize },
}

/// What a cache holds in bytes of its format; f32 counts as 16 bits a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheMemory {
    /// Mean over the predicted tokens, while each is predicted.
    pub held: f64,
    /// Mean over these tokens of what predicting one reads of the cache.
    pub read: f64,
    /// The most between two tokens, reading included; a prompt that is cut is held whole.
    pub peak: u64,
}

/// Entries that a cache holds at one moment, for caches from which whole blocks leave: only the cache knows how many there are.
pub(super) struct HeldEntries {
    /// Of every key-value head of every layer.
    entries: Vec<Vec<usize>>,
    /// Tokens that were read.
    seen: usize,
}

impl From<&Memory> for HeldEntries {
    fn from(memory: &Memory) -> HeldEntries {
        HeldEntries { entries: memory.entries(), seen: memory.seen() }
    }
}

impl SampleLengths {
    /// Makes the lengths of a text without a prompt, of which all tokens but the first are predicted.
    pub fn of_text(tokens: usize) -> SampleLengths {
        SampleLengths { prompt: None, tokens, predicted: 1..tokens.max(2), pieces: Pieces::OfText { lead: 0 } }
    }

    /// Tokens that shares are of: the prompt, or the sample where it has none.
    pub fn whole(&self) -> usize {
        self.prompt.unwrap_or(self.tokens)
    }

    /// Returns the lengths of a sample whose prompt `tokens` more tokens follow.
    pub(super) fn followed_by(self, tokens: usize) -> SampleLengths {
        let read = self.predicted.start;
        SampleLengths { tokens: read + tokens, predicted: read..read + tokens.max(1), ..self }
    }

    /// Tokens of a piece that `truncate` with pieces of `size` tokens has read when token `at` is predicted.
    fn in_piece(&self, size: usize, at: usize) -> usize {
        match self.pieces {
            Pieces::LastOfPrompt => size.min(self.predicted.start) + at - self.predicted.start,
            Pieces::OfText { lead } => {
                let room = size.saturating_sub(lead).max(1);
                lead + (at - lead.min(at)) % room
            }
        }
    }
}

impl CacheConfig {
    /// Bytes that the cache holds on average while each of the `predicted` tokens is predicted.
    fn mean_memory(&self, shape: &ModelShape, lengths: &SampleLengths) -> f64 {
        self.mean_over(lengths, shape.held_bytes((self.sized(), self.cache.options), lengths.whole()))
    }

    /// The mean over the `predicted` tokens of a number of the tokens that were read before.
    fn mean_over(&self, lengths: &SampleLengths, held: impl Fn(usize) -> u64) -> f64 {
        let piece = self.cache.rule.piece();
        let seen = |at: usize| piece.map_or(at, |size| lengths.in_piece(size, at));
        let sum: u64 = lengths.predicted.clone().map(|at| held(seen(at))).sum();
        sum as f64 / lengths.predicted.len().max(1) as f64
    }

    /// The most bytes that the cache holds between two tokens.
    fn peak_memory(&self, shape: &ModelShape, lengths: &SampleLengths) -> u64 {
        let held = shape.held_bytes((self.sized(), self.cache.options), lengths.whole());
        let last = lengths.predicted.end.max(1) - 1;
        match self.cache.rule.piece() {
            Some(size) => lengths.predicted.clone().map(|at| held(lengths.in_piece(size, at))).max().unwrap_or(0),
            None => {
                let whole =
                    if self.cuts() { shape.held_bytes((None, self.cache.options), 0)(lengths.whole()) } else { 0 };
                (1..=last).map(held).max().unwrap_or(0).max(whole)
            }
        }
    }

    /// Returns what the cache holds for a sample of which `lengths` were read and written. Where whole blocks leave, only `after_cut`,
    /// from after the prompt's cut, says how many entries there are; without it, and where more blocks leave later, nothing is known.
    pub(super) fn memory(
        &self,
        shape: &ModelShape,
        lengths: &SampleLengths,
        after_cut: Option<&HeldEntries>,
    ) -> Option<CacheMemory> {
        if self.why_uncounted(shape, lengths).is_some() && self.evicting(lengths.tokens).is_some() {
            return None;
        }
        let cuts_once = |policy: SizedPolicy| policy.schedule.cuts() && policy.schedule.every().is_none();
        match self.sized().filter(|policy| {
            policy.score.block().is_some() && !policy.selects() && self.evicting(lengths.tokens).is_some()
        }) {
            None => Some(CacheMemory {
                held: self.mean_memory(shape, lengths),
                read: self
                    .mean_over(lengths, shape.read_bytes((self.sized(), self.cache.options), lengths.whole())),
                peak: self.peak_memory(shape, lengths),
            }),
            Some(policy) if cuts_once(policy) => Some(self.memory_with_blocks(shape, lengths, after_cut?)),
            Some(_) => None,
        }
    }

    /// What a cache that was cut once, by whole blocks, holds: as many entries as it has then, which grow by one a token.
    fn memory_with_blocks(
        &self,
        shape: &ModelShape,
        lengths: &SampleLengths,
        after_cut: &HeldEntries,
    ) -> CacheMemory {
        let of_layers = after_cut.entries.iter().zip(self.bounded);
        let own: Vec<Option<usize>> = of_layers
            .flat_map(|(heads, is_bounded)| heads.iter().map(|held| is_bounded.then_some(*held)))
            .collect();
        let held = |tokens: usize| {
            let mut entries = shape.entries_after((self.sized(), self.cache.options), tokens, lengths.whole());
            for (entries, held) in entries.iter_mut().zip(&own) {
                *entries = held.map_or(*entries, |held| (held + tokens).saturating_sub(after_cut.seen));
            }
            shape.held_bytes_by_head(&entries, self.cache.options)
        };
        let all: Vec<u64> = lengths.predicted.clone().map(held).collect();
        let whole = shape.held_bytes((None, self.cache.options), 0)(lengths.whole());
        let mean = all.iter().sum::<u64>() as f64 / all.len().max(1) as f64;
        CacheMemory { held: mean, read: mean, peak: all.into_iter().max().unwrap_or(0).max(whole) }
    }

    /// Makes the configuration of one sample: a size that is a share or an amount of memory becomes entries. A share that is less than the
    /// policy protects becomes the least size that works; memory becomes the largest size whose mean is not above it.
    ///
    /// # Errors
    /// A policy that can have no such size, and memory that holds less than the policy protects.
    pub(super) fn of_sample(&self, shape: &ModelShape, lengths: &SampleLengths) -> Result<CacheConfig> {
        let size = match self.cache.relative {
            None | Some(CacheSize::Entries(_)) => return Ok(*self),
            Some(CacheSize::Share(share)) => self.least_size(share.of(lengths.whole()))?,
            Some(CacheSize::Memory(memory)) => self.size_of_memory(shape, lengths, memory)?,
        };
        Ok(self.with_size(size))
    }

    fn with_size(&self, size: usize) -> CacheConfig {
        let rule = match self.cache.rule {
            CacheRule::Unbounded => CacheRule::Unbounded,
            CacheRule::Truncate { .. } => CacheRule::Truncate { size },
            CacheRule::Evict { policy, .. } => CacheRule::Evict { policy, size },
        };
        CacheConfig { cache: CacheSpec { rule, ..self.cache }, ..*self }
    }

    /// The least size that is not below `entries` and that the policy can have.
    fn least_size(&self, entries: usize) -> Result<usize> {
        const TRIED: usize = 1 << 16;
        let size = match self.cache.rule {
            CacheRule::Evict { policy, .. } => {
                policy.least_size(entries, entries.saturating_add(TRIED), self.bounded, self.kv_heads)
            }
            _ => Some(entries.max(2)),
        };
        ensure!(size.is_some(), "the policy can have no cache of {entries} entries or a little more");
        Ok(size.unwrap_or(entries))
    }

    /// The largest size whose mean memory is `memory` or less.
    fn size_of_memory(&self, shape: &ModelShape, lengths: &SampleLengths, memory: MemorySize) -> Result<usize> {
        let full = shape.held_bytes((None, CacheOptions::default()), 0)(lengths.whole());
        let most = match memory {
            MemorySize::Share(share) => full as f64 * share.number(),
            MemorySize::Bytes(bytes) => bytes as f64,
        };
        if let Some(reason) = self.why_uncounted(shape, lengths) {
            bail!(
                "what the cache holds depends on which entries are evicted, because {reason}; give it `cache_sizes`"
            );
        }
        let mean = |size: usize| self.with_size(size).mean_memory(shape, lengths);
        let mut fits = self.least_size(1)?;
        let least = mean(fits);
        ensure!(
            least <= most,
            "memory {memory} is less than the policy needs for a sample of {} tokens{}; the least that works is {}",
            lengths.tokens,
            lengths.prompt.map_or(String::new(), |prompt| format!(" with a prompt of {prompt}")),
            match memory {
                MemorySize::Share(_) => format!("{:.2}%", (1e4 * least / full.max(1) as f64).ceil() / 100.0),
                MemorySize::Bytes(_) => Bytes(least.ceil() as u64).to_string(),
            }
        );
        let mut too_large = lengths.tokens.max(lengths.predicted.end).max(fits) + 1;
        if mean(too_large) <= most {
            return Ok(too_large);
        }
        while too_large - fits > 1 {
            let middle = fits + (too_large - fits) / 2;
            if mean(middle) <= most { fits = middle } else { too_large = middle }
        }
        Ok(fits)
    }

    /// Says why the number of entries does not tell what a cache holds once entries are evicted; `None` where it does.
    fn why_uncounted(&self, shape: &ModelShape, lengths: &SampleLengths) -> Option<String> {
        let options = self.cache.options;
        if options.format.kivi_bits().is_some() {
            return Some(format!("in {} scales of a group stay with the last of its entries", options.format));
        }
        let pools = self.cache.rule.policy().is_some_and(|policy| policy.budget.pools_model());
        let is_unequal = pools && !shape.has_layers_alike(options, lengths.tokens);
        is_unequal.then(|| "layers with windows or entries of unequal length share one pool".to_owned())
    }

    /// Returns the entries of a cache whose size depends on the sample; `None` for other caches.
    pub(super) fn own_size(&self) -> Option<usize> {
        self.cache.rule.size().filter(|_| self.cache.relative.is_some())
    }

    /// The policy with the size that it has for a sample with such lengths.
    pub fn sized_for(&self, shape: &ModelShape, lengths: &SampleLengths) -> Option<SizedPolicy> {
        self.of_sample(shape, lengths).ok()?.sized()
    }

    /// Returns the entries of a cache for a sample with such lengths; `None` for the unbounded cache.
    pub fn entries_for(&self, shape: &ModelShape, lengths: &SampleLengths) -> Option<usize> {
        self.of_sample(shape, lengths).ok()?.cache.rule.size()
    }

    /// Whether the size is a share of a sample with such lengths that is less than what the policy protects.
    pub fn raises_share(&self, shape: &ModelShape, lengths: &SampleLengths) -> bool {
        let Some(CacheSize::Share(share)) = self.cache.relative else { return false };
        let own = self.of_sample(shape, lengths).ok().and_then(|own| own.cache.rule.size());
        own.is_none_or(|own| own > share.of(lengths.whole()))
    }
}

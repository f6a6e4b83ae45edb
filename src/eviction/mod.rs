//! Who stays in the cache.
//!
//! A policy decides, token by token, which entry leaves; here are the policies and the scan that applies one to a
//! table of attention logits. No tensor library, no files: slices in, victims out, and nothing fails after
//! [`Policy::at`] has accepted the settings.

#[cfg(test)]
mod definition;
mod entries;
mod policy;
pub mod presets;
mod scan;
#[cfg(test)]
mod tests;

pub use entries::{CacheEntries, Heads};
pub use policy::{Amount, Policy, PolicyError, Scope, Score, SizedPolicy};
pub use scan::{BlockScan, Eviction, Normaliser};

/// How much of the past the model may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheRule {
    /// The unbounded cache (the paper's topline).
    Unbounded,
    /// The text is cut to pieces of `size` tokens and each is read with an empty, unbounded cache (the paper's
    /// "Baseline", section 5.1).
    Truncate { size: usize },
    /// A cache of `size` entries under a policy.
    Evict { policy: Policy, size: usize },
}

/// Which position a key is rotated at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// The token's place in the text (the paper's released code).
    #[default]
    Absolute,
    /// The entry's rank in the cache (StreamingLLM).
    Slot,
    /// As `Absolute`, but a gap g > 10 between neighbours in the cache becomes ln(ln g) (paper, section 7.2).
    Squeezed,
}

impl Positions {
    pub const ALL: [Positions; 3] = [Positions::Absolute, Positions::Slot, Positions::Squeezed];

    /// The name YAML, the command line and result rows use.
    pub fn name(self) -> &'static str {
        match self {
            Positions::Absolute => "absolute",
            Positions::Slot => "slot",
            Positions::Squeezed => "squeezed",
        }
    }
}

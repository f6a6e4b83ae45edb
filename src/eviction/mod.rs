//! Which entries survive in a bounded cache.
//!
//! A policy decides, token by token, which entry to evict. This module holds the policies and the scan that
//! applies one to a table of attention logits. It uses no tensor library, and no files but those that a formula names: slices
//! in, evicted columns out. Nothing fails after [`Policy::at`] has accepted the settings.

mod budget;
mod custom;
#[cfg(test)]
mod definition;
mod entries;
pub mod formula;
mod future;
mod on_device;
mod policy;
mod pool;
pub mod presets;
mod scan;
mod schedule;
mod scoring;
mod settings;
mod size;
#[cfg(test)]
mod tests;

pub use budget::{Budget, BudgetPool, PoolOver};
pub use custom::{CustomScore, Remembered, ScoreFunction, State, Step};
pub use entries::{CacheEntries, Heads};
pub use future::{LONGEST_KNOWN, RecordedAttention};
pub use on_device::{ScanRule, Scanned};
pub use policy::{Amount, CacheRule, Policy, SizedPolicy};
pub use pool::{Kept, LayerEntries, evict_together};
pub use scan::{BlockScan, Eviction, NewEntries, Normaliser, Vectors, Wanted};
pub use schedule::{MOST_AT_ONCE, SCHEDULES, Schedule};
pub use scoring::{NamedScore, SCORES, Score};
pub use settings::{Keyword, LOCAL_LAYERS, LocalLayers, POSITIONS, Positions, SCOPES, Scope};
pub use size::{CacheSize, SizeShare};

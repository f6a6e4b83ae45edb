//! Which entries survive in a bounded cache.
//!
//! A policy decides, token by token, which entry to evict. This module holds the policies and the scan that
//! applies one to a table of attention logits. It uses no tensor library, and no files but those that a formula names: slices
//! in, evicted columns out. Nothing fails after [`Policy::at`] has accepted the settings.
//!
//! No file imports one that imports it, not by way of others either. To read them, begin with `policy` and what it is made of (`score` with
//! `formula` or `custom`, `amount`, `budget`, `deciding`, `schedule`, `settings`), and with what a cache size (`sized_policy`) and `options` make of it. Then a
//! cache: what a layer gives it (`block`), its `entries`, how it begins (`fork`), how it ranks its entries (`scoring`), evictions over
//! several heads (`pool`), what queries `select` where none leaves, and the `scan`, which takes a block through all of these.

mod amount;
mod block;
mod budget;
mod cache_format;
mod cache_rule;
mod custom;
mod deciding;
mod entries;
mod fork;
pub mod formula;
mod future;
mod last_rows;
mod method;
mod named_policy;
mod on_device;
mod options;
mod policy;
mod pool;
pub mod presets;
mod scan;
mod schedule;
mod score;
mod scoring;
mod select;
mod settings;
mod size;
mod sized_policy;
#[cfg(test)]
mod tests;

pub use amount::{Amount, FirstTokens};
pub use block::{NewEntries, Queries, Vectors, Wanted};
pub use budget::{Budget, BudgetPool, PoolOver};
pub use cache_format::{CacheFormat, FORMATS, GROUP, NumberFormat, RESIDUAL, VectorFormat};
pub use cache_rule::{CacheRule, CacheSpec};
pub use custom::{CustomScore, Remembered, Step};
pub use deciding::{DecidingLayer, DecidingLayers};
pub use entries::{CacheEntries, Eviction, Led};
pub use formula::ScoreCount;
pub use future::{LONGEST_KNOWN, RecordedAttention};
pub use named_policy::{DefinedPolicy, KnownPolicies, NamedPolicy, PolicyError, WrittenPolicy};
pub use on_device::{Decisions, ScanRule, Scanned};
pub use options::{CacheOptions, LOCAL_LAYERS, LocalLayers, POSITIONS, Positions};
pub use policy::Policy;
pub use pool::{Kept, LayerEntries, evict_together};
pub use scan::{BlockScan, Normaliser};
pub use schedule::{MOST_AT_ONCE, SCHEDULES, Schedule};
pub use score::{SCORES, Score};
pub use settings::{Heads, Keyword, SCOPES, Scope};
pub use size::{CacheSize, MemorySize};
pub use sized_policy::SizedPolicy;

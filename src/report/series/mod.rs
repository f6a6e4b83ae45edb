//! From rows to numbers: sums by sample, pooled points with their differences, and the smallest sufficient cache.

pub(crate) mod breakdown;
pub(crate) mod ceiling;
pub(crate) mod distance;
pub(crate) mod influence;
mod unique_names;
pub(crate) use unique_names::definition;
pub use unique_names::with_unique_names;
pub(crate) mod key;
pub mod order;
pub(crate) mod pairs;
pub(crate) mod panel;
pub(crate) mod pool;
pub(crate) mod results;
pub(crate) mod schedules;
pub(crate) mod show;
pub(crate) mod size;
pub(crate) mod smallest_cache;
pub(crate) mod sums;

pub(crate) use breakdown::{Breakdown, TASK_AND_LENGTH};
pub(crate) use ceiling::Ends;
pub(crate) use distance::{Distance, Limit};
pub(crate) use influence::Influence;
pub(crate) use key::{SeriesKey, prefill_words};
pub(crate) use pairs::{Outcome, Pair};
pub(crate) use panel::{LENGTH_AND_DEPTH, PIECE, Panel, Point, RUNNING};
pub(crate) use pool::{Cell, Difference, Pool, Pooled};
pub(crate) use results::Results;
pub(crate) use schedules::{Schedules, schedules};
pub(crate) use show::signed;
pub(crate) use size::{Size, SizeAxis, SizeUnit, place};
pub(crate) use smallest_cache::{SmallestCache, not_stated};
pub(crate) use sums::{
    AllSeries, CellSums, PolicyAtSize, SampleSum, Series, Unbounded, all_series, cell_of, with_geometric_means,
};

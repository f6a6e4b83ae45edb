//! Tables, figures and files of result rows.
//!
//! [`Results`] reduces rows once to series and pools these into [`Panel`]s of [`Point`]s, with intervals and paired
//! differences; [`write()`] puts a page, a Markdown report, CSV, LaTeX and figures into a folder, with what a caller has
//! [`Published`] beside them. It needs no model, no network and no system fonts, and knows rows, not how they were measured.

mod asked;
pub(crate) mod axis;
pub(crate) mod breakdown;
pub(crate) mod chart;
mod csv;
pub(crate) mod curve;
mod distance;
mod distinct;
mod enough;
pub mod escape;
mod evicted;
mod export;
mod figure_title;
#[cfg(test)]
pub(crate) mod fixture;
mod floor_to_ceiling;
pub(crate) mod font;
mod format;
pub(crate) mod heatmap;
mod html;
mod interval;
mod kept_by_position;
mod kept_tokens;
mod latex;
pub(crate) mod layer_bounds;
mod markdown;
mod needle_map;
pub mod order;
mod pairing;
mod pairs;
mod plain;
mod points;
mod policy_words;
mod pool;
mod pr_summary;
mod provenance;
mod published;
mod results;
pub(crate) mod retention;
pub(crate) mod scene;
mod series;
mod series_key;
pub(crate) mod series_style;
mod sheets;
mod show;
mod sign_test;
mod special_tokens;
mod summary;
pub(crate) mod table;
pub(crate) mod throughput;
mod within;
mod write_report;

pub use distance::Distance;
pub use distinct::distinct;
pub use format::{FORMATS, Format};
pub use html::Live;
pub use interval::{Estimate, Interval, Sums, error_on_one_side};
pub use markdown::push_body;
pub use pairs::{Outcome, Pair};
pub use plain::Plain;
pub use points::{Panel, Point, place};
pub(crate) use points::{RUNNING, Running, coverage, running};
pub(crate) use pool::difference;
pub use pool::{Difference, Pooled, pooled};
pub use published::{Beside, Published};
pub use results::Results;
pub use series::{
    AllSeries, CellSums, PolicyAtSize, SampleSum, SeriesId, Unbounded, all_series, is_shared, label,
    with_geometric_means,
};
pub use series_key::{SeriesKey, prefill_words};
pub use sheets::capital;
pub use sign_test::{PValue, has_verdicts};
pub use table::{CLAIM, Entry, Grid, Line, Sheet, text_under};
pub use throughput::median;

pub use write_report::{Options, WIDTH, Written, write};

//! What was found: tables, curves and files, from the rows alone.
//!
//! [`panels`] pools rows into [`Point`]s with intervals and paired differences; [`write()`] puts a page, a Markdown report, a CSV
//! of all points and the figures into a folder; [`terminal`] is the short answer. It needs no model, no network and no
//! fonts of the system, and refuses to know how a row was measured.

mod axis;
mod bootstrap;
mod breakdown;
mod brief;
mod chart;
mod csv;
mod curve;
pub mod escape;
mod export;
#[cfg(test)]
mod fixture;
mod font;
mod format;
mod gather;
mod heatmap;
mod html;
mod kept_by_position;
mod kept_tokens;
mod latex;
mod markdown;
pub mod order;
mod pairing;
mod pairs;
pub mod paper;
mod penn;
mod points;
mod pool;
mod quantity;
mod retention;
mod scene;
mod series_style;
mod setting;
mod sheets;
mod summary;
mod table;
mod throughput;
mod within;
mod written;

pub use bootstrap::{Estimate, Interval, Sums, interval, pooled, resample};
pub use format::Format;
pub use gather::{is_shared, label};
pub use markdown::push_grid;
pub use pairs::Pair;
pub use points::{Panel, Point, panels};
pub use quantity::{Better, METRICS, Quantity, is_result};
pub use setting::Setting;
pub use summary::terminal;
pub use table::{Entry, Grid, Line, Sheet, text_under};
pub use within::{Distance, DistanceError};
pub use written::{Options, Written, write};

//! Tables, figures and files of result rows.
//!
//! [`Results`] reduces rows once to series and pools these into [`Panel`]s of [`Point`]s, with intervals and paired
//! differences; [`write()`] puts a page, a Markdown report, CSV, LaTeX and figures into a folder, with blocks
//! of the caller's own. It needs no model, no network and no system fonts, and knows rows, not how they were measured.

pub mod document;
pub mod escape;
pub(crate) mod figure;
mod format;
pub(crate) mod sections;
pub mod series;
mod special_tokens;
pub(crate) mod statistics;
#[cfg(test)]
mod tests;
mod write;

pub use document::{Block, Column, Document, Entry, Grid, Group, Line, Section, Table};
pub use figure::plain::Plain;
pub use format::html::page_head;
pub use format::markdown::render as markdown;
pub use format::terminal::{FAINT, WIDTH, render as terminal};
pub use format::{FORMATS, Format};
pub use sections::speed::median;
pub use sections::unmeasured::unmeasured;
pub use series::distance::Distance;
pub use series::key::SeriesKey;
pub use series::order;
pub use series::pairs::{Outcome, Pair};
pub use series::panel::Panel;
pub(crate) use series::panel::{RUNNING, Running, coverage, running};
pub(crate) use series::pool::difference;
pub use series::pool::{Difference, Pooled, pooled};
pub use series::results::Results;
pub use series::size::{Size, SizeAxis, place};
pub use series::sums::{CellSums, PolicyAtSize, SampleSum, Unbounded, all_series, with_geometric_means};
pub use series::with_unique_names;
pub use statistics::interval::{Estimate, Interval, Sums};
pub use statistics::sign_test::has_verdicts;

#[cfg(test)]
pub(crate) use tests::fixture;
pub(crate) use write::Folder;
pub use write::{Options, Written, write};

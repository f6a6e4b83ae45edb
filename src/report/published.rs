//! What a caller adds to a report: published numbers beside its tables, and blocks after them.
//!
//! The report knows rows only. Modules that know a publication, such as `paper`, implement [`Published`].

use crate::metric::Slice;
use crate::report::document::{Block, Entry, Grid};
use crate::report::series::{Results, SeriesKey, Size};

/// Columns laid beside a table.
pub struct PublishedColumns {
    pub columns: Vec<&'static str>,
    /// For each line of the table, an entry for each column.
    pub cells: Vec<Vec<Option<Entry>>>,
    /// Where the numbers are from, to be said below the table.
    pub source: String,
}

impl PublishedColumns {
    /// Adds the columns on the right.
    pub(crate) fn append_to(&self, grid: &mut Grid) {
        grid.columns.extend(self.columns.iter().map(|column| (*column).into()));
        for (line, cells) in grid.lines.iter_mut().zip(&self.cells) {
            line.cells.extend(cells.iter().cloned());
        }
    }
}

/// Published results that a report shows beside what was measured. By default there are none.
pub trait Published {
    /// PublishedColumns the table of decoding speed, whose lines are policies at sizes.
    fn decoding_columns(&self, _key: &SeriesKey, _lines: &[(&str, Option<Size>)]) -> Option<PublishedColumns> {
        None
    }

    /// PublishedColumns a table of lifetimes, sorted by a cache size, whose lines are slices of tokens; `None` is all.
    fn lifetime_columns(
        &self,
        _key: &SeriesKey,
        _size: Size,
        _slices: &[Option<&Slice>],
    ) -> Option<PublishedColumns> {
        None
    }

    /// A sentence on lifetimes in general.
    fn on_lifetimes(&self) -> String {
        String::new()
    }

    /// Blocks of its own about the results, which come after the settings.
    fn blocks(&self, _results: &Results<'_>) -> Vec<Block> {
        Vec::new()
    }
}

/// No published results.
impl Published for () {}

//! A table before it has a format: numbers as they are shown, with what each line and column is about.

use crate::metric::Metric;
use crate::report::series::{Size, signed};
use crate::report::statistics::Estimate;

/// A table with its title and explanations.
#[derive(Clone, Debug)]
pub struct Table {
    pub title: String,
    /// What the numbers are, in a sentence or two.
    pub about: String,
    /// The header above the names of the lines.
    pub corner: &'static str,
    pub grid: Grid,
    /// Whether cells are sentences, which take several lines, and not numbers.
    pub has_sentences: bool,
    /// The cache size that the whole table is of.
    pub size: Option<Size>,
    /// Warnings, one sentence each.
    pub notes: Vec<String>,
}

/// The columns and lines of a table.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    pub columns: Vec<Column>,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// The cache size that it is of.
    pub size: Option<Size>,
}

#[derive(Clone, Debug, Default)]
pub struct Line {
    pub name: String,
    /// The policy, and the cache size, that it is of.
    pub policy: Option<String>,
    pub size: Option<Size>,
    /// One per column; `None` where nothing was measured.
    pub cells: Vec<Option<Entry>>,
}

/// A number of a table, or a word.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub number: String,
    /// The ends of its interval, or of the repeats.
    pub spread: Option<String>,
    /// Shown to be worse than the best of its column, and so grey.
    pub worse: bool,
    /// Not over all samples of the panel.
    pub partial: bool,
}

impl Table {
    /// A table of numbers without warnings.
    pub fn new(title: impl Into<String>, about: impl Into<String>, corner: &'static str, grid: Grid) -> Self {
        let (title, about) = (title.into(), about.into());
        Self { title, about, corner, grid, has_sentences: false, size: None, notes: Vec::new() }
    }
}

impl Grid {
    /// Lines over columns of cache sizes.
    pub fn by_size(sizes: impl IntoIterator<Item = impl Into<Size>>, lines: Vec<Line>) -> Self {
        Self { columns: sizes.into_iter().map(Column::of_size).collect(), lines }
    }

    /// The entries of all lines.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.lines.iter().flat_map(|line| line.cells.iter().flatten())
    }
}

impl Column {
    pub fn of_size(size: impl Into<Size>) -> Self {
        let size = size.into();
        Self { name: size.to_string(), size: Some(size) }
    }
}

impl<T: Into<String>> From<T> for Column {
    fn from(name: T) -> Self {
        Self { name: name.into(), size: None }
    }
}

impl Line {
    pub fn new(name: impl Into<String>, cells: Vec<Option<Entry>>) -> Self {
        Self { name: name.into(), cells, ..Self::default() }
    }

    /// A line of a policy: under its name, unless another is given.
    pub fn of_policy(policy: &str, cells: Vec<Option<Entry>>) -> Self {
        Self { policy: Some(policy.to_owned()), ..Self::new(policy, cells) }
    }

    /// Whether anything was measured.
    pub fn has_any(&self) -> bool {
        self.cells.iter().any(Option::is_some)
    }
}

impl Entry {
    /// A number without an interval, or a word.
    pub fn plain(number: impl Into<String>) -> Self {
        Self { number: number.into(), spread: None, worse: false, partial: false }
    }

    /// An estimate with its interval.
    pub(crate) fn estimate(Estimate { value, interval }: Estimate, show: impl Fn(f64) -> String) -> Self {
        let spread = interval.map(|ends| format!("[{}, {}]", show(ends.low), show(ends.high)));
        Self { spread, ..Self::plain(show(value)) }
    }

    /// A number of a metric, whose interval has its digits.
    pub(crate) fn of(metric: &Metric, estimate: Estimate) -> Self {
        Self::estimate(estimate, |end| metric.show_as(end, estimate.value))
    }

    /// How many nats a perplexity is above the full cache's, with its interval.
    pub(crate) fn of_excess(excess: Estimate) -> Self {
        Self::estimate(excess, |nats| signed(nats, digits_of_nats(excess)).trim_start_matches('+').to_owned())
    }

    /// How many nats a perplexity is above another, with its sign and its interval.
    pub(crate) fn of_nats(difference: Estimate) -> Self {
        Self::estimate(difference, |nats| signed(nats, digits_of_nats(difference)))
    }

    /// A difference with its sign and its interval.
    pub(crate) fn of_difference(metric: &Metric, difference: Estimate) -> Self {
        Self::estimate(difference, |end| metric.show_difference(end))
    }
}

/// Digits of a difference in nats: near zero, a few ten-thousandths are told apart.
fn digits_of_nats(difference: Estimate) -> usize {
    if difference.value != 0.0 && difference.value.abs() < 0.01 { 4 } else { 3 }
}

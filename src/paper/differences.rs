//! Measured numbers beside the paper's, where another model compares too: excess perplexity, and steps by tag.
//!
//! Numbers are compared where samples are as long as the paper's and it has the size. Another model is allowed, and said.

use super::numbers::{BySize, LENGTH, MODEL, NUMBERS, TABLE_5_SIZES, TagSteps};
use super::{Exhibit, TOVA};
use crate::report::sections::kept::{self, Kept};
use crate::report::series::signed;
use crate::report::{Entry, Estimate, Grid, Line, Panel, Size, Table};

/// The paper's Table 3 for a panel of perplexities of texts as long as the paper's, and the sizes that both have, at least one.
pub(super) fn printed_and_sizes(panel: &Panel) -> Option<(&'static BySize, Vec<Size>)> {
    let is_of_table = (&*panel.key.task, &*panel.metric.id, panel.key.length) == ("perplexity", "nll", LENGTH);
    let (paper, measured) = (is_of_table.then_some(&NUMBERS.table_3)?, panel.sizes());
    let mut sizes: Vec<Size> = paper.sizes.iter().map(|size| (*size).into()).collect();
    sizes.retain(|size| measured.contains(size));
    (!sizes.is_empty()).then_some((paper, sizes))
}

/// The difference of an estimate to a printed number, with its interval, in `digits` digits.
fn minus(own: Estimate, theirs: f64, digits: usize) -> Entry {
    Entry::estimate(own, |value| signed(value - theirs, digits))
}

/// The excess over the full cache of a panel and of Table 3, line by line. It compares between models, which perplexities do not.
pub(super) fn excess(panel: &Panel, title: &str) -> Option<Table> {
    let (paper, sizes) = printed_and_sizes(panel)?;
    let nats = |policy: &str, size: Size| panel.point(policy, Some(size))?.to_full.as_ref()?.nats;
    let line = |name: String, cell: &dyn Fn(Size) -> Option<Entry>| {
        Line::new(name, sizes.iter().map(|size| cell(*size)).collect())
    };
    let both = |policy: &str| {
        let own = line(policy.to_owned(), &|size| Some(minus(nats(policy, size)?, 0.0, 3)));
        let theirs = |size| Some(Entry::plain(signed((paper.value(policy, size)? / paper.full?).ln(), 3)));
        [own, line(format!("{policy}, {MODEL}"), &theirs)]
    };
    let known = panel.policies().into_iter().filter(|policy| paper.rows.iter().any(|(name, _)| name == policy));
    let lines: Vec<Line> = known.flat_map(both).collect();
    let is_measured = lines.iter().any(Line::has_any);
    let about = format!(
        "Nats for each token above the full cache: ln(perplexity / that of full), 0.01 being 1 %. Beside each policy the paper's Table 3 ({MODEL}); in brackets are paired 95 % intervals."
    );
    let grid = Grid::by_size(sizes.iter().copied(), lines);
    is_measured.then(|| {
        Table::new(format!("Excess over the full cache, beside the paper's \u{B7} {title}"), about, "policy", grid)
    })
}

/// Steps by tag minus lines of Table 5; `None` where no size or length is the paper's.
pub(super) fn steps(exhibit: Exhibit, section: &Kept<'_>, lines: &[TagSteps]) -> Option<Table> {
    let is_of_paper = section.key.length == LENGTH;
    let place = |size: Size| TABLE_5_SIZES.iter().position(|known| is_of_paper && Some(*known) == size.entries());
    let column = |size: Size| Some((size, place(size)?));
    let sizes: Vec<(Size, usize)> = section.sizes_of(TOVA).into_iter().filter_map(column).collect();
    let line = |TagSteps(tag, slice, theirs): &TagSteps| {
        let cell = |&(size, column): &(Size, usize)| {
            Some(minus(section.steps(slice.as_ref(), TOVA, size)?, theirs[column], 0))
        };
        let name = match slice {
            None => "all tokens".to_owned(),
            of_tag => format!("{tag} ({})", kept::name(of_tag.as_ref())),
        };
        Line::new(name, sizes.iter().map(cell).collect())
    };
    let lines = lines.iter().map(line).filter(Line::has_any).collect();
    let grid = Grid::by_size(sizes.iter().map(|(size, _)| *size), lines);
    let about = format!(
        "What was measured of the class or tag in brackets minus the paper's number of the Penn tag (TOVA, {MODEL}); in \
         brackets are 95 % intervals."
    );
    let title = format!("Steps kept minus the paper's {exhibit} \u{B7} {}", section.title);
    (!grid.lines.is_empty()).then(|| Table::new(title, about, "tag", grid))
}

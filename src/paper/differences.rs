//! What was measured minus what the paper prints, as sheets.
//!
//! Numbers are compared where samples are as long as the paper's and it has the size. Another model is allowed, and said.

use super::numbers::{LENGTH, MODEL, NUMBERS, Printed, STORY_MODEL, Speed, TABLE_5_SIZES, TagSteps};
use super::{Exhibit, TOVA};
use crate::format::capital;
use crate::report::sections::kept::{self, Kept};
use crate::report::sections::speed::{self as timing, Speeds};
use crate::report::series::signed;
use crate::report::{Column, Entry, Estimate, Grid, Line, Panel, SeriesKey, Size, Table};

/// The paper's numbers of what a panel measures, and the sizes that both have, at least one.
pub(super) fn printed_and_sizes(panel: &Panel) -> Option<(Printed, Vec<Size>)> {
    let paper = Printed::of(panel)?;
    let measured = panel.sizes();
    let both: Vec<Size> =
        paper.sizes.iter().map(|size| (*size).into()).filter(|size| measured.contains(size)).collect();
    (!both.is_empty()).then_some((paper, both))
}

/// Why there are no differences to the paper's numbers.
pub(super) fn not_compared(title: &str, length: u32) -> String {
    match length {
        LENGTH => format!("the paper prints no number of the policies and sizes of {title}"),
        _ => format!(
            "the paper's numbers are of {LENGTH} tokens, and {title} is of {length}, so they are not laid over it"
        ),
    }
}

/// A difference to a printed number with so many digits, and its interval.
fn minus(own: Estimate, theirs: f64, digits: usize) -> Entry {
    Entry::estimate(own, |value| signed(value - theirs, digits))
}

/// A panel minus the paper's.
pub(super) fn minus_paper(exhibit: Exhibit, panel: &Panel, title: &str) -> Option<Table> {
    let (paper, sizes) = printed_and_sizes(panel)?;
    let line = |policy: &str| {
        let cell = |size: &Size| {
            // The full cache has no size, so its value is shown under every one.
            let own = panel.shown_at(policy, Some(*size))?;
            let theirs = paper.shown_at(policy, *size)?;
            let minus = Entry::estimate(own.estimate, |value| panel.metric.show_difference(value - theirs));
            Some(Entry { partial: !own.complete, ..minus })
        };
        Line::of_policy(policy, sizes.iter().map(cell).collect())
    };
    let known = panel
        .policies()
        .into_iter()
        .filter(|policy| sizes.iter().any(|size| paper.shown_at(policy, *size).is_some()));
    let model = if panel.key.task == "perplexity" { MODEL } else { STORY_MODEL };
    let about = format!(
        "What was measured minus the paper's numbers, which are {model}'s; in brackets are 95 % intervals. Of another model or \
         other texts the shape compares, not the level."
    );
    let grid = Grid::by_size(sizes.iter().copied(), known.map(line).collect());
    let title = format!("{} minus the paper's {exhibit} \u{B7} {title}", capital(&panel.metric.label));
    Some(Table::new(title, about, "policy", grid))
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
    let known = panel.policies().into_iter().filter(|policy| paper.lines.iter().any(|(name, _)| name == policy));
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

/// The line of Table 1 with this length and size: of TOVA or of the full cache.
fn speed(key: &SeriesKey, policy: &str, size: Option<Size>) -> Option<&'static Speed> {
    let size = match (policy, size) {
        ("full", None) => LENGTH,
        (TOVA, Some(Size::Entries(size))) if size < LENGTH => size,
        _ => return None,
    };
    NUMBERS.table_1.iter().find(|known| known.size == size && key.length == LENGTH)
}

/// What was measured minus Table 1; `None` where it has none of the sizes.
pub(super) fn speeds(table: &Speeds, title: &str) -> Option<Table> {
    let lines = table.lines.iter().filter_map(|line| {
        let paper = speed(&table.key, &line.policy, line.size)?;
        let cell = |own: Option<f64>, theirs: f64, digits: usize| {
            Some(minus(Estimate { value: own?, interval: None }, theirs, digits))
        };
        let cells = vec![
            cell(line.median("cache_bytes").map(|bytes| bytes / 1e9), paper.memory, 3),
            cell(line.median("batch"), f64::from(paper.batch), 0),
            cell(table.relative(&line.policy, line.size).0, paper.throughput, 2),
        ];
        Some(Line::new(line.name(), cells))
    });
    let grid =
        Grid { columns: ["cache (GB)", "batch", "relative"].map(Column::from).to_vec(), lines: lines.collect() };
    let about = format!(
        "What was measured minus the paper's numbers ({MODEL} in bfloat16 on a V100): of another model or another machine \
         only relative throughput compares."
    );
    let title = format!("Table 1 minus the paper's \u{B7} {title}");
    (!grid.lines.is_empty()).then(|| Table::new(title, about, timing::CORNER, grid))
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

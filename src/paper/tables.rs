//! The paper's Tables 1, 2, 3 and 5 from rows, as sheets. An error says what the rows lack.

use indexmap::IndexMap;

use super::numbers::{NUMBERS, TagSteps};
use super::{Evidence, Exhibit, Pieces, TOVA, differences, titles};
use crate::metric::Slice;
use crate::report::sections::kept;
use crate::report::sections::kept::Kept;
use crate::report::sections::speed as timing;
use crate::report::sections::values::{self, Show};
use crate::report::{Entry, Grid, Line, SeriesKey, Size, Table, coverage};

pub(super) fn speed(_: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let timed = timing::all(&evidence.results.series);
    let keys: Vec<SeriesKey> = timed.iter().map(|table| table.key.clone()).collect();
    let mut pieces = Pieces::default();
    for table in &timed {
        let title = format!("{} \u{B7} {}", table.key.title(&keys), table.key.device);
        let heading = format!("Memory, batch and throughput \u{B7} {title}");
        pieces.tables.push(Table::new(heading, table.legend(), timing::CORNER, table.grid()));
    }
    pieces.or_missing("nothing was timed")
}

pub(super) fn ablation(_: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let panels = evidence
        .panels_of("perplexity", "nll", &|policy| NUMBERS.table_3.rows.iter().any(|(known, _)| known == policy));
    let mut pieces = Pieces { left_out: evidence.left_out(&panels), ..Pieces::default() };
    for (panel, title) in panels.iter().zip(titles(&panels)) {
        let Some(grid) = values::grid(panel, Show::Value) else { continue };
        pieces.differences.extend(differences::excess(panel, &title));
        let title = format!("Perplexity by policy and cache size \u{B7} {title}");
        let about = format!(
            "Lower is better; full is the paper's topline, truncate its baseline. {} samples from {} clusters; in \
             brackets are 95 % intervals{}.",
            panel.samples,
            panel.clusters,
            coverage(panel.clusters)
        );
        pieces.tables.push(Table { notes: panel.notes.clone(), ..Table::new(title, about, "policy", grid) });
    }
    pieces.or_missing("no perplexity of the paper's policies was measured")
}

/// The lines of Table 5 or of its beginning, Table 2.
pub(super) fn tags(exhibit: Exhibit, evidence: &Evidence<'_>, lines: &[TagSteps]) -> Result<Pieces, String> {
    let mut pieces = Pieces::default();
    for section in evidence.kept() {
        let grid = steps(section, lines);
        if grid.lines.is_empty() {
            continue;
        }
        let about = "Mean over tokens, layers and samples, by cache size, in the order of the paper's tags. In brackets are the \
                     Penn tags whose tokens have the class or tag here; results/README.md says what is alike and what is not. \
                     In brackets are 95 % intervals.";
        let title = format!("Steps {TOVA} keeps a token, by tag \u{B7} {}", section.title);
        pieces.tables.push(Table::new(title, about, "class or tag", grid));
        pieces.differences.extend(differences::steps(exhibit, section, lines));
    }
    pieces.or_missing(&evidence.why_nothing_kept("no steps that tova keeps a token were measured"))
}

/// A line for each class or tag that corresponds to some of the paper's tags.
fn steps(section: &Kept<'_>, lines: &[TagSteps]) -> Grid {
    let sizes = section.sizes_of(TOVA);
    let mut slices: IndexMap<&Option<Slice>, Vec<&str>> = IndexMap::new();
    for TagSteps(tag, slice, _) in lines {
        slices.entry(slice).or_default().push(tag);
    }
    let line = |(slice, tags): (&&Option<Slice>, &Vec<&str>)| {
        let cell = |size: &Size| {
            Some(Entry::estimate(section.steps(slice.as_ref(), TOVA, *size)?, |steps| format!("{steps:.0}")))
        };
        let name = match slice {
            None => "all tokens".to_owned(),
            of_tags => format!("{} ({})", kept::name(of_tags.as_ref()), tags.join(" ")),
        };
        Line::new(name, sizes.iter().map(cell).collect())
    };
    let lines = slices.iter().map(line).filter(Line::has_any).collect();
    Grid::by_size(sizes.iter().copied(), lines)
}

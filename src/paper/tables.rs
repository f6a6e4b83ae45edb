//! The paper's Tables 1, 2, 3 and 5 from rows, as sheets. An error says what the rows lack.

use super::published::{self, Paper};
use super::{Evidence, Exhibit, Pieces, TOVA, beside, numbers, tag_map, titles};
use crate::report::retention::Section;
use crate::report::table::{self, Show};
use crate::report::throughput::{self, Throughput};
use crate::report::{Entry, Grid, Line, RESAMPLES, SeriesKey, Sheet};

pub(super) fn speed(_: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let timed = throughput::tables(&evidence.results.series, &Paper);
    if timed.is_empty() {
        return Err("nothing was timed".to_owned());
    }
    let keys: Vec<SeriesKey> = timed.iter().map(|table| table.key.clone()).collect();
    let title = |table: &Throughput| format!("{} \u{B7} {}", table.key.title(&keys), table.key.device);
    let sheet = |table: &Throughput| Sheet {
        title: format!("Memory, batch and throughput \u{B7} {}", title(table)),
        about: table.legend(),
        corner: throughput::CORNER,
        grid: table.grid(),
        notes: Vec::new(),
    };
    let mut pieces = Pieces { tables: timed.iter().map(sheet).collect(), ..Pieces::default() };
    if evidence.beside_paper {
        for table in &timed {
            match minus_paper(table) {
                Some(grid) => pieces.differences.push(Sheet {
                    title: format!("Table 1 minus the paper's \u{B7} {}", title(table)),
                    about: format!(
                        "What was measured minus the paper's numbers ({} in bfloat16 on a V100): of another model or \
                         another machine only relative throughput compares.",
                        numbers::MODEL
                    ),
                    corner: throughput::CORNER,
                    grid,
                    notes: Vec::new(),
                }),
                None => pieces.notes.push(beside::other_length(&title(table), table.key.length)),
            }
        }
    }
    Ok(pieces)
}

/// What was measured minus the paper's Table 1; `None` where it has none of the sizes.
fn minus_paper(table: &Throughput) -> Option<Grid> {
    let lines = table.lines().iter().filter_map(|line| {
        let paper = published::speed(&table.key, &line.policy, line.size)?;
        let shown = |own: Option<f64>, theirs: f64, digits: usize| {
            own.map(|own| Entry::plain(table::signed(own - theirs, digits)))
        };
        let cells = vec![
            shown(line.median("cache_bytes").map(|bytes| bytes / 1e9), paper.memory, 3),
            shown(line.median("batch"), f64::from(paper.batch), 0),
            shown(table.relative(&line.policy, line.size).0, paper.throughput, 2),
        ];
        Some(Line { name: line.name(), cells })
    });
    let lines: Vec<Line> = lines.collect();
    let columns = ["cache (GB)", "batch", "relative"].map(str::to_owned).to_vec();
    (!lines.is_empty()).then_some(Grid { columns, lines })
}

pub(super) fn ablation(_: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let known = |policy: &str| numbers::TABLE_3.iter().any(|(known, _)| *known == policy);
    let panels = evidence.panels_of("perplexity", "nll", &known);
    let mut pieces = Pieces::default();
    for (panel, title) in panels.iter().zip(titles(&panels)) {
        let Some(grid) = table::grid(panel, Show::Value) else { continue };
        pieces.tables.push(Sheet {
            title: format!("Perplexity by policy and cache size \u{B7} {title}"),
            about: format!(
                "Lower is better; full is the paper's topline, truncate its baseline. {} samples from {} clusters; ± is half of \
                 the 95 % bootstrap interval ({RESAMPLES} resamples of clusters).",
                panel.samples, panel.clusters
            ),
            corner: "policy",
            grid,
            notes: panel.notes.clone(),
        });
    }
    if pieces.tables.is_empty() {
        return Err("no perplexity of the paper's policies was measured".to_owned());
    }
    if evidence.beside_paper {
        pieces.differences = beside::perplexity(&panels);
        pieces.notes.extend(beside::of_another_length(&panels));
    }
    Ok(pieces)
}

/// Table 5, or as many of its tags as Table 2 has.
pub(super) fn tags(exhibit: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let most = if exhibit.number() == 2 { numbers::TABLE_2_LENGTH } else { numbers::TABLE_5.len() };
    let mut pieces = Pieces::default();
    for section in evidence.kept() {
        let (sizes, grid) = steps(section, most);
        if grid.lines.is_empty() {
            continue;
        }
        pieces.tables.push(Sheet {
            title: format!("Steps {TOVA} keeps a token, by tag \u{B7} {}", section.title()),
            about: "Mean over tokens, layers and samples, by cache size, in the order of the paper's tags. In brackets are the \
                    Penn tags whose tokens have the class or tag here; results/README.md says what is alike and what is not. \
                    ± is half of the 95 % bootstrap interval."
                .to_owned(),
            corner: "class or tag",
            grid,
            notes: Vec::new(),
        });
        if evidence.beside_paper {
            match beside::steps(exhibit, section, most) {
                Some(sheet) => pieces.differences.push(sheet),
                None if section.key().length == numbers::LENGTH => {
                    let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
                    pieces.notes.push(format!("the paper has none of the sizes {}", sizes.join(", ")));
                }
                None => pieces.notes.push(beside::other_length(section.title(), section.key().length)),
            }
        }
    }
    if pieces.tables.is_empty() {
        return Err("no steps that tova keeps a token were measured".to_owned());
    }
    Ok(pieces)
}

/// A line for each class or tag that corresponds to one of the paper's first tags.
fn steps(section: &Section<'_>, most: usize) -> (Vec<u32>, Grid) {
    let sizes = section.sizes_of(TOVA);
    let tags = numbers::TABLE_5[..most].iter().map(|(tag, _)| *tag);
    let mut slices: Vec<(&str, Vec<&str>)> = Vec::new();
    for tag in tags {
        let slice = tag_map::slice(tag);
        match slices.iter_mut().find(|(known, _)| *known == slice) {
            Some((_, tags)) => tags.push(tag),
            None => slices.push((slice, vec![tag])),
        }
    }
    let line = |(slice, tags): &(&str, Vec<&str>)| {
        let cell = |size: &u32| {
            let steps = section.steps(slice, TOVA, *size)?;
            let spread = steps.interval.map(|interval| format!("±{:.0}", interval.half_width()));
            Some(Entry { spread, ..Entry::plain(format!("{:.0}", steps.value)) })
        };
        let name = match *slice {
            "" => "all tokens".to_owned(),
            slice => format!("{} ({})", slice.replace(':', " "), tags.join(" ")),
        };
        Line { name, cells: sizes.iter().map(cell).collect() }
    };
    let lines = slices.iter().map(line).filter(|line| line.cells.iter().any(Option::is_some)).collect();
    let columns = sizes.iter().map(u32::to_string).collect();
    (sizes, Grid { columns, lines })
}

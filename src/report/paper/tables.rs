//! The paper's Tables 1, 2, 3 and 5 from rows, as sheets.
//!
//! It says what stands in lines and columns; every format shows the same sheets.

use super::super::bootstrap::RESAMPLES;
use super::super::penn;
use super::super::retention::Section;
use super::super::setting::Setting;
use super::super::table::{self, Entry, Grid, Line, Sheet, Show};
use super::super::throughput::{self, Throughput};
use super::{Evidence, Exhibit, Pieces, TOVA, beside, numbers, titles};

/// The table; an error says what the rows lack.
pub(super) fn pieces(exhibit: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    match exhibit.number() {
        1 => speed(evidence),
        2 => tags(exhibit, evidence, numbers::TABLE_2_LENGTH),
        3 => ablation(evidence),
        _ => tags(exhibit, evidence, numbers::TABLE_5.len()),
    }
}

fn speed(evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let timed = throughput::tables(evidence.rows);
    if timed.is_empty() {
        return Err("nothing was timed".to_owned());
    }
    let settings: Vec<Setting> = timed.iter().map(|table| table.setting.clone()).collect();
    let title = |table: &Throughput| format!("{} \u{B7} {}", table.setting.title(&settings), table.setting.device);
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
            match table.minus_paper() {
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
                None => pieces.notes.push(beside::other_length(&title(table), table.setting.length)),
            }
        }
    }
    Ok(pieces)
}

fn ablation(evidence: &Evidence<'_>) -> Result<Pieces, String> {
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
fn tags(exhibit: Exhibit, evidence: &Evidence<'_>, most: usize) -> Result<Pieces, String> {
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
                None if section.setting().length == numbers::LENGTH => {
                    let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
                    pieces.notes.push(format!("the paper has none of the sizes {}", sizes.join(", ")));
                }
                None => pieces.notes.push(beside::other_length(section.title(), section.setting().length)),
            }
        }
    }
    if pieces.tables.is_empty() {
        return Err("no steps that tova keeps a token were measured".to_owned());
    }
    Ok(pieces)
}

/// A line for each class or tag that the paper's first tags are here.
fn steps(section: &Section<'_>, most: usize) -> (Vec<u32>, Grid) {
    let sizes = section.sizes_of(TOVA);
    let tags = numbers::TABLE_5[..most].iter().map(|(tag, _)| *tag);
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for tag in tags {
        let group = penn::group(tag);
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, tags)) => tags.push(tag),
            None => groups.push((group, vec![tag])),
        }
    }
    let line = |(group, tags): &(&str, Vec<&str>)| {
        let cell = |size: &u32| {
            let steps = section.steps(group, TOVA, *size)?;
            let spread = steps.interval.map(|interval| format!("±{:.0}", interval.half_width()));
            Some(Entry { spread, ..Entry::plain(format!("{:.0}", steps.value)) })
        };
        let name = match *group {
            "" => "all tokens".to_owned(),
            group => format!("{} ({})", group.replace(':', " "), tags.join(" ")),
        };
        Line { name, cells: sizes.iter().map(cell).collect() }
    };
    let lines = groups.iter().map(line).filter(|line| line.cells.iter().any(Option::is_some)).collect();
    let columns = sizes.iter().map(u32::to_string).collect();
    (sizes, Grid { columns, lines })
}

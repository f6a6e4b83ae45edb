//! What was measured minus what the paper prints, as sheets.
//!
//! Numbers are compared where samples are as long as the paper's and it has the size. Another model is allowed, and said.

use super::{Evidence, Exhibit, TOVA, numbers, tag_map, titles};
use crate::report::retention::Section;
use crate::report::{Entry, Grid, Line, Panel, Sheet, table};

/// The paper's sizes that a panel has, with their places in its Table 3; `None` where samples are of another length.
pub(super) fn sizes(panel: &Panel) -> Option<Vec<(usize, u32)>> {
    let measured = panel.sizes();
    let both = numbers::TABLE_3_SIZES.into_iter().enumerate().filter(|(_, size)| measured.contains(size));
    let both: Vec<(usize, u32)> = both.collect();
    (panel.key.length == numbers::LENGTH && !both.is_empty()).then_some(both)
}

/// Why the paper's numbers are not laid over.
pub(super) fn other_length(title: &str, length: u32) -> String {
    format!(
        "the paper's numbers are of {} tokens, and {title} is of {length}, so they are not laid over it",
        numbers::LENGTH
    )
}

/// The same for those of several panels that have another length.
pub(super) fn of_another_length(panels: &[Panel]) -> Vec<String> {
    let others = panels.iter().zip(titles(panels)).filter(|(panel, _)| panel.key.length != numbers::LENGTH);
    others.map(|(panel, title)| other_length(&title, panel.key.length)).collect()
}

/// Each panel minus Table 3.
pub(super) fn perplexity(panels: &[Panel]) -> Vec<Sheet> {
    let mut sheets = Vec::new();
    for (panel, title) in panels.iter().zip(titles(panels)) {
        let Some(sizes) = sizes(panel) else { continue };
        let row = |policy: &str| match policy {
            "full" => Some([numbers::TABLE_3_FULL; 7]),
            _ => numbers::TABLE_3.iter().find(|(known, _)| *known == policy).map(|(_, row)| *row),
        };
        let line = |policy: &str| {
            let theirs = row(policy)?;
            let cell = |(at, size): &(usize, u32)| {
                let point = panel.shown_at(policy, Some(*size))?;
                let own = point.estimate;
                let difference = own.value - theirs[*at];
                let spread = own.interval.map(|i| panel.metric.show_spread(i.half_width(), own.value));
                let number = panel.metric.show_difference(difference);
                Some(Entry { spread, partial: !point.complete, ..Entry::plain(number) })
            };
            Some(Line { name: policy.to_owned(), cells: sizes.iter().map(cell).collect() })
        };
        sheets.push(Sheet {
            title: format!("Perplexity minus the paper's Table 3 \u{B7} {title}"),
            about: format!(
                "What was measured minus the paper's numbers, which are {}'s on PG-19; ± is half of the 95 % interval of \
                 what was measured. Of another model or other texts the shape compares, not the level.",
                numbers::MODEL
            ),
            corner: "policy",
            grid: Grid {
                columns: sizes.iter().map(|(_, size)| size.to_string()).collect(),
                lines: panel.policies().into_iter().filter_map(line).collect(),
            },
            notes: Vec::new(),
        });
    }
    sheets
}

/// Figure 6's shares, and the lengths of stories.
pub(super) fn judged(evidence: &Evidence<'_>, endings: &[Vec<Panel>; 3]) -> Vec<Sheet> {
    let mut sheets = Vec::new();
    let sizes = numbers::FIGURE_6.map(|(size, _)| size);
    let difference = |own: f64, theirs: f64, spread: Option<f64>| Entry {
        spread: spread.map(|half| format!("±{half:.1}")),
        ..Entry::plain(table::signed(own - theirs, 1))
    };
    let sheet = |title: String, what: &str, columns: Vec<String>, lines: Vec<Line>| Sheet {
        title,
        about: format!(
            "What was measured minus {what} (TOVA, {}); ± is half of the 95 % interval of what was measured.",
            numbers::STORY_MODEL
        ),
        corner: "cache size",
        grid: Grid { columns, lines },
        notes: Vec::new(),
    };
    for (wins, title) in endings[0].iter().zip(titles(&endings[0])) {
        if wins.key.length != numbers::LENGTH {
            continue;
        }
        let line = |(name, ending): (&str, usize)| {
            let panel = endings[ending].iter().find(|panel| panel.key == wins.key);
            let cell = |(size, shares): &(u32, [f64; 3])| {
                let own = panel?.point(TOVA, Some(*size))?.estimate;
                Some(difference(own.value, shares[ending], own.interval.map(|i| i.half_width())))
            };
            Line { name: name.to_owned(), cells: numbers::FIGURE_6.iter().map(cell).collect() }
        };
        let lines: Vec<Line> = [("TOVA preferred", 0), ("equal", 1), ("full preferred", 2)].map(line).into();
        if lines.iter().flat_map(|line| &line.cells).any(Option::is_some) {
            let title = format!("Preferences in percent minus the paper's Figure 6 \u{B7} {title}");
            sheets.push(sheet(title, "the paper's shares", sizes.iter().map(u32::to_string).collect(), lines));
        }
    }
    let written = evidence.panels_of("story", "new_tokens", &|policy| policy == TOVA);
    for (panel, title) in written.iter().zip(titles(&written)) {
        if panel.key.length != numbers::LENGTH {
            continue;
        }
        let cell = |(size, tokens): &(Option<u32>, f64)| {
            let own = panel.point(if size.is_some() { TOVA } else { "full" }, *size)?.estimate;
            Some(difference(own.value, *tokens, own.interval.map(|i| i.half_width())))
        };
        let size =
            |(size, _): &(Option<u32>, f64)| size.map_or_else(|| "full".to_owned(), |size| size.to_string());
        let columns = numbers::STORY_LENGTH.iter().map(size).collect();
        let line = Line { name: "tokens".to_owned(), cells: numbers::STORY_LENGTH.iter().map(cell).collect() };
        let title = format!("Tokens of a story minus the paper's \u{B7} {title}");
        sheets.push(sheet(title, "the paper's mean lengths", columns, vec![line]));
    }
    sheets
}

/// Steps by tag minus the first rows of Table 5; `None` where no size or length is the paper's.
pub(super) fn steps(exhibit: Exhibit, section: &Section<'_>, most: usize) -> Option<Sheet> {
    let measured = section.sizes_of(TOVA);
    let length = section.key().length;
    let sizes: Vec<(usize, u32)> = numbers::TABLE_5_SIZES
        .into_iter()
        .enumerate()
        .filter(|(_, size)| measured.contains(size) && tag_map::is_compared(length, *size))
        .collect();
    let line = |(tag, theirs): &(&str, [u16; 4])| {
        let cell = |(at, size): &(usize, u32)| {
            let own = section.steps(tag_map::slice(tag), TOVA, *size)?;
            let spread = own.interval.map(|interval| format!("±{:.0}", interval.half_width()));
            Some(Entry { spread, ..Entry::plain(table::signed(own.value - f64::from(theirs[*at]), 0)) })
        };
        let name = match tag_map::slice(tag) {
            "" => "all tokens".to_owned(),
            slice => format!("{tag} ({})", slice.replace(':', " ")),
        };
        Line { name, cells: sizes.iter().map(cell).collect() }
    };
    let lines = numbers::TABLE_5[..most].iter().map(line).filter(|line| line.cells.iter().any(Option::is_some));
    let lines: Vec<Line> = lines.collect();
    (!sizes.is_empty() && !lines.is_empty()).then(|| Sheet {
        title: format!("Steps kept minus the paper's {exhibit} \u{B7} {}", section.title()),
        about: format!(
            "What was measured of the class or tag in brackets minus the paper's number of the Penn tag (TOVA, {}); ± is half of \
             the 95 % interval of what was measured.",
            numbers::MODEL
        ),
        corner: "tag",
        grid: Grid { columns: sizes.iter().map(|(_, size)| size.to_string()).collect(), lines },
        notes: Vec::new(),
    })
}

//! A comparison as a comment on a pull request: the verdict first, failures in full view, the rest folded.
//!
//! Names are escaped and mention nobody, and the length stays below GitHub's limit.

use super::comparison::Comparison;
use super::table::{self, Section};
use crate::format::capital;
use crate::report::{escape, push_body};

/// Findings of each kind that are shown: GitHub allows 65,536 characters.
const SHOWN: usize = 40;
/// Longest name shown, in characters.
const LONGEST: usize = 160;
/// Longest sentence, which may name several things.
const LONGEST_NOTE: usize = 300;

/// The comment.
pub fn markdown(comparison: &Comparison) -> String {
    let mut file = format!(
        "**{}**\n\n{}\n\n",
        escape::markdown(&table::headline(comparison)),
        escaped(&table::sides(comparison))
    );
    let (failures, others): (Vec<Section>, Vec<Section>) =
        table::sections(comparison, SHOWN).into_iter().partition(|section| section.fails);
    for section in &failures {
        file += &format!("#### {}\n\n", escape::markdown(&capital(&section.sheet.title)));
        push(&mut file, section);
    }
    for section in &others {
        // Not escaped: titles are fixed words, and Markdown is not interpreted inside a summary.
        file += &format!("<details><summary>{}</summary>\n\n", capital(&section.sheet.title));
        push(&mut file, section);
        file += "</details>\n\n";
    }
    if let Some(chance) = table::chance(comparison) {
        file += &format!("{chance}.\n\n", chance = capital(&chance));
    }
    for note in &comparison.notes {
        file += &format!("> {}\n>\n", escaped(note));
    }
    file.trim_end_matches(['\n', '>']).to_owned() + "\n"
}

fn push(file: &mut String, Section { sheet, left_out, .. }: &Section) {
    let mut sheet = sheet.clone();
    sheet.grid.lines.iter_mut().for_each(|line| line.name = cut(&line.name, LONGEST));
    sheet.notes.iter_mut().for_each(|note| *note = cut(note, LONGEST_NOTE));
    let mut body = String::new();
    push_body(&mut body, &sheet);
    *file += &without_mentions(&body);
    if *left_out > 0 {
        *file += &format!("and {left_out} more, which the JSON names\n\n");
    }
}

/// A sentence with names from the rows, cut, escaped and without mentions.
fn escaped(text: &str) -> String {
    without_mentions(&escape::markdown(&cut(text, LONGEST_NOTE)))
}

/// `@somebody` would notify them; `tova@slot` would not.
fn without_mentions(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        let notifies = c == '@' && !escaped.ends_with(|before: char| before.is_ascii_alphanumeric());
        escaped.push(c);
        if notifies {
            escaped.push_str("<!-- -->");
        }
    }
    escaped
}

fn cut(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    text.chars().take(longest).chain(['\u{2026}']).collect()
}

//! A comparison for a terminal: the verdict, and changes, the worst first. Plain text without colour or control characters.

use super::comparison::Comparison;
use super::table::{self, Section};
use crate::report::{escape, text_under};

/// Findings of each kind that are shown.
const SHOWN: usize = 20;

/// The short answer.
pub fn terminal(comparison: &Comparison) -> String {
    let mut text = format!("{}\n{}\n", table::headline(comparison), escape::plain(&table::sides(comparison)));
    for Section { sheet, left_out, .. } in table::sections(comparison, SHOWN) {
        // These are in the counts only.
        if sheet.title.starts_with("within noise") {
            continue;
        }
        text += &format!("\n{}\n", sheet.title);
        if !sheet.grid.lines.is_empty() {
            text += &text_under(sheet.corner, &sheet.grid);
        }
        sheet.notes.iter().for_each(|note| text += &format!("  {}\n", escape::plain(note)));
        if left_out > 0 {
            text += &format!("  and {left_out} more, which --json FILE names\n");
        }
    }
    let chance = table::chance(comparison).map(|chance| format!("{chance}\n"));
    let notes = comparison.notes.iter().map(|note| format!("note: {}\n", escape::plain(note)));
    let last: String = chance.into_iter().chain(notes).collect();
    if last.is_empty() { text } else { format!("{text}\n{last}") }
}

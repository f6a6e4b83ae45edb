//! A comparison for a terminal: the verdict, and changes, the worst first. Plain text without colour or control characters.

use super::point::Comparison;
use super::table::{self, Section};
use crate::report::{escape, text_under};

/// Findings of each kind that are shown.
const SHOWN: usize = 20;

/// The short answer.
pub fn terminal(comparison: &Comparison) -> String {
    let mut text = format!("{}\n{}\n", table::headline(comparison), escape::plain(&table::sides(comparison)));
    for section in table::sections(comparison, SHOWN) {
        push(&mut text, &section);
    }
    let mut last = String::new();
    if let Some(chance) = table::chance(comparison) {
        last += &format!("{chance}\n");
    }
    for note in &comparison.notes {
        last += &format!("note: {}\n", escape::plain(note));
    }
    if !last.is_empty() {
        text += &format!("\n{last}");
    }
    text
}

fn push(text: &mut String, section: &Section) {
    // These are in the counts only.
    if section.title.starts_with("within noise") {
        return;
    }
    *text += &format!("\n{}\n", section.title);
    if let Some(sheet) = &section.sheet {
        *text += &text_under(sheet.corner, &sheet.grid);
    }
    for line in &section.lines {
        *text += &format!("  {}\n", escape::plain(line));
    }
    if section.left_out > 0 {
        *text += &format!("  and {} more, which --json FILE names\n", section.left_out);
    }
}

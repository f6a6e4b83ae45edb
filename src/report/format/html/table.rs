//! A [`Sheet`] as an HTML table; all tables of the page are made here.
//!
//! Lines of policies and columns of cache sizes carry attributes for the page's filter, and cells the number they sort by.

use maud::{Markup, html};

use crate::format::capital;
use crate::report::document::table::{Entry, Sheet};
use crate::report::escape;

/// The table in a box of its own scroll bar, with its text; `known` are the names of policies, and `size` is the
/// cache size of the whole table.
pub(super) fn sheet(sheet: &Sheet, known: &[&str], size: Option<u32>) -> Markup {
    let title = capital(&escape::plain(&sheet.title));
    let sizes: Vec<Option<u32>> = sheet.grid.columns.iter().map(|column| size_of(sheet, column)).collect();
    let has_partial =
        sheet.grid.lines.iter().flat_map(|line| line.cells.iter().flatten()).any(|entry| entry.partial);
    html! {
        div.sheet data-size=[size] {
            div.box tabindex="0" role="region" aria-label=(title) {
                table.sentences[sheet.has_sentences()] {
                    caption { (title) }
                    thead {
                        tr {
                            th scope="col" { (sheet.corner) }
                            @for (column, size) in sheet.grid.columns.iter().zip(&sizes) {
                                th scope="col" data-size=[size] { (escape::plain(column)) }
                            }
                        }
                    }
                    tbody {
                        @for line in &sheet.grid.lines {
                            @let (policy, size) = subject(&line.name, known);
                            tr data-policy=[policy.map(escape::plain)] data-size=[size] {
                                th scope="row" { span.called { (escape::plain(&line.name)) } }
                                @for (at, (entry, size)) in line.cells.iter().zip(&sizes).enumerate() {
                                    @let label = sheet.grid.columns.get(at).filter(|_| sheet.has_sentences());
                                    (cell(entry.as_ref(), *size, label.map(String::as_str), sheet.bold))
                                }
                            }
                        }
                    }
                }
            }
            @if !sheet.about.is_empty() { p.about { (escape::plain(&sheet.about)) } }
            @if has_partial && !sheet.notes.iter().any(|note| note.starts_with('†')) { p.about { "† not over all samples of this table" } }
            @if !sheet.notes.is_empty() {
                ul.notes { @for note in &sheet.notes { li { (escape::plain(note)) } } }
            }
        }
    }
}

/// A cell; a table of sentences names the column in it, for screens where cells stand below each other.
fn cell(entry: Option<&Entry>, size: Option<u32>, label: Option<&str>, bold: &str) -> Markup {
    let Some(entry) = entry else { return html! { td data-size=[size] {} } };
    let value = number(&entry.number);
    html! {
        // Words may take several lines, numbers never.
        td class=[value.is_none().then_some("words")] data-size=[size] data-v=[value] data-label=[label.map(escape::plain)] {
            @if entry.bold { b { (escape::plain(&entry.number)) } span.vh { " (" (bold) ")" } }
            @else { (escape::plain(&entry.number)) }
            @if entry.partial { "†" }
            @if let Some(spread) = &entry.spread { " " span.spread { (escape::plain(spread)) } }
        }
    }
}

/// The cache size that a column is of: where lines are policies and columns numbers.
fn size_of(sheet: &Sheet, column: &str) -> Option<u32> {
    ["policy", "cache size"].contains(&sheet.corner).then(|| column.parse().ok()).flatten()
}

/// The policy and size of a line: `tova`, `tova 512`, or `tova, ...`.
fn subject<'a>(name: &'a str, known: &[&str]) -> (Option<&'a str>, Option<u32>) {
    if known.contains(&name) {
        return (Some(name), None);
    }
    match name.rsplit_once(' ').map(|(policy, size)| (policy, size.parse())) {
        Some((policy, Ok(size))) if known.contains(&policy) => (Some(policy), Some(size)),
        _ => (name.split_once(", ").map(|(policy, _)| policy).filter(|policy| known.contains(policy)), None),
    }
}

/// What a cell sorts by, as a script reads numbers: `2.18 GB` is 2180000000.
fn number(shown: &str) -> Option<String> {
    let mut words = shown.split_whitespace();
    let value: f64 = words.next()?.trim_start_matches('+').parse().ok()?;
    let unit = match words.next() {
        Some("kB") => 1e3,
        Some("MB") => 1e6,
        Some("GB") => 1e9,
        _ => 1.0,
    };
    let value = value * unit;
    match value {
        _ if value.is_nan() => None,
        _ if value.is_infinite() => Some(if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()),
        _ => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::table::{Grid, Line};

    fn entry(number: &str) -> Option<Entry> {
        Some(Entry::plain(number))
    }

    #[test]
    fn cells_sort_by_value() {
        for (shown, expected) in [
            ("9.53", Some("9.53")),
            ("+2.37", Some("2.37")),
            ("-0.25", Some("-0.25")),
            ("1.23e9", Some("1230000000")),
            ("2.18 GB", Some("2180000000")),
            ("250 MB", Some("250000000")),
            ("12.5 %", Some("12.5")),
            ("inf", Some("Infinity")),
            ("NaN", None),
            ("-", None),
            ("IN, RP 301", None),
        ] {
            assert_eq!(number(shown).as_deref(), expected, "{shown}");
        }
    }

    #[test]
    fn a_sheet_is_a_table_with_a_caption_and_scopes() {
        let line = |name: &str, cells| Line { name: name.into(), cells };
        let best =
            Some(Entry { bold: true, partial: true, spread: Some("[9, 10]".into()), ..entry("9.5").unwrap() });
        let made = Sheet {
            title: "A <title>".into(),
            about: "about & more".into(),
            corner: "policy",
            grid: Grid {
                columns: vec!["64".into(), "<all>".into()],
                lines: vec![line("tova", vec![best, None]), line("\"x\" 64", vec![entry("1"), entry("2")])],
            },
            bold: "not worse than any",
            notes: vec!["<b>warning".into()],
        };
        let shown = sheet(&made, &["tova", "\"x\""], Some(32)).into_string();
        for part in [
            "<caption>A &lt;title&gt;</caption>",
            r#"<th scope="col" data-size="64">64</th><th scope="col">&lt;all&gt;</th>"#,
            r#"<tr data-policy="tova"><th scope="row"><span class="called">tova</span></th>"#,
            r#"<td data-size="64" data-v="9.5"><b>9.5</b><span class="vh"> (not worse than any)</span>† <span class="spread">[9, 10]</span></td><td></td>"#,
            r#"<tr data-policy="&quot;x&quot;" data-size="64">"#,
            r#"<div class="sheet" data-size="32">"#,
            "about &amp; more",
            "&lt;b&gt;warning",
            "† not over all samples",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        // Under another corner numbers are no cache sizes.
        let other = Sheet { corner: "class", ..made };
        assert!(!sheet(&other, &[], None).into_string().contains("data-size"));
    }
}

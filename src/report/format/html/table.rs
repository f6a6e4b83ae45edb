//! A [`Table`] as an HTML table; all tables of the page are made here.
//!
//! Lines of policies and columns of cache sizes carry attributes for the page's filter, and cells the number they sort by.

use maud::{Markup, html};

use crate::format::capital;
use crate::report::document::{Entry, Table};
use crate::report::escape;
use crate::report::series::Size;

/// The table in a box of its own scroll bar, with its text.
pub(super) fn table(of: &Table) -> Markup {
    let title = capital(&escape::plain(&of.title));
    let columns = &of.grid.columns;
    let has_partial = of.grid.entries().any(|entry| entry.partial);
    html! {
        div.sheet data-size=[of.size] {
            div.box tabindex="0" role="region" aria-label=(title) {
                table.sentences[of.has_sentences] {
                    caption { (title) }
                    thead {
                        tr {
                            th scope="col" { (of.corner) }
                            @for column in columns {
                                th scope="col" data-size=[column.size] { (escape::plain(&column.name)) }
                            }
                        }
                    }
                    tbody {
                        @for line in &of.grid.lines {
                            tr data-policy=[line.policy.as_deref().map(escape::plain)] data-size=[line.size] {
                                th scope="row" { span.called { (escape::plain(&line.name)) } }
                                @for (entry, column) in line.cells.iter().zip(columns) {
                                    @let label = of.has_sentences.then_some(&*column.name);
                                    (cell(entry.as_ref(), column.size, label))
                                }
                            }
                        }
                    }
                }
            }
            @if !of.about.is_empty() { p.about { (escape::plain(&of.about)) } }
            @if has_partial && !of.notes.iter().any(|note| note.starts_with('†')) { p.about { "† not over all samples of this table" } }
            @if !of.notes.is_empty() {
                ul.notes { @for note in &of.notes { li { (escape::plain(note)) } } }
            }
        }
    }
}

/// A cell; a table of sentences names the column in it, for screens where cells stand below each other.
fn cell(entry: Option<&Entry>, size: Option<Size>, label: Option<&str>) -> Markup {
    let Some(entry) = entry else { return html! { td data-size=[size] {} } };
    let value = number(&entry.number);
    let classes = [(value.is_none(), "words"), (entry.worse, "worse")];
    let classes: Vec<&str> = classes.into_iter().filter(|(is, _)| *is).map(|(_, class)| class).collect();
    let class = (!classes.is_empty()).then(|| classes.join(" "));
    html! {
        // Words may take several lines, numbers never.
        td class=[class] data-size=[size] data-v=[value] data-label=[label.map(escape::plain)] {
            (escape::plain(&entry.number))
            @if entry.worse { span.vh { " (worse than the best)" } }
            @if entry.partial { "†" }
            @if let Some(spread) = &entry.spread { " " span.spread { (escape::plain(spread)) } }
        }
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
    use crate::report::document::{Column, Grid, Line};

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
    fn a_table_has_a_caption_and_scopes_and_says_what_it_is_about() {
        let worse =
            Some(Entry { worse: true, partial: true, spread: Some("[9, 10]".into()), ..entry("9.5").unwrap() });
        let lines = vec![
            Line::of_policy("tova", vec![worse, None]),
            Line {
                name: "\"x\" 64".into(),
                size: Some(64.into()),
                ..Line::of_policy("\"x\"", vec![entry("1"), entry("2")])
            },
        ];
        let grid = Grid { columns: vec![Column::of_size(64), "<all>".into()], lines };
        let made = Table {
            notes: vec!["<b>warning".into()],
            size: Some(32.into()),
            ..Table::new("A <title>", "about & more", "policy", grid)
        };
        let shown = table(&made).into_string();
        for part in [
            "<caption>A &lt;title&gt;</caption>",
            r#"<th scope="col" data-size="64">64</th><th scope="col">&lt;all&gt;</th>"#,
            r#"<tr data-policy="tova"><th scope="row"><span class="called">tova</span></th>"#,
            r#"<td class="worse" data-size="64" data-v="9.5">9.5<span class="vh"> (worse than the best)</span>† <span class="spread">[9, 10]</span></td><td></td>"#,
            r#"<tr data-policy="&quot;x&quot;" data-size="64">"#,
            r#"<div class="sheet" data-size="32">"#,
            "about &amp; more",
            "&lt;b&gt;warning",
            "† not over all samples",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

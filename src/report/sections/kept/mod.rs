//! Which tokens are kept, and for how long: tables by class and part of speech, by position, by token, and maps.
//!
//! It chooses what is shown; the drawings are made elsewhere. Everything comes from rows:
//! the pooled panels, and for single samples the tables that rows carry as text.

mod tokens;

use std::rc::Rc;

use super::Setting;
use crate::ledger::Row;
use crate::metric::{Metric, Property, Slice};
use crate::report::document::{Block, Column, Entry, Grid, Group, Line, Table};
use crate::report::escape;
use crate::report::figure::{Content, Figure, KeptByPosition, Plain, heatmap, kept_by_position};
use crate::report::series::{AllSeries, Panel, Results, SeriesKey, Size, cell_of};
use crate::report::statistics::Estimate;

const ABOUT: &str = "Steps at which a token is visible, its own included, in the mean over tokens, layers and decision groups. Over \
     all tokens of a layer of k entries it is the mean of min(t, k + 1), whatever the policy. Every token has one class, and the tokens of words have \
     a tag as well.";

/// Everything that results of one key say about which tokens are kept.
pub(crate) struct Kept<'a> {
    pub(crate) key: &'a SeriesKey,
    pub(crate) title: String,
    /// The beginning of its figures' names.
    stem: String,
    /// Panels of lifetimes: the whole, and its slices.
    panels: Vec<&'a Panel>,
    /// The rows that carry a table of a sample.
    rows: Vec<&'a Row>,
    series: &'a AllSeries<'a>,
    /// With their sizes below a sample's length.
    policies: Vec<(&'a str, Vec<Size>)>,
}

/// The cache size that maps are drawn at and tables sorted by, where it was measured: the paper's.
const USUAL_SIZE: Size = Size::Entries(512);
/// The metric of the whole section.
const LIFETIME: &str = "lifetime";

/// Finds the settings that measured lifetimes.
pub(crate) fn all<'a>(results: &'a Results<'_>) -> Vec<Kept<'a>> {
    let lifetimes = |panel: &&Panel| panel.metric.id == LIFETIME;
    let panels = &results.panels;
    let whole: Vec<&Panel> = panels.iter().filter(lifetimes).filter(|panel| panel.slice.is_none()).collect();
    let keys: Vec<SeriesKey> = whole.iter().map(|panel| panel.key.clone()).collect();
    let stem = |key: &SeriesKey| format!("kept-{}", escape::slugs(&key.title(&keys)));
    let stems: Vec<String> = keys.iter().map(stem).collect();
    let is_table = |row: &&Row| Metric::known(&row.metric).is_some_and(|metric| metric.has(Property::SampleTable));
    let tables: Vec<&Row> = results.rows.iter().filter(is_table).collect();
    let section = |(&whole, own): (&&'a Panel, &String)| {
        let key = &whole.key;
        let sizes = |policy: &'a str| {
            let points = whole.points.iter().filter(|point| point.is_policy() && point.policy == policy);
            let sizes = points.filter_map(|point| point.cache_size);
            (policy, sizes.filter(|size| size.is_below(key.length)).collect())
        };
        let policies = whole.policies().into_iter().map(sizes);
        let shared = stems.iter().filter(|other| *other == own).count() > 1;
        Kept {
            key,
            title: key.title(&keys),
            stem: if shared { format!("{own}-{}", escape::fingerprint(&key.described())) } else { own.clone() },
            panels: panels.iter().filter(lifetimes).filter(|panel| panel.key == *key).collect(),
            rows: tables.iter().filter(|row| SeriesKey::of(row) == key.of_rows()).copied().collect(),
            series: &results.series,
            policies: policies.filter(|(_, sizes): &(_, Vec<Size>)| !sizes.is_empty()).collect(),
        }
    };
    whole.iter().zip(&stems).map(section).collect()
}

pub(super) fn blocks(setting: &Setting<'_>) -> Vec<Block> {
    let Some(kept) = setting.report.kept.iter().find(|kept| kept.key == setting.key) else { return Vec::new() };
    let figures = kept.figures().into_iter().enumerate().map(|(at, figure)| match at {
        0 => Block::Figure(Rc::new(figure)),
        _ => Block::Group(Group::folded(figure.title.clone(), vec![Block::Figure(Rc::new(figure))])),
    });
    let tables = kept.tables().into_iter().map(|table| {
        let group = Group::folded(table.title.clone(), vec![Block::Table(table)]);
        Block::Group(group.of_metric(&Metric::of(LIFETIME)))
    });
    let blocks = std::iter::once(Block::Paragraph(ABOUT.to_owned())).chain(figures).chain(tables).collect();
    vec![Block::Group(Group::open("What is kept", blocks))]
}

/// `class digits`; `None` is all tokens.
pub(crate) fn name(slice: Option<&Slice>) -> String {
    slice.map_or_else(|| "all tokens".to_owned(), |slice| format!("{} {}", slice.kind, slice.value()))
}

/// The size that maps are drawn at and tables sorted by: the usual one, or one in the middle.
fn reference(sizes: &[Size]) -> Size {
    if sizes.contains(&USUAL_SIZE) {
        USUAL_SIZE
    } else {
        sizes.get(sizes.len() / 2).copied().unwrap_or(USUAL_SIZE)
    }
}

impl<'a> Kept<'a> {
    /// A policy's sizes that evict; none where it was not measured.
    pub(crate) fn sizes_of(&self, policy: &str) -> Vec<Size> {
        self.policies.iter().find(|(known, _)| *known == policy).map_or_else(Vec::new, |(_, sizes)| sizes.clone())
    }

    /// A policy's maps, at the usual size or at the first that has any.
    pub(crate) fn maps_of(&self, policy: &str) -> Option<(Size, Vec<heatmap::Map>)> {
        let sizes = self.sizes_of(policy);
        let first = reference(&sizes);
        let all = std::iter::once(first).chain(sizes.iter().copied().filter(|size| *size != first));
        let mut maps = all.map(|size| (size, heatmap::maps(self.rows_at(policy, size))));
        maps.find(|(_, maps)| !maps.is_empty())
    }

    /// The mean steps of a policy's tokens, of a class, tag or position, or of all.
    pub(crate) fn steps(&self, slice: Option<&Slice>, policy: &str, size: Size) -> Option<Estimate> {
        self.panel(slice)?.point(policy, Some(size)).map(|point| point.estimate)
    }

    /// Steps by place, of policies at some sizes.
    pub(crate) fn by_position(&self, policies: &[(&str, Vec<Size>)]) -> Option<KeptByPosition> {
        let panel =
            |position: u32| Some((position, self.panel(Some(&Slice::number("position", position.into())))?));
        let positions: Vec<(u32, &Panel)> = (0..kept_by_position::MOST).filter_map(panel).collect();
        KeptByPosition::of(&self.title, &positions, policies, self.key.length)
    }

    /// The panel of a slice, or of all tokens.
    fn panel(&self, slice: Option<&Slice>) -> Option<&'a Panel> {
        self.panels.iter().find(|panel| panel.slice.as_ref() == slice).copied()
    }

    /// Classes and tags with their mean steps at a size, the longest kept first.
    fn kinds_at(&self, policy: &str, size: Size) -> Vec<(&'a Slice, f64)> {
        let slices = self.panels.iter().filter_map(|panel| {
            let slice = panel.slice.as_ref().filter(|slice| slice.is("class") || slice.is("tag"))?;
            Some((slice, panel.point(policy, Some(size))?.estimate.value))
        });
        let mut slices: Vec<(&Slice, f64)> = slices.collect();
        slices.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        slices
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        if let Some(kept) = self.by_position(&self.policies) {
            let (stem, title) = (format!("{}-by-position", self.stem), kept.title.clone());
            let draw = move |plain: Plain| kept.scene(None, plain);
            figures.push(Figure { stem, title, content: Content::Picture(Box::new(draw)) });
        }
        for (policy, sizes) in &self.policies {
            let size = reference(sizes);
            let maps = heatmap::maps(self.rows_at(policy, size));
            let stem = format!("{}-{}-{}", self.stem, escape::slug(policy), escape::slug(&size.to_string()));
            let what = format!("{} \u{B7} {} with {}", self.title, escape::plain(policy), size.words());
            for page in maps.chunks(heatmap::MOST) {
                let layers = match maps.len() > page.len() {
                    true => format!("-{}-{}", page[0].layer, page[page.len() - 1].layer),
                    false => String::new(),
                };
                let content = Content::Maps(heatmap::square_maps(&what, page, None));
                let title = format!("Tokens kept in the cache: {what}");
                figures.push(Figure { stem: format!("{stem}-layers{layers}"), title, content });
            }
        }
        figures
    }

    /// The tables of a policy's samples at a size, from the cell whose lifetimes are shown.
    fn rows_at(&self, policy: &str, size: Size) -> Vec<&'a Row> {
        let Some(sums) = cell_of(self.series, self.key, LIFETIME, (policy, Some(size))) else { return Vec::new() };
        let here = |row: &&&Row| row.cell == sums.cell && row.variant() == policy && Size::of(row) == Some(size);
        self.rows.iter().filter(here).copied().collect()
    }

    fn tables(&self) -> Vec<Table> {
        let kinds = self.policies.iter().map(|(policy, sizes)| self.kinds_of(policy, sizes));
        let tokens = self.policies.iter().flat_map(|(policy, sizes)| {
            let size = reference(sizes);
            tokens::tables(&self.rows_at(policy, size), &format!("{policy} with {}", size.words()))
        });
        kinds.chain(tokens).collect()
    }

    /// A policy's table by class and tag.
    fn kinds_of(&self, policy: &str, sizes: &[Size]) -> Table {
        let size = reference(sizes);
        let columns =
            std::iter::once("tokens (%)".into()).chain(sizes.iter().copied().map(Column::of_size)).collect();
        let point = |slice: Option<&Slice>, size: Size| self.panel(slice)?.point(policy, Some(size));
        let all = point(None, size).map_or(1.0, |point| point.weight);
        let kinds = self.kinds_at(policy, size);
        let slices: Vec<Option<&Slice>> =
            std::iter::once(None).chain(kinds.iter().map(|(slice, _)| Some(*slice))).collect();
        let line = |slice: &Option<&Slice>| {
            let share = point(*slice, size).map_or(0.0, |point| 100.0 * point.weight / all);
            let steps = |size: &Size| {
                point(*slice, *size).map(|point| Entry::plain(Metric::of(LIFETIME).show(point.estimate.value)))
            };
            let share = Some(Entry::plain(format!("{share:.2}")));
            Line::new(name(*slice), std::iter::once(share).chain(sizes.iter().map(steps)).collect())
        };
        let grid = Grid { lines: slices.iter().map(line).collect(), columns };
        let about = format!("Sorted by size {size}.");
        Table::new(format!("Steps kept by class and part of speech: {policy}"), about, "class or tag", grid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::SeriesStyles;
    use crate::report::fixture::{cell, documents};

    /// Lifetimes of a policy at two sizes: of all tokens and of two kinds, and what rows carry as text.
    fn kept(policy: &str) -> Vec<Row> {
        let mut all = Vec::new();
        for (size, factor) in [(4, 1.0), (8, 2.0)] {
            for (metric, group, value, weight, output) in [
                ("lifetime", None, 4.0, 16.0, None),
                ("lifetime", Some("class:digits"), 12.0, 4.0, None),
                ("lifetime", Some("tag:NOUN"), 2.0, 8.0, None),
                ("lifetime", Some("position:0"), 16.0, 1.0, None),
                ("lifetime", Some("position:1"), 2.0, 1.0, None),
                ("kept_until", Some("layer:0"), 4.0, 16.0, Some("16 2 3 3 5 5 16 7 8 9 16 16 16 16 16 16")),
                (
                    "lifetime_by_token",
                    None,
                    4.0,
                    16.0,
                    Some(r#"{"\n":[2,30.0,1,8.0]," a|b":[14,34.5,8,12.8],"end":[1,1.0,0,0.0]}"#),
                ),
            ] {
                let samples = [("a", value * factor, weight)];
                all.extend(cell(metric, policy, Some(size), &samples).into_iter().map(|row| Row {
                    task: "retention".into(),
                    length: 16,
                    slice: group.map(Into::into),
                    output: output.map(str::to_owned),
                    ..row
                }));
            }
        }
        all
    }

    #[test]
    fn kept_tokens_have_tables_and_figures() {
        let rows = [kept("tova"), kept("window")].concat();
        let results = Results::of(&rows).unwrap();
        let all = all(&results);
        let [kept] = &all[..] else { panic!("one setting expected") };
        let figures = kept.figures();
        let stems: Vec<&str> = figures.iter().map(|figure| figure.stem.as_str()).collect();
        assert_eq!(stems.len(), 3, "{stems:?}");
        assert!(
            stems[0].ends_with("-by-position") && stems[1].ends_with("-tova-8-layers")
                || stems[1].ends_with("-window-8-layers")
        );
        let svg = |figure: &Figure| figure.scenes(&SeriesStyles::of(&[]), Plain::default())[0].svg();
        assert!(svg(&figures[0]).contains("<svg") && svg(&figures[1]).contains("<image "));
        let [text, _] = documents(&rows).each_ref().map(crate::report::markdown);
        for line in [
            "| class or tag | tokens (%) | 4 | 8 |",
            "| all tokens | 100.00 | 0.2500 | 0.5000 |",
            "| class digits | 25.00 | 3.0000 | 6.0000 |",
            "| tag NOUN | 50.00 | 0.2500 | 0.5000 |",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let digits = text.find("class digits").unwrap();
        assert!(digits < text.find("tag NOUN").unwrap(), "{text}");
        assert!(
            text.contains("| \\\\n | 8 | 1 |") && !text.contains("| end |") && text.contains("␣a\\|b"),
            "{text}"
        );
        // Tables of samples make no panels.
        assert!(results.panels.iter().all(|panel| panel.metric.id == "lifetime"));
    }

    #[test]
    fn rows_of_other_tasks_say_nothing_of_what_is_kept() {
        let rows = cell("nll", "tova", Some(8), &[("a", 1.0, 1.0)]);
        assert!(all(&Results::of(&rows).unwrap()).is_empty());
    }
}

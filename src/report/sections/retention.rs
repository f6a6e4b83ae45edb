//! Which tokens are kept, and for how long: tables by class and part of speech, by position, by token, and maps.
//!
//! It chooses what a section shows, as sheets and in Markdown; the drawings are made elsewhere. Everything comes from rows:
//! the pooled panels, and for single samples the tables that rows carry as text.

use crate::ledger::Row;
use crate::metric::{Metric, Property};
use crate::report::document::table::{Entry, Grid, Line, Sheet};
use crate::report::escape;
use crate::report::figure::heatmap;
use crate::report::figure::kept_by_position;
use crate::report::figure::plain::Plain;
use crate::report::figure::scene::Scene;
use crate::report::published::Published;
use crate::report::sections::kept_tokens;
use crate::report::series::key::SeriesKey;
use crate::report::series::order;
use crate::report::series::panel::Panel;
use crate::report::series::results::Results;
use crate::report::series::sums::{AllSeries, label};
use crate::report::statistics::interval::Estimate;

const ABOUT: &str = "Steps at which a token is visible, its own included, in the mean over tokens, layers and decision groups. Over \
     all tokens of a layer of k entries it is the mean of min(t, k + 1), whatever the policy. Every token has one class, and the tokens of words have \
     a tag as well.";

/// Everything that results of one key say about which tokens are kept.
pub(crate) struct Section<'a> {
    key: &'a SeriesKey,
    title: String,
    /// The beginning of its figures' names.
    stem: String,
    /// Of lifetimes: the whole, and its slices.
    panels: Vec<&'a Panel>,
    /// The rows that carry a table of a sample.
    rows: Vec<&'a Row>,
    series: &'a AllSeries<'a>,
    published: &'a dyn Published,
    /// With their sizes below a sample's length; at the others nothing is evicted, unless layers have sizes of their own.
    policies: Vec<(&'a str, Vec<u32>)>,
}

/// The cache size that maps are drawn at and tables sorted by, where it was measured: the paper's.
const USUAL_SIZE: u32 = 512;
/// What the terminal names.
const MOST_NAMED: usize = 4;
/// The metric of the whole section.
const LIFETIME: &str = "lifetime";

/// A section for each key that measured lifetimes.
pub(crate) fn sections<'a>(results: &'a Results<'_>, published: &'a dyn Published) -> Vec<Section<'a>> {
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
            (
                policy,
                sizes
                    .filter(|size| *size < key.length || has_budget(results.rows, (key, policy, *size)))
                    .collect(),
            )
        };
        let policies = whole.policies().into_iter().map(sizes);
        let shared = stems.iter().filter(|other| *other == own).count() > 1;
        Section {
            key,
            title: key.title(&keys),
            stem: if shared { format!("{own}-{}", escape::fingerprint(&key.described())) } else { own.clone() },
            panels: panels.iter().filter(lifetimes).filter(|panel| panel.key == *key).collect(),
            rows: tables.iter().filter(|row| SeriesKey::of(row) == key.of_rows()).copied().collect(),
            series: &results.series,
            published,
            policies: policies.filter(|(_, sizes): &(_, Vec<u32>)| !sizes.is_empty()).collect(),
        }
    };
    whole.iter().zip(&stems).map(section).collect()
}

/// Whether a policy gives layers sizes of their own, of which some may be smaller than the size itself.
fn has_budget(rows: &[Row], (key, policy, size): (&SeriesKey, &str, u32)) -> bool {
    let mut of_budgets = rows.iter().filter(|row| row.budget.is_some() && row.cache_size == Some(size));
    of_budgets.any(|row| label(row) == policy && SeriesKey::of(row) == key.of_rows())
}

/// The tokens kept longest, a line for each policy.
pub(crate) fn terminal(sections: &[Section<'_>]) -> String {
    let mut text = String::new();
    for section in sections {
        let title = if sections.len() > 1 { format!("{} \u{B7} ", section.title) } else { String::new() };
        for (policy, sizes) in &section.policies {
            let size = reference(sizes);
            let slices = section.kinds_at(policy, size).into_iter().take(MOST_NAMED);
            let named: Vec<String> =
                slices.map(|(slice, steps)| format!("{} {}", slice.replace(':', " "), show(steps))).collect();
            let (policy, named) = (escape::plain(policy), named.join(", "));
            text.push_str(&format!("{title}kept longest by {policy} at {size}, in steps: {named}\n"));
        }
    }
    text
}

/// The size that maps are drawn at and tables sorted by: the usual one, or one in the middle.
fn reference(sizes: &[u32]) -> u32 {
    if sizes.contains(&USUAL_SIZE) {
        USUAL_SIZE
    } else {
        sizes.get(sizes.len() / 2).copied().unwrap_or(USUAL_SIZE)
    }
}

fn show(steps: f64) -> String {
    Metric::of(LIFETIME).show(steps)
}

impl<'a> Section<'a> {
    pub(crate) fn heading(&self) -> String {
        format!("What is kept \u{B7} {}", self.title)
    }

    /// How to read the section.
    pub(crate) fn about(&self) -> String {
        format!("{ABOUT} {}", self.published.on_lifetimes()).trim_end().to_owned()
    }

    pub(crate) fn key(&self) -> &'a SeriesKey {
        self.key
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// A policy's sizes that evict; none where it was not measured.
    pub(crate) fn sizes_of(&self, policy: &str) -> Vec<u32> {
        self.policies.iter().find(|(known, _)| *known == policy).map_or_else(Vec::new, |(_, sizes)| sizes.clone())
    }

    /// A policy's maps, at the usual size or at the first that has any.
    pub(crate) fn maps_of(&self, policy: &str) -> Option<(u32, Vec<heatmap::Map>)> {
        let sizes = self.sizes_of(policy);
        let first = reference(&sizes);
        let all = std::iter::once(first).chain(sizes.iter().copied().filter(|size| *size != first));
        let mut maps = all.map(|size| (size, heatmap::maps(self.rows_at(policy, size))));
        maps.find(|(_, maps)| !maps.is_empty())
    }

    /// The mean steps of a policy's tokens, of a class, tag or position, or of all where the slice is empty.
    pub(crate) fn steps(&self, slice: &str, policy: &str, size: u32) -> Option<Estimate> {
        self.panel(slice)?.point(policy, Some(size)).map(|point| point.estimate)
    }

    /// A policy's steps by place, at each of its sizes, on a page of some width in points.
    pub(crate) fn places_of(&self, policy: &'a str, width: f64, plain: Plain) -> Option<Scene> {
        let sizes = self.sizes_of(policy);
        if sizes.is_empty() {
            return None;
        }
        self.by_position(&[(policy, sizes)], Some(width), plain)
    }

    fn by_position(&self, policies: &[(&str, Vec<u32>)], width: Option<f64>, plain: Plain) -> Option<Scene> {
        let panel = |position: u32| Some((position, self.panel(&format!("position:{position}"))?));
        let positions: Vec<(u32, &Panel)> = (0..kept_by_position::MOST).filter_map(panel).collect();
        kept_by_position::scene(&self.title, &positions, policies, self.key.length, width, plain)
    }

    /// The panel of a slice, or of all tokens where it is empty.
    fn panel(&self, slice: &str) -> Option<&'a Panel> {
        self.panels.iter().find(|panel| panel.slice.as_deref().unwrap_or_default() == slice).copied()
    }

    /// Classes and tags with their mean steps at a size, the longest kept first.
    fn kinds_at(&self, policy: &str, size: u32) -> Vec<(&'a str, f64)> {
        let slices = self.panels.iter().filter_map(|panel| {
            let slice = panel.slice.as_deref().filter(|slice| is_kind(slice))?;
            Some((slice, panel.point(policy, Some(size))?.estimate.value))
        });
        let mut slices: Vec<(&str, f64)> = slices.collect();
        slices.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        slices
    }

    /// The section's figures with the names of their files.
    pub(crate) fn figures(&self, plain: Plain) -> Vec<(String, Scene)> {
        let mut figures = Vec::new();
        if let Some(scene) = self.by_position(&self.policies, None, plain) {
            figures.push((format!("{}-by-position", self.stem), scene));
        }
        for (policy, sizes) in &self.policies {
            let size = reference(sizes);
            let maps = heatmap::maps(self.rows_at(policy, size));
            let stem = format!("{}-{}-{size}", self.stem, escape::slug(policy));
            let what = format!("{} \u{B7} {} with {size} entries", self.title, escape::plain(policy));
            if let Some(last) = maps.last() {
                let title = format!("{what} \u{B7} layer {}", last.layer);
                figures.push((
                    format!("{stem}-last-layer"),
                    heatmap::scene(&title, std::slice::from_ref(last), plain),
                ));
            }
            for page in maps.chunks(heatmap::MOST).filter(|_| maps.len() > 1) {
                let layers = match page {
                    [first, .., last] if maps.len() > page.len() => format!("-{}-{}", first.layer, last.layer),
                    [only] => format!("-{0}-{0}", only.layer),
                    _ => String::new(),
                };
                figures.push((format!("{stem}-layers{layers}"), heatmap::scene(&what, page, plain)));
            }
        }
        figures
    }

    /// The tables of a policy's samples at a size, from the cell whose lifetimes are shown.
    fn rows_at(&self, policy: &str, size: u32) -> Vec<&'a Row> {
        let series = self.series.get(&(self.key.clone(), LIFETIME, None));
        let shown = series.and_then(|series| series.get(&(policy.into(), Some(size))));
        let Some(sums) = shown else { return Vec::new() };
        let here = |row: &&&Row| row.cell == sums.cell && label(row) == policy && row.cache_size == Some(size);
        self.rows.iter().filter(here).copied().collect()
    }

    /// All tables of the section.
    pub(crate) fn sheets(&self) -> Vec<Sheet> {
        let kinds = self.policies.iter().map(|(policy, sizes)| self.kinds_of(policy, sizes));
        let tokens = self.policies.iter().flat_map(|(policy, sizes)| {
            let size = reference(sizes);
            kept_tokens::sheets(&self.rows_at(policy, size), &format!("{policy} with {size} entries"))
        });
        kinds.chain(tokens).collect()
    }

    /// A policy's table by class and tag.
    fn kinds_of(&self, policy: &str, sizes: &[u32]) -> Sheet {
        let size = reference(sizes);
        let columns = std::iter::once("tokens (%)".to_owned()).chain(sizes.iter().map(u32::to_string)).collect();
        let point = |slice: &str, size: u32| self.panel(slice)?.point(policy, Some(size));
        let all = point("", size).map_or(1.0, |point| point.weight);
        let kinds = self.kinds_at(policy, size);
        let slices: Vec<&str> = std::iter::once("").chain(kinds.iter().map(|(slice, _)| *slice)).collect();
        let line = |slice: &str| {
            let share = point(slice, size).map_or(0.0, |point| 100.0 * point.weight / all);
            let steps = |size: &u32| point(slice, *size).map(|point| Entry::plain(show(point.estimate.value)));
            let share = Some(Entry::plain(format!("{share:.2}")));
            let name = if slice.is_empty() { "all tokens".to_owned() } else { slice.replace(':', " ") };
            Line { name, cells: std::iter::once(share).chain(sizes.iter().map(steps)).collect() }
        };
        let mut grid = Grid { lines: slices.iter().map(|slice| line(slice)).collect(), columns };
        let mut about = format!("Sorted by size {size}.");
        if let Some(beside) = self.published.beside_lifetimes(self.key, size, &slices) {
            grid.append(&beside);
            about.push_str(&format!(" {}", beside.source));
        }
        Sheet::new(format!("Steps kept by class and part of speech: {policy}"), about, "class or tag", grid)
    }
}

/// Whether a slice is of tokens by what they are.
fn is_kind(slice: &str) -> bool {
    matches!(order::of_slice(slice).0, "class" | "tag")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::cell;
    use crate::report::format::markdown::push_section;

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
    fn a_section_has_its_tables_and_figures() {
        let rows = [kept("tova"), kept("window")].concat();
        let results = Results::of(&rows).unwrap();
        let sections = sections(&results, &());
        let [section] = &sections[..] else { panic!("one section expected") };
        let figures = section.figures(Plain::default());
        let stems: Vec<&str> = figures.iter().map(|(stem, _)| stem.as_str()).collect();
        assert_eq!(stems.len(), 3, "{stems:?}");
        assert!(
            stems[0].ends_with("-by-position") && stems[1].ends_with("-tova-8-last-layer")
                || stems[1].ends_with("-window-8-last-layer")
        );
        for (_, scene) in &figures {
            assert!(scene.svg().contains("<svg"));
        }
        assert!(figures[1].1.svg().contains("<image "));
        let mut text = String::new();
        push_section(&mut text, section, &[], None);
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
        let text = terminal(&sections);
        assert!(
            text.contains("kept longest by tova at 8, in steps: class digits 6.0000, tag NOUN 0.5000"),
            "{text}"
        );
        // Tables of samples make no panels.
        assert!(results.panels.iter().all(|panel| panel.metric.id == "lifetime"));
    }

    #[test]
    fn rows_of_other_tasks_make_no_section() {
        let rows = cell("nll", "tova", Some(8), &[("a", 1.0, 1.0)]);
        assert!(sections(&Results::of(&rows).unwrap(), &()).is_empty() && terminal(&[]).is_empty());
    }
}

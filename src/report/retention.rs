//! What is kept: tables by class and part of speech, by place, by token, and maps of who is there when.
//!
//! It chooses what a section shows, as sheets and in Markdown; the drawings and the paper's numbers are next door. All comes
//! from rows: the pooled panels, and for single samples the tables that rows carry as text.

use super::bootstrap::Estimate;
use super::kept_tokens::KeptTokens;
use super::markdown::{self, Link};
use super::paper::numbers;
use super::points::Panel;
use super::quantity::Quantity;
use super::scene::Scene;
use super::setting::Setting;
use super::table::{Entry, Grid, Line, Sheet};
use super::{escape, gather, heatmap, kept_by_position, order, penn};
use crate::ledger::Row;

/// What the numbers are.
pub(super) fn about() -> String {
    let (least, most) = numbers::RECENT_SHARE;
    format!(
        "Steps at which a token is visible, its own included, in the mean over tokens, layers and decision groups. Over \
         all tokens it is the mean of min(t, k + 1), whatever the policy. Classes part all tokens and tags those of words, \
         so each token of a word is in one of both. For comparison, the paper (TOVA, {}) finds {least:.0} to {most:.0} % of \
         the kept tokens recent, and the first token kept to the end at every size.",
        numbers::MODEL
    )
}

/// Everything one setting says of what is kept.
pub(super) struct Section<'a> {
    setting: &'a Setting,
    title: String,
    /// The beginning of its figures' names.
    stem: String,
    /// Of lifetimes: the whole, and its parts.
    panels: Vec<&'a Panel>,
    rows: Vec<&'a Row>,
}

/// A policy at the sizes that evict.
struct Column<'a> {
    policy: &'a str,
    sizes: Vec<u32>,
}

/// The cache size of the paper's maps and the column it sorts by.
const PAPER_SIZE: u32 = 512;
/// Lines of the table of tokens.
const MOST_TOKENS: usize = 15;
/// What the terminal names.
const MOST_NAMED: usize = 6;

/// A section for each setting that measured lifetimes.
pub(super) fn sections<'a>(rows: &'a [Row], panels: &'a [Panel]) -> Vec<Section<'a>> {
    let lifetimes = |panel: &&Panel| panel.quantity.metric == "lifetime";
    let whole: Vec<&Panel> = panels.iter().filter(lifetimes).filter(|panel| panel.group.is_none()).collect();
    let settings: Vec<Setting> = whole.iter().map(|panel| panel.setting.clone()).collect();
    let stem = |title: &str| {
        let parts = title.split(" \u{B7} ").map(escape::slug);
        std::iter::once("kept".to_owned()).chain(parts).collect::<Vec<_>>().join("-")
    };
    let stems: Vec<String> = settings.iter().map(|setting| stem(&setting.title(&settings))).collect();
    let section = |(whole, own): (&&'a Panel, &String)| {
        let setting = &whole.setting;
        let print = || format!("{own}-{}", escape::fingerprint(&format!("{setting:?}")));
        let shared = stems.iter().filter(|other| *other == own).count() > 1;
        Section {
            setting,
            title: setting.title(&settings),
            stem: if shared { print() } else { own.clone() },
            panels: panels.iter().filter(lifetimes).filter(|panel| panel.setting == *setting).collect(),
            rows: rows.iter().filter(|row| row.task == setting.task && Setting::of(row) == *setting).collect(),
        }
    };
    whole.iter().zip(&stems).map(section).collect()
}

/// What is kept longest, a line for each policy.
pub(super) fn terminal(panels: &[Panel]) -> String {
    let mut text = String::new();
    let sections = sections(&[], panels);
    for section in &sections {
        let title = if sections.len() > 1 { format!("{} \u{B7} ", section.title) } else { String::new() };
        for column in section.columns() {
            let size = reference(&column.sizes);
            let mut groups = section.groups(&column, size);
            groups.truncate(MOST_NAMED);
            let name = |(group, steps): &(&str, f64)| format!("{group} {}", show(*steps));
            let named: Vec<String> = groups.iter().map(name).collect();
            let policy = escape::plain(column.policy);
            text.push_str(&format!("{title}kept longest by {policy} at {size}, in steps: {}\n", named.join(", ")));
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// The size that maps are drawn at and tables sorted by: the paper's, or one in the middle.
fn reference(sizes: &[u32]) -> u32 {
    if sizes.contains(&PAPER_SIZE) {
        PAPER_SIZE
    } else {
        sizes.get(sizes.len() / 2).copied().unwrap_or(PAPER_SIZE)
    }
}

fn show(steps: f64) -> String {
    Quantity::of("lifetime").show(steps)
}

impl<'a> Section<'a> {
    /// What stands above it.
    pub(super) fn heading(&self) -> String {
        format!("What is kept \u{B7} {}", self.title)
    }

    pub(super) fn setting(&self) -> &'a Setting {
        self.setting
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// A policy's sizes that evict; none where it was not measured.
    pub(super) fn sizes_of(&self, policy: &str) -> Vec<u32> {
        self.columns().into_iter().find(|column| column.policy == policy).map_or_else(Vec::new, |own| own.sizes)
    }

    /// A policy's maps, at the size that has any and is the paper's or nearest to the middle.
    pub(super) fn maps_of(&self, policy: &str) -> Option<(u32, Vec<heatmap::Map>)> {
        let sizes = self.sizes_of(policy);
        let first = reference(&sizes);
        let all = std::iter::once(first).chain(sizes.iter().copied().filter(|size| *size != first));
        let mut maps = all.map(|size| (size, heatmap::maps(self.rows_at(policy, size))));
        maps.find(|(_, maps)| !maps.is_empty())
    }

    /// The mean steps of a policy's tokens, of a class, tag or place, or of all where the group is empty.
    pub(super) fn steps(&self, group: &str, policy: &str, size: u32) -> Option<Estimate> {
        let panel = if group.is_empty() { self.whole() } else { self.part(group) }?;
        panel.point(policy, Some(size)).map(|point| point.estimate)
    }

    /// A policy's steps by place, at each of its sizes, on a page of some width in points.
    pub(super) fn places_of(&self, policy: &'a str, width: f64) -> Option<Scene> {
        let sizes = self.sizes_of(policy);
        if sizes.is_empty() {
            return None;
        }
        kept_by_position::scene(
            &self.title,
            &self.positions(),
            &[(policy, &sizes)],
            self.setting.length,
            Some(width),
        )
    }

    fn positions(&self) -> Vec<(u32, &'a Panel)> {
        let places = 0..kept_by_position::MOST;
        places.filter_map(|position| Some((position, self.part(&format!("position:{position}"))?))).collect()
    }

    fn whole(&self) -> Option<&'a Panel> {
        self.panels.iter().find(|panel| panel.group.is_none()).copied()
    }

    fn part(&self, group: &str) -> Option<&'a Panel> {
        self.panels.iter().find(|panel| panel.group.as_deref() == Some(group)).copied()
    }

    /// The policies, with their sizes below a sample's length; nobody leaves at the others.
    fn columns(&self) -> Vec<Column<'a>> {
        let Some(whole) = self.whole() else { return Vec::new() };
        let column = |policy: &'a str| {
            let points = whole.points.iter().filter(|point| point.is_policy() && point.policy == policy);
            let sizes = points.filter_map(|point| point.cache_size).filter(|size| *size < self.setting.length);
            Column { policy, sizes: sizes.collect() }
        };
        whole.policies().into_iter().map(column).filter(|column| !column.sizes.is_empty()).collect()
    }

    /// Classes and tags with their mean steps at a size, the longest kept first.
    fn groups(&self, column: &Column<'_>, size: u32) -> Vec<(&'a str, f64)> {
        let groups = self.panels.iter().filter_map(|panel| {
            let group = panel.group.as_deref().filter(|group| is_kind(group))?;
            Some((group, panel.point(column.policy, Some(size))?.estimate.value))
        });
        let mut groups: Vec<(&str, f64)> = groups.collect();
        groups.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        groups
    }

    /// The section's figures with the names of their files.
    pub(super) fn figures(&self) -> Vec<(String, Scene)> {
        let mut figures = Vec::new();
        let positions = self.positions();
        let columns = self.columns();
        let lines: Vec<(&str, &[u32])> =
            columns.iter().map(|column| (column.policy, column.sizes.as_slice())).collect();
        if let Some(scene) = kept_by_position::scene(&self.title, &positions, &lines, self.setting.length, None) {
            figures.push((format!("{}-by-position", self.stem), scene));
        }
        for column in &columns {
            let size = reference(&column.sizes);
            let maps = heatmap::maps(self.rows_at(column.policy, size));
            let stem = format!("{}-{}-{size}", self.stem, escape::slug(column.policy));
            let told = format!("{} \u{B7} {} with {size} entries", self.title, escape::plain(column.policy));
            if let Some(last) = maps.last() {
                let title = format!("{told} \u{B7} layer {}", last.layer);
                figures.push((format!("{stem}-last-layer"), heatmap::scene(&title, std::slice::from_ref(last))));
            }
            let pages = maps.chunks(heatmap::MOST).filter(|page| maps.len() > 1 && !page.is_empty());
            for page in pages {
                let layers = match (page.first(), page.last()) {
                    (Some(first), Some(last)) if maps.len() > page.len() => {
                        format!("-{}-{}", first.layer, last.layer)
                    }
                    _ => String::new(),
                };
                figures.push((format!("{stem}-layers{layers}"), heatmap::scene(&told, page)));
            }
        }
        figures
    }

    /// The rows of a policy at a size; of several cells that claim the place, the newest's.
    fn rows_at(&self, policy: &str, size: u32) -> Vec<&'a Row> {
        let here = |row: &&&Row| gather::label(row) == policy && row.cache_size == Some(size);
        let newest = self.rows.iter().filter(here).max_by_key(|row| (row.engine, &row.date, &row.cell));
        let Some(newest) = newest else { return Vec::new() };
        self.rows.iter().filter(|row| row.cell == newest.cell).copied().collect()
    }

    pub(super) fn markdown(&self, links: &[Link]) -> String {
        let mut text = format!("## What is kept \u{B7} {}\n\n{}\n\n", escape::markdown(&self.title), about());
        for Link { title, path } in links {
            text.push_str(&format!("![{}]({path})\n\n", escape::markdown(title)));
        }
        for sheet in self.kinds() {
            markdown::push_sheet(&mut text, "###", &sheet);
        }
        for (title, tokens) in self.tokens() {
            text.push_str(&format!("### {}\n\n{}", escape::markdown(&title), tokens.markdown()));
        }
        text
    }

    /// Everything the section says in numbers.
    pub(super) fn sheets(&self) -> Vec<Sheet> {
        let tokens = self.tokens();
        self.kinds().into_iter().chain(tokens.iter().flat_map(|(title, tokens)| tokens.sheets(title))).collect()
    }

    /// The tokens kept longest and shortest by each policy, where rows say so.
    fn tokens(&self) -> Vec<(String, KeptTokens)> {
        let of = |column: &Column<'_>| {
            let size = reference(&column.sizes);
            let tokens = KeptTokens::of(&self.rows_at(column.policy, size), MOST_TOKENS)?;
            Some((format!("Tokens kept longest and shortest: {} with {size} entries", column.policy), tokens))
        };
        self.columns().iter().filter_map(of).collect()
    }

    /// The paper's Table 5 for each policy.
    fn kinds(&self) -> Vec<Sheet> {
        self.columns().iter().map(|column| self.kinds_of(column)).collect()
    }

    fn kinds_of(&self, column: &Column<'_>) -> Sheet {
        let size = reference(&column.sizes);
        let compared = penn::is_compared(self.setting.length, size);
        let mut about = format!("Sorted by size {size}.");
        if compared {
            about.push_str(&format!(
                " The last column has the paper's Table 5 at {size} (TOVA, LLaMA-2-7B) for the Penn tags whose tokens \
                 have this class or tag here; results/README.md says what is alike and what is not."
            ));
        }
        let mut columns = vec!["tokens (%)".to_owned()];
        columns.extend(column.sizes.iter().map(u32::to_string));
        columns.extend(compared.then(|| "Penn tags in the paper".to_owned()));
        let all = self
            .whole()
            .and_then(|panel| panel.point(column.policy, Some(size)))
            .map_or(1.0, |point| point.weight);
        let groups = self.groups(column, size).into_iter().map(|(group, _)| group);
        let line = |group: &str| {
            let panel = if group.is_empty() { self.whole() } else { self.part(group) }?;
            let point = |size: u32| panel.point(column.policy, Some(size));
            let share = point(size).map_or(0.0, |point| 100.0 * point.weight / all);
            let steps = |size: &u32| point(*size).map(|point| Entry::plain(show(point.estimate.value)));
            let mut cells = vec![Some(Entry::plain(format!("{share:.2}")))];
            cells.extend(column.sizes.iter().map(steps));
            cells.extend(compared.then(|| Some(Entry::plain(penn::beside(group, size)))));
            let name = if group.is_empty() { "all tokens".to_owned() } else { group.replace(':', " ") };
            Some(Line { name, cells })
        };
        Sheet {
            title: format!("Steps kept by class and part of speech: {}", column.policy),
            about,
            corner: "class or tag",
            grid: Grid { lines: std::iter::once("").chain(groups).filter_map(line).collect(), columns },
            notes: Vec::new(),
        }
    }
}

/// Whether a group is of tokens by what they are.
fn is_kind(group: &str) -> bool {
    matches!(order::of_group(group).0, "class" | "tag")
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Sample, rows};
    use super::super::points::panels;
    use super::*;

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
                ("lifetime_by_token", None, 4.0, 16.0, Some(r#"{"\n":[2,30.0]," a|b":[14,34.5]}"#)),
            ] {
                let sample = [Sample { sample: "a", cluster: "a", value: value * factor, weight }];
                all.extend(rows(policy, Some(size), &sample).into_iter().map(|row| Row {
                    task: "retention".into(),
                    length: 16,
                    metric: metric.into(),
                    group: group.map(Into::into),
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
        let panels = panels(&rows);
        let sections = sections(&rows, &panels);
        let [section] = &sections[..] else { panic!("one section expected") };
        let figures = section.figures();
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
        let text = section.markdown(&[]);
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
        assert!(text.contains("`\\n`") && text.contains("a\\|b"), "{text}");
        let told = terminal(&panels);
        assert!(
            told.contains("kept longest by tova at 8, in steps: class:digits 6.0000, tag:NOUN 0.5000"),
            "{told}"
        );
        // They are no panels of their own, and make no tables by part.
        assert!(panels.iter().all(|panel| panel.quantity.metric == "lifetime"));
    }

    #[test]
    fn rows_of_other_tasks_make_no_section() {
        let rows = rows("tova", Some(8), &[Sample { sample: "a", cluster: "a", value: 1.0, weight: 1.0 }]);
        let panels = panels(&rows);
        assert!(sections(&rows, &panels).is_empty() && terminal(&panels).is_empty());
    }
}

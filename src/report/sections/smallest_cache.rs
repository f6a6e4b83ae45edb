//! The smallest sufficient cache in lines: what `series::smallest_cache` finds for each policy, panel and distance.

use std::collections::BTreeMap;

use super::{Measured, Report};
use crate::report::document::{Block, Group};
use crate::report::series::{
    Distance, Limit, Panel, SeriesKey, Size, SmallestCache, not_stated, smallest_cache::smallest_cache,
};

/// Smallest caches by all metrics of a setting, after the first of them.
pub(super) fn of_setting(measured: &Measured<'_>) -> Vec<Block> {
    let (setting, report) = (measured.setting, measured.setting.report);
    if !measured.is_first {
        return Vec::new();
    }
    let panels: Vec<Panel> = setting.panels.iter().map(|panel| (*panel).clone()).collect();
    block(lines(&panels, &report.keys, &report.distances)).into_iter().collect()
}

/// Smallest caches in all settings.
pub(super) fn summary(report: &Report<'_>) -> Vec<Block> {
    let block = block(lines(&report.panels, &report.keys, &report.distances));
    block.into_iter().chain(of_unmeasured(report)).collect()
}

/// The distances asked for that nothing was measured in.
pub(super) fn of_unmeasured(report: &Report<'_>) -> Vec<Block> {
    let asked = if report.are_asked { &report.distances[..] } else { &[] };
    let notes = unmeasured(&report.panels, asked);
    (!notes.is_empty()).then_some(Block::List(notes)).into_iter().collect()
}

fn block(lines: Vec<String>) -> Option<Block> {
    let title = "Smallest sufficient cache";
    (!lines.is_empty()).then(|| Block::Group(Group::open(title, vec![Block::List(lines)])))
}

/// Limit of a loss in a panel; `None` where it has no full cache, or no metric of the distance.
fn limit(panel: &Panel, distance: &Distance) -> Option<Limit> {
    distance.of(panel).filter(|_| panel.full().is_some())
}

/// The smallest sufficient caches of one panel within one distance.
struct Answer<'p> {
    panel: &'p Panel,
    distance: String,
    /// By policy, in the panel's order.
    found: Vec<(&'p str, SmallestCache)>,
    /// Why the sizes are not stated.
    not_stated: Option<String>,
}

fn answers<'p>(panels: &'p [Panel], distances: &'p [Distance]) -> Vec<Answer<'p>> {
    let answer = |panel: &'p Panel, distance: &Distance| {
        let limit = limit(panel, distance)?;
        let of_policy = |policy| Some((policy, smallest_cache(panel, policy, limit)?));
        let found: Vec<_> = panel.policies().into_iter().filter_map(of_policy).collect();
        let distance = distance.shown(panel);
        (!found.is_empty()).then(|| Answer { panel, distance, found, not_stated: not_stated(panel, limit) })
    };
    panels.iter().flat_map(|panel| distances.iter().filter_map(move |distance| answer(panel, distance))).collect()
}

impl Answer<'_> {
    /// Whether sizes are stated that have intervals.
    fn has_intervals(&self) -> bool {
        self.not_stated.is_none() && self.found.iter().any(|(_, found)| found.not_excluded.is_some())
    }

    /// What is not known of stated sizes where there are no intervals.
    fn without_intervals(&self) -> Option<String> {
        let stated = || self.found.iter().filter(|(_, found)| found.size.is_some());
        let without: Vec<&str> =
            stated().filter(|(_, found)| found.not_excluded.is_none()).map(|(policy, _)| *policy).collect();
        let whose = match without.len() {
            0 => return None,
            all if all == stated().count() => String::new(),
            _ => format!(" of {}", without.join(", ")),
        };
        Some(format!("how certain the sizes{whose} are is not known, as there are no intervals"))
    }

    /// Sizes ascending, each with the policies for which it is sufficient; those without any come last.
    fn by_size(&self) -> String {
        let mut by_size: BTreeMap<(bool, Option<Size>), Vec<String>> = BTreeMap::new();
        for (policy, found) in &self.found {
            let sizes = found.not_excluded.as_ref().map_or_else(String::new, |sizes| format!(" [{sizes}]"));
            by_size.entry((found.size.is_none(), found.size)).or_default().push(format!("{policy}{sizes}"));
        }
        let each = by_size.into_iter().map(|((_, size), policies)| match size {
            None => format!("no measured size for {}", policies.join(", ")),
            Some(size) => format!("{} for {}", with_share(size, self.panel.length), policies.join(", ")),
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

/// The distances within which nothing was measured, a sentence each.
fn unmeasured(panels: &[Panel], distances: &[Distance]) -> Vec<String> {
    let is_measured = |distance: &&Distance| panels.iter().any(|panel| limit(panel, distance).is_some());
    let missing = distances.iter().filter(|distance| !is_measured(distance));
    let note = |distance: &Distance| {
        let unit = distance.unit.map_or("%", |unit| unit.name);
        format!("within {}{unit}: no metric with this unit was measured beside a full cache", distance.amount)
    };
    missing.map(note).collect()
}

/// One line for each panel and distance, with the panel's title where `panels` are of several keys; where sizes that are not
/// excluded are in brackets, a last line says so.
fn lines(panels: &[Panel], keys: &[SeriesKey], distances: &[Distance]) -> Vec<String> {
    let answers = answers(panels, distances);
    let are_several = panels.iter().any(|panel| panel.key != panels[0].key);
    let line = |answer: &Answer<'_>| {
        let title = match are_several {
            true => format!(" \u{B7} {}", answer.panel.key.title(keys)),
            false => String::new(),
        };
        let sizes = match (&answer.not_stated, answer.without_intervals()) {
            (Some(why), _) => format!("not stated, because {why}"),
            (None, Some(without)) => format!("{}; {without}", answer.by_size()),
            (None, None) => answer.by_size(),
        };
        format!("at most {} from full{title}: {sizes}", answer.distance)
    };
    let brackets = "[ ] measured sizes that the 95 % intervals do not exclude";
    let brackets = answers.iter().any(Answer::has_intervals).then(|| brackets.to_owned());
    answers.iter().map(line).chain(brackets).collect()
}

/// A size and, where it is in entries and the samples have one length, its share of that.
fn with_share(size: Size, length: Option<u32>) -> String {
    let share = size.entries().zip(length).map(|(entries, length)| share(entries, length));
    share.map_or_else(|| size.to_string(), |share| format!("{size} ({share})"))
}

/// A share of the length: `1/8` where that is exact, else in percent.
fn share(size: u32, length: u32) -> String {
    match (size, length) {
        (0, _) | (_, 0) => "0".to_owned(),
        _ if size >= length => "whole text".to_owned(),
        _ if length.is_multiple_of(size) => format!("1/{}", length / size),
        _ => format!("{:.1} %", 100.0 * f64::from(size) / f64::from(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::{cell, changed, panels, table_3};

    fn distance(text: &str) -> Distance {
        text.parse().unwrap()
    }

    /// The sizes of a table like the paper's, whose perplexities are multiplied.
    fn like_the_paper(scale: f64, asked: &[Distance]) -> (String, Vec<(String, String)>) {
        let panels = panels(&table_3("meta-llama/Llama-2-7b-hf", scale, 100));
        let [answer] = &answers(&panels, asked)[..] else { panic!("one answer expected") };
        let shown = |found: &SmallestCache| with_share(found.size.unwrap(), answer.panel.length);
        let found = answer.found.iter().map(|(policy, found)| ((*policy).to_owned(), shown(found)));
        (answer.distance.clone(), found.collect())
    }

    fn named<const N: usize>(expected: [(&str, &str); N]) -> Vec<(String, String)> {
        expected.into_iter().map(|(policy, size)| (policy.to_owned(), size.to_owned())).collect()
    }

    #[test]
    fn the_paper_s_table_says_an_eighth_for_tova() {
        // At 7.16 the usual distance is 0.4 perplexity: ln(7.56 / 7.16) = 0.0544. 7.41 at 512 are ln(7.41 / 7.16) = 0.0343;
        // 7.46, 7.49, 7.50 and 7.52 at 1024 from 0.0410 to 0.0491; 7.50 at 2048; window only at full size. The next smaller
        // ones are 7.71 (0.0740), 7.73, 7.75, 7.76 (from 0.0766), 7.90, 8.04 and 240.
        let expected = named([
            ("truncate", "2048 (1/2)"),
            ("window", "4096 (whole text)"),
            ("window+1", "1024 (1/4)"),
            ("window+4", "1024 (1/4)"),
            ("h2o", "1024 (1/4)"),
            ("tova-head", "1024 (1/4)"),
            ("tova", "512 (1/8)"),
            ("tova+4", "512 (1/8)"),
        ]);
        let usual = Distance::usual();
        assert_eq!(like_the_paper(1.0, &usual), ("0.0544 nats (0.40 PPL here)".to_owned(), expected.clone()));
        assert_eq!(like_the_paper(1.0, &[distance("0.4ppl")]), ("0.4 PPL".to_owned(), expected.clone()));
        // The same losses where perplexities are twice as high: 0.4 of them would be half as much, 0.2 in the paper's.
        assert_eq!(like_the_paper(2.0, &usual), ("0.0544 nats (0.80 PPL here)".to_owned(), expected));
        let in_perplexity = named([
            ("truncate", "4096 (whole text)"),
            ("window", "4096 (whole text)"),
            ("window+1", "2048 (1/2)"),
            ("window+4", "2048 (1/2)"),
            ("h2o", "2048 (1/2)"),
            ("tova-head", "2048 (1/2)"),
            ("tova", "1024 (1/4)"),
            ("tova+4", "1024 (1/4)"),
        ]);
        assert_eq!(like_the_paper(2.0, &[distance("0.4ppl")]).1, in_perplexity);
        // 5 % of 7.16 are 0.358: 7.49 and 7.50 are still within, 7.52 is not.
        let (name, relative) = like_the_paper(1.0, &[distance("5%")]);
        let sizes = [4, 5, 6].map(|policy: usize| relative[policy].1.as_str());
        assert_eq!((name.as_str(), sizes), ("5 % of perplexity", ["1024 (1/4)", "2048 (1/2)", "512 (1/8)"]));
    }

    #[test]
    fn a_line_names_sizes_and_those_not_excluded() {
        let rows = table_3("meta-llama/Llama-2-7b-hf", 1.0, 100);
        let all = panels(&rows);
        let keys = [all[0].key.clone()];
        // A hundred books that lose between 0.75 and 1.25 of the mean: an interval is narrower than from one size to the next.
        let brackets = "[ ] measured sizes that the 95 % intervals do not exclude";
        assert_eq!(
            lines(&all, &keys, &Distance::usual()),
            [
                "at most 0.0544 nats (0.40 PPL here) from full: 512 (1/8) for tova [512], tova+4 [512]; 1024 (1/4) for \
                 window+1 [1024], window+4 [1024], h2o [1024], tova-head [1024]; 2048 (1/2) for truncate [2048]; \
                 4096 (whole text) for window [4096]",
                brackets
            ]
        );
        let small = |row: &Row| row.policy == "window" && row.cache_size < Some(4096);
        let window: Vec<Row> = rows.into_iter().filter(|row| row.policy == "full" || small(row)).collect();
        let expected = "at most 0.0544 nats (0.40 PPL here) from full: no measured size for window [none]";
        assert_eq!(lines(&panels(&window), &keys, &Distance::usual()), [expected, brackets]);
    }

    #[test]
    fn several_keys_are_named_in_their_lines() {
        let both = [table_3("a/one", 1.0, 20), table_3("b/two", 1.0, 20)].concat();
        let panels = panels(&both);
        let keys = [panels[0].key.clone(), panels[1].key.clone()];
        let found = lines(&panels, &keys, &Distance::usual());
        for (line, title) in found.iter().zip(["one", "two"]) {
            let start = format!(
                "at most 0.0544 nats (0.40 PPL here) from full \u{B7} {title} \u{B7} pg19: 512 (1/8) for tova "
            );
            assert!(line.starts_with(&start), "{line}");
        }
        assert_eq!(found.len(), 3, "the last says what is in brackets");
    }

    /// F1 of a full cache, of `tova` at 512 and of the commonest answer; one value for each book.
    fn answered(full: &[f64], tova: &[f64], commonest: &[f64]) -> Vec<Row> {
        let at = |metric: &str, policy: &str, size, books: &[f64]| {
            let named = ["a", "b", "c", "d"].into_iter().zip(books);
            let samples: Vec<(&str, f64, f64)> = named.map(|(book, f1)| (book, f1 / 100.0, 1.0)).collect();
            changed(cell(metric, policy, size, &samples), |row| row.length = 1000)
        };
        let full_size = [at("f1", "full", None, full), at("f1_trivial", "full", None, commonest)].concat();
        [full_size, at("f1", "tova", Some(512), tova)].concat()
    }

    #[test]
    fn without_intervals_the_line_says_that_certainty_is_not_known() {
        let all = panels(&answered(&[80.0; 2], &[79.5, 80.0], &[5.0; 2]));
        let keys = [all[0].key.clone()];
        let [line] = &lines(&all, &keys, &Distance::usual())[..] else { panic!("one line expected") };
        assert!(line.contains("512 (51.2 %) for tova; how certain") && line.contains("is not known"), "{line}");
    }

    #[test]
    fn a_full_cache_no_better_than_a_trivial_answer_has_no_smallest_cache() {
        let all = panels(&answered(&[11.0; 4], &[11.0; 4], &[12.0, 5.0, 5.0, 5.0]));
        let keys = [all[0].key.clone()];
        let why = "full (11.00) is not above the commonest answer (6.75) at 95 %: the difference is +4.25 [-1.00, +6.00]";
        let line = format!("at most 1 F1 from full: not stated, because {why}");
        assert_eq!(lines(&all, &keys, &Distance::usual()), [line]);
        // Clearly above it, the size is stated.
        let all = panels(&answered(&[11.0; 4], &[11.0; 4], &[5.0; 4]));
        let stated = lines(&all, &keys, &Distance::usual());
        assert_eq!(stated[0], "at most 1 F1 from full: 512 (51.2 %) for tova [512]");
    }

    #[test]
    fn a_share_is_of_the_sample_s_own_length() {
        let needles = |lengths: &[u32]| {
            let at = |policy: &str, size, slice: Option<String>| {
                let samples = [("a", 1.0, 1.0), ("b", 1.0, 1.0)];
                changed(cell("found", policy, size, &samples), |row| {
                    (row.length, row.slice) = (1024, slice.as_deref().map(Into::into));
                })
            };
            let slices = lengths.iter().map(|length| Some(format!("length:{length}")));
            let slices = slices.chain([None, Some("length:1024 depth:0".to_owned())]);
            slices
                .flat_map(|slice| [at("full", None, slice.clone()), at("tova", Some(256), slice)].concat())
                .collect()
        };
        let number = |rows: Vec<Row>| {
            let panels = panels(&rows);
            let whole: Vec<Panel> = panels.into_iter().filter(|panel| panel.slice.is_none()).collect();
            let usual = Distance::usual();
            let answer = &answers(&whole, &usual)[0];
            with_share(answer.found[0].1.size.unwrap(), answer.panel.length)
        };
        assert_eq!(number(needles(&[1024])), "256 (1/4)");
        // Of the shorter texts it is a half, so there is no share that is true of all.
        assert_eq!(number(needles(&[512, 1024])), "256");
    }

    #[test]
    fn a_size_that_is_a_share_needs_no_other() {
        let shown = |size: Size, length| with_share(size, length);
        assert_eq!(shown(Size::Share(1250), Some(1024)), "12.5%");
        assert_eq!([Some(1024), None].map(|length| shown(128.into(), length)), ["128 (1/8)", "128"]);
    }

    #[test]
    fn distances_without_results_are_listed() {
        let panels = panels(&table_3("m", 1.0, 10));
        let asked = [distance("1f1"), distance("0.4ppl")];
        assert_eq!(answers(&panels, &asked).len(), 1);
        let [note] = &unmeasured(&panels, &asked)[..] else { panic!("one note expected") };
        assert!(note.starts_with("within 1f1: no metric"), "{note}");
        assert!(answers(&[], &asked).is_empty() && answers(&panels, &asked[..1]).is_empty());
    }
}

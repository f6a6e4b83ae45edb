//! Which differences between policies a report shows: one policy, the reference, against each other one.
//!
//! The reference is the one asked for, else the first policy of the sweep. Differences are computed in `pairs`, and all of
//! them are in `pairs.csv`.

use std::collections::BTreeSet;

use super::Measured;
use crate::metric::{Better, Property};
use crate::report::document::{Block, Entry, Grid, Line, Table};
use crate::report::series::{Pair, Panel, Size, panel};
use crate::report::statistics::has_verdicts;

pub(super) fn blocks(measured: &Measured<'_>) -> Vec<Block> {
    let table = table(measured.panel, measured.setting.report.reference.as_deref());
    table.map(Block::folded).into_iter().collect()
}

/// Pairs by the other policy, in the panel's order.
type Others<'p> = Vec<(&'p str, Vec<Pair>)>;

/// The reference policy of a panel and its pairs, each from its side: the policy `asked` for, else the first that the
/// panel has; cut text is no policy. `None` where nothing is compared or neither way
/// is better.
fn reference<'p>(panel: &'p Panel, asked: Option<&str>) -> Option<(&'p str, Others<'p>)> {
    if panel.metric.better == Better::Unknown {
        return None;
    }
    let policies = || panel.policies().into_iter().filter(|policy| *policy != "full");
    let reference = match asked {
        Some(asked) => policies().find(|policy| *policy == asked)?,
        None => policies().find(|policy| *policy != "truncate")?,
    };
    let others = policies().map(|other| {
        let pairs = panel.sizes().into_iter().filter_map(|size| panel.pair(reference, other, size));
        (other, pairs.collect::<Vec<_>>())
    });
    let others: Others<'_> = others.filter(|(_, pairs)| !pairs.is_empty()).collect();
    (!others.is_empty()).then_some((reference, others))
}

/// The table of one policy against each other.
fn table(panel: &Panel, asked: Option<&str>) -> Option<Table> {
    let (reference, others) = reference(panel, asked).filter(|_| !panel.metric.has(Property::Detail))?;
    let sizes: BTreeSet<Size> = others.iter().flat_map(|(_, pairs)| pairs).map(|pair| pair.cache_size).collect();
    let lines = others.iter().map(|(other, pairs)| {
        let at = |size: &Size| pairs.iter().find(|pair| pair.cache_size == *size).map(|pair| entry(panel, pair));
        Line::new(format!("{reference} \u{2212} {other}"), sizes.iter().map(at).collect())
    });
    let mut about = "The first policy minus the second, over the samples both have.".to_owned();
    let comparisons = panel.pairs.iter().filter(|pair| pair.p.is_some()).count();
    if comparisons > 0 {
        about.push_str(&format!(
            " In brackets are the pairs' own 95 % intervals{}. Bold differences are clear among all {comparisons} comparisons of this \
             kind (every two policies at every size): p is 0.05 at most, from a sign-flip test over clusters, with max-|t| over \
             the comparisons.",
            panel::coverage(panel.clusters)
        ));
    }
    if panel.pairs.iter().any(|pair| pair.is_equal) {
        about.push_str(" Where it says equal, no cluster differs.");
    }
    let title = format!("{}: {reference} against the others", panel.metric.label);
    let few = panel::few_clusters(panel.clusters).filter(|_| !has_verdicts(panel.clusters));
    let grid = Grid::by_size(sizes.iter().copied(), lines.collect());
    Some(Table { bold: "clear", notes: few.into_iter().collect(), ..Table::new(title, about, "cache size", grid) })
}

fn entry(panel: &Panel, pair: &Pair) -> Entry {
    if pair.is_equal {
        return Entry::plain("equal");
    }
    let partial = pair.difference.samples < panel.samples;
    Entry { bold: pair.is_clear(), partial, ..Entry::of_difference(&panel.metric, pair.difference.shown) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::{cell, panels, table_3};

    #[test]
    fn the_paper_s_table_against_tova() {
        let panels = panels(&table_3("m", 1.0, 100));
        let table = table(&panels[0], Some("tova")).unwrap();
        assert_eq!(table.title, "perplexity: tova against the others");
        let names: Vec<&str> = table.grid.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names.len(), 7);
        assert_eq!((names[0], names[5]), ("tova − truncate", "tova − tova-head"));
        let h2o = table.grid.lines.iter().find(|line| line.name == "tova − h2o").unwrap();
        let at = |column: usize| h2o.cells[column].as_ref().unwrap();
        // 9.53 - 10.22, 7.41 - 7.75, and the same 7.16.
        assert_eq!(
            (at(0).number.as_str(), at(3).number.as_str(), at(6).number.as_str()),
            ("-0.69", "-0.34", "equal")
        );
        assert!(at(0).bold && !at(6).bold && at(6).spread.is_none(), "{h2o:?}", h2o = h2o.cells);
        // 28 pairs at six sizes; at the seventh all are equal.
        assert!(table.about.contains("all 168 comparisons"), "{}", table.about);
        // 9.53 and 9.63 with 100 books are too near each other.
        let near = table.grid.lines.iter().find(|line| line.name == "tova − tova+4").unwrap();
        assert!(near.cells.iter().flatten().all(|entry| !entry.bold));
    }

    fn scores(policy: &str, sizes: &[(u32, f64)]) -> Vec<Row> {
        let names: Vec<String> = (0..12).map(|book| format!("book{book:02}")).collect();
        let at = |(size, score): &(u32, f64)| {
            let samples = names.iter().zip(0..).map(|(book, i)| (book.as_str(), score + 0.01 * f64::from(i), 1.0));
            cell("f1", policy, Some(*size), &samples.collect::<Vec<_>>())
        };
        sizes.iter().flat_map(at).collect()
    }

    #[test]
    fn higher_may_be_better_and_the_first_policy_is_the_reference() {
        let all = [
            scores("truncate", &[(8, 0.9)]),
            scores("window", &[(8, 0.3), (16, 0.5), (32, 0.4)]),
            scores("h2o", &[(8, 0.4), (16, 0.4), (32, 0.4)]),
        ];
        let panels = panels(&all.concat());
        // The cut text comes first and is no policy.
        assert_eq!(panels[0].policies(), ["truncate", "window", "h2o"]);
        let shown = |asked: Option<&str>| {
            let table = table(&panels[0], asked).unwrap();
            let line = table.grid.lines[1].clone();
            let numbers = line.cells.iter().flatten().map(|entry| (entry.number.clone(), entry.bold));
            (line.name, numbers.collect::<Vec<_>>())
        };
        let numbers =
            |numbers: [(&str, bool); 3]| numbers.map(|(number, bold)| (number.to_owned(), bold)).to_vec();
        let expected = [("-10.00", true), ("+10.00", true), ("equal", false)];
        assert_eq!(shown(None), ("window − h2o".to_owned(), numbers(expected)));
        // Asked for, any of them is the reference, and the same pairs are told from its side.
        let turned = [("+10.00", true), ("-10.00", true), ("equal", false)];
        assert_eq!(shown(Some("h2o")), ("h2o − window".to_owned(), numbers(turned)));
        assert!(table(&panels[0], Some("truncate")).unwrap().title.ends_with("truncate against the others"));
        assert!(table(&panels[0], Some("tova")).is_none() && table(&panels[0], Some("full")).is_none());
    }

    #[test]
    fn one_policy_or_no_direction_makes_no_table() {
        let sample = [("a", 1.0, 1.0)];
        assert!(table(&panels(&cell("nll", "tova", Some(8), &sample))[0], None).is_none());
        let unknown = ["tova", "window"].map(|policy| cell("cost", policy, Some(8), &sample));
        let panels = panels(&unknown.concat());
        assert!(table(&panels[0], None).is_none());
        assert_eq!(panels[0].pairs.len(), 1, "the file of all pairs has it");
    }
}

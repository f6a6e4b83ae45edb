//! Which differences between policies a report shows: the contrasts that were planned, and one policy, the reference, against each
//! other one.
//!
//! The reference is the one asked for, else the first policy of the sweep. Differences are computed in `pairs`, and all of
//! them are in `pairs.csv`.

use std::collections::BTreeSet;

use super::Measured;
use crate::metric::{Better, Metric, Property};
use crate::report::document::{Block, Column, Entry, Grid, Line, Table};
use crate::report::series::{Influence, Outcome, Pair, Panel, Size, influence, panel, signed};
use crate::report::statistics::has_verdicts;

/// Which comparisons a verdict is corrected for, and by which test.
pub(super) const FAMILY: &str =
    "by a sign-flip test over the means of clusters, corrected among all pairs of this metric at that size (95 %)";

/// What stands over the columns of differences; those of perplexities are in nats.
fn columns(metric: &Metric) -> [Column; 4] {
    let difference = metric.per.as_ref().map_or("difference".into(), |per| format!("difference (nats/{per})"));
    [difference.into(), "verdict".into(), "largest cluster".into(), "each cluster left out".into()]
}

/// The contrasts that were planned, in full view.
pub(super) fn contrasts(measured: &Measured<'_>) -> Vec<Block> {
    planned(measured.panel).map(Block::Table).into_iter().collect()
}

pub(super) fn blocks(measured: &Measured<'_>) -> Vec<Block> {
    let table = table(measured.panel, measured.setting.report.reference.as_deref());
    table.map(Block::folded).into_iter().collect()
}

/// The reference policy of a panel and those that it is compared with: the policy `asked` for, else the first that the panel has; cut
/// text is no policy. `None` where nothing is compared or neither way is better.
fn reference<'p>(panel: &'p Panel, asked: Option<&str>) -> Option<(&'p str, Vec<[&'p str; 2]>)> {
    let policies = || panel.policies().into_iter().filter(|policy| *policy != "full");
    let reference = match asked {
        Some(asked) => policies().find(|policy| *policy == asked)?,
        None => policies().find(|policy| *policy != "truncate")?,
    };
    Some((reference, policies().map(|other| [reference, other]).collect()))
}

/// The table of one policy against each other.
fn table(panel: &Panel, asked: Option<&str>) -> Option<Table> {
    let (reference, wanted) = reference(panel, asked).filter(|_| !panel.metric.has(Property::Detail))?;
    let title = format!("{}: {reference} against the others", panel.metric.label);
    differences(panel, &wanted, title, FAMILY, |pair| pair.outcome(panel.metric.better))
}

/// The table of planned contrasts.
pub(super) fn planned(panel: &Panel) -> Option<Table> {
    let wanted: Vec<[&str; 2]> =
        panel.contrasts.iter().map(|names| names.each_ref().map(String::as_str)).collect();
    let family = "by a sign-flip test over the means of clusters, corrected among the planned contrasts of this metric at that size alone (95 %)";
    let title = format!("{}: planned contrasts", panel.metric.label);
    differences(panel, &wanted, title, family, |pair| pair.planned_outcome(panel.metric.better))
}

/// A line for each wanted pair at each size, with its verdict among a `family`; `None` where there is none, or neither way is better.
fn differences(
    panel: &Panel,
    wanted: &[[&str; 2]],
    title: String,
    family: &str,
    outcome: impl Fn(&Pair) -> Outcome,
) -> Option<Table> {
    let at = |size: Size| wanted.iter().filter_map(move |[policy, against]| panel.pair(policy, against, size));
    let pairs: Vec<Pair> = panel.sizes().into_iter().flat_map(at).collect();
    if pairs.is_empty() || panel.metric.better == Better::Unknown {
        return None;
    }
    let sizes: BTreeSet<Size> = pairs.iter().map(|pair| pair.cache_size).collect();
    let name = |pair: &Pair| {
        let names = format!("{} \u{2212} {}", pair.policy, pair.against);
        if sizes.len() == 1 { names } else { format!("{names} at {}", pair.cache_size) }
    };
    let line = |pair: &Pair| Line {
        size: Some(pair.cache_size),
        ..Line::new(name(pair), cells(panel, pair, outcome(pair)).to_vec())
    };
    let at = match &sizes.iter().collect::<Vec<_>>()[..] {
        [size] => format!(" The cache size is {size}."),
        _ => String::new(),
    };
    let mut about = format!(
        "The first policy minus the second, over the samples both have.{at} In brackets are the pairs' own 95 % intervals{}. Better and worse are \
         said of the first policy, {family}, and only where the interval leaves out zero. Beside them are the cluster that carries most of the \
         difference with its share, and the least and the greatest difference with one cluster left out.",
        panel::coverage(panel.clusters)
    );
    if pairs.iter().any(|pair| pair.is_equal) {
        about.push_str(" Where it says equal, no cluster differs.");
    }
    let few = panel::few_clusters(panel.clusters).filter(|_| !has_verdicts(panel.clusters));
    let effects =
        pairs.iter().filter(|pair| pair.difference.shown.interval.is_some_and(|ends| ends.excludes_zero()));
    let effects = effects.filter_map(|pair| Some((name(pair), pair.difference.influence.as_ref()?)));
    let notes = few.into_iter().chain(influence::notes(effects)).collect();
    let grid = Grid { columns: columns(&panel.metric).to_vec(), lines: pairs.iter().map(line).collect() };
    let corner = if sizes.len() == 1 { "pair" } else { "pair and cache size" };
    Some(Table { notes, ..Table::new(title, about, corner, grid) })
}

/// The difference, the verdict, the largest cluster and the range without each cluster.
fn cells(panel: &Panel, pair: &Pair, outcome: Outcome) -> [Option<Entry>; 4] {
    let verdict = Some(Entry::plain(outcome.word()));
    if pair.is_equal {
        return [Some(Entry::plain("0")), verdict, None, None];
    }
    let partial = pair.difference.samples < panel.samples;
    let in_nats = panel.metric.per.is_some();
    let shown = match pair.difference.nats.filter(|_| in_nats) {
        Some(nats) => Entry::of_nats(nats),
        None => Entry::of_difference(&panel.metric, pair.difference.shown),
    };
    let difference = Entry { partial, ..shown };
    let of = pair.difference.influence.as_ref();
    let largest = |Influence { cluster, share, .. }: &Influence| format!("{:.0} % {cluster}", 100.0 * share);
    let left_out = |Influence { left_out, left_out_nats, .. }: &Influence| {
        let ends = match left_out_nats.filter(|_| in_nats) {
            Some(nats) => nats.map(|end| signed(end, 3)),
            None => left_out.map(|end| panel.metric.show_difference(end)),
        };
        ends.join(" to ")
    };
    [Some(difference), verdict, of.map(largest).map(Entry::plain), of.map(left_out).map(Entry::plain)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Contrast, Row};
    use crate::report::Results;
    use crate::report::fixture::{cell, panels, table_3};

    /// The difference and the verdict of each line.
    fn shown(table: &Table) -> Vec<(String, String, String)> {
        let cell = |line: &Line, at: usize| line.cells[at].as_ref().unwrap().number.clone();
        table.grid.lines.iter().map(|line| (line.name.clone(), cell(line, 0), cell(line, 1))).collect()
    }

    fn lines(expected: &[[&str; 3]]) -> Vec<(String, String, String)> {
        expected
            .iter()
            .map(|[name, difference, verdict]| ((*name).into(), (*difference).into(), (*verdict).into()))
            .collect()
    }

    #[test]
    fn the_paper_s_table_against_tova() {
        let panels = panels(&table_3("m", 1.0, 100));
        let table = table(&panels[0], Some("tova")).unwrap();
        assert_eq!(table.title, "perplexity: tova against the others");
        let all = shown(&table);
        assert_eq!(
            (all.len(), &*all[0].0, &*all[5].0),
            (7 * 7, "tova − truncate at 64", "tova − tova-head at 64")
        );
        // ln(9.53 / 10.22), ln(7.41 / 7.75), and the same 7.16.
        let of =
            |name: &str| all.iter().find(|(line, ..)| line == name).map(|(_, shown, word)| (&**shown, &**word));
        assert_eq!(of("tova − h2o at 64"), Some(("-0.070", "better")));
        assert_eq!(of("tova − h2o at 512"), Some(("-0.045", "better")));
        assert_eq!(of("tova − h2o at 4096"), Some(("0", "equal")));
        // 9.53 and 9.63 with 100 books are too near each other.
        let near = all.iter().filter(|(name, ..)| name.starts_with("tova − tova+4"));
        assert!(near.clone().count() == 7 && near.clone().all(|(.., word)| word != "better"), "{all:?}");
    }

    #[test]
    fn planned_contrasts_are_corrected_among_themselves() {
        // Seven books: alone p is 2/128, and among many pairs more.
        let of = |policy: &str, costs: [f64; 7]| {
            let samples =
                ["a", "b", "c", "d", "e", "f", "g"].into_iter().zip(costs).map(|(name, cost)| (name, cost, 1.0));
            cell("nll", policy, Some(8), &samples.collect::<Vec<_>>())
        };
        let mut rng = fastrand::Rng::with_seed(7);
        let mut all = [of("window", [0.0; 7]), of("tova", [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0])].concat();
        for other in 0..8 {
            all.extend(of(&format!("other{other}"), std::array::from_fn(|_| rng.f64() - 3.0)));
        }
        let contrasts: Vec<Contrast> =
            ["tova - window", "tova - missing", "other1 - other0"].map(|text| text.parse().unwrap()).to_vec();
        let results = Results::of_sweep(&all, &Default::default(), &contrasts).unwrap();
        let table = planned(&results.panels[0]).unwrap();
        let found = shown(&table);
        assert_eq!((found.len(), &*found[0].0, &*found[0].2), (2, "tova − window", "better"), "{found:?}");
        let pair = results.panels[0].pair("tova", "window", 8.into()).unwrap();
        assert!(pair.planned.unwrap().adjusted < pair.p.unwrap().adjusted, "{pair:?}");
        assert!(table.about.contains("planned contrasts") && planned(&panels(&all)[0]).is_none());
    }

    #[test]
    fn a_cluster_that_carries_most_is_named_beside_its_share_and_the_range_without_it() {
        let of = |policy: &str, costs: [f64; 6]| {
            let samples =
                ["a", "b", "c", "d", "e", "f"].into_iter().zip(costs).map(|(name, cost)| (name, cost, 1.0));
            cell("evicted_mass", policy, Some(8), &samples.collect::<Vec<_>>())
        };
        // 0.25 in the mean, of which f has 1 of 1.5; without it 0.1, and without one of the others 0.28.
        let all = [of("window", [0.0; 6]), of("tova", [0.1, 0.1, 0.1, 0.1, 0.1, 1.0])];
        let table = table(&panels(&all.concat())[0], Some("tova")).unwrap();
        let cells: Vec<&str> = table.grid.lines[0].cells.iter().flatten().map(|entry| &*entry.number).collect();
        assert_eq!(cells, ["+25.00", "worse", "67 % f", "+10.00 to +28.00"]);
        assert_eq!(table.notes, ["f alone carries more than a third of an effect: 67 % of tova − window"]);
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
        let of = |asked: Option<&str>| shown(&table(&panels[0], asked).unwrap());
        let expected = lines(&[
            ["window − h2o at 8", "-10.00", "worse"],
            ["window − h2o at 16", "+10.00", "better"],
            ["window − h2o at 32", "0", "equal"],
        ]);
        assert_eq!(of(None).into_iter().filter(|(name, ..)| name.contains("h2o")).collect::<Vec<_>>(), expected);
        // Asked for, any of them is the reference, and the same pairs are told from its side.
        let expected = lines(&[
            ["h2o − window at 8", "+10.00", "better"],
            ["h2o − window at 16", "-10.00", "worse"],
            ["h2o − window at 32", "0", "equal"],
        ]);
        assert_eq!(
            of(Some("h2o")).into_iter().filter(|(name, ..)| name.contains("window")).collect::<Vec<_>>(),
            expected
        );
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

//! The numbers of a metric: how far the policies are from the full cache, which pairs samples, and then the values.

use super::{Measured, pairs};
use crate::format::{capital, counted};
use crate::metric::{Better, Metric};
use crate::report::document::{Block, Column, Entry, Grid, Line, Table};
use crate::report::series::{Influence, Outcome, Panel, Point, Size, influence, panel, place};

/// The header above the names of policies.
pub(crate) const POLICY: &str = "policy";

pub(super) fn lead(measured: &Measured<'_>) -> Vec<Block> {
    measured.tables.first().cloned().map(Block::Table).into_iter().collect()
}

/// What follows, which a reader opens where the metric is in full view.
pub(super) fn rest(measured: &Measured<'_>) -> Vec<Block> {
    let is_in_view = measured.is_first && !measured.setting.is_timed();
    let block = if is_in_view { Block::folded } else { Block::Table };
    measured.tables.iter().skip(1).cloned().map(block).collect()
}

/// What a panel leads with, and what follows: how far the policies are from the full cache, which pairs samples, and then the
/// values. The values alone where there is no full cache; values first where repeats are timed.
pub(crate) fn headline(panel: &Panel) -> Vec<Table> {
    let Some(difference) = difference(panel) else { return value(panel).into_iter().collect() };
    let mut tables: Vec<Table> = value(panel).into_iter().collect();
    if panel.metric.is_timed() {
        tables.push(difference);
    } else {
        // What a reader must know of the samples is said where they are first seen.
        let of_values = tables.iter_mut().flat_map(|value| std::mem::take(&mut value.notes));
        let notes = of_values.chain(difference.notes).collect();
        tables.insert(0, Table { notes, ..difference });
    }
    tables
}

fn value(panel: &Panel) -> Option<Table> {
    let grid = grid(panel, Show::Value)?;
    Some(Table { notes: notes(panel), ..Table::new(&*panel.metric.label, meaning(panel), POLICY, grid) })
}

/// `perplexity: excess over full (nats/token)`, or of other metrics `recall (%): difference to full`.
pub(crate) fn name_of_difference(metric: &Metric) -> String {
    let excess = metric.excess();
    format!("{}: {}", metric.label, excess.as_ref().map_or("difference to full", |excess| &excess.label))
}

/// What an excess in nats is.
pub(crate) const NATS: &str = "nats: ln(perplexity / the full cache's), so that 0.01 is 1 %";

fn difference(panel: &Panel) -> Option<Table> {
    let has_interval =
        |point: &Point| point.to_full.as_ref().is_some_and(|to_full| to_full.shown.interval.is_some());
    let paired = match panel.points.iter().any(has_interval) {
        true => format!("; in brackets are paired 95 % intervals{}", panel::coverage(panel.clusters)),
        false => String::new(),
    };
    let nats = panel.metric.excess().map_or_else(String::new, |_| format!(" {}.", capital(NATS)));
    let full = full(panel).map_or_else(String::new, |full| format!(" {}.", capital(&full)));
    let about = format!("{}{}, over those that both have{paired}.{full}{nats}", better(panel), counts(panel));
    let grid = grid(panel, Show::Difference)?;
    Some(Table {
        notes: influence::notes(effects(panel)),
        ..Table::new(name_of_difference(&panel.metric), about, POLICY, grid)
    })
}

/// The differences to the full cache whose intervals leave out zero, by name, and how far each rests on single clusters.
fn effects(panel: &Panel) -> impl Iterator<Item = (String, &Influence)> {
    panel.points.iter().filter_map(|point| {
        let to_full = point.to_full.as_ref()?;
        to_full.shown.interval.filter(|interval| interval.excludes_zero())?;
        Some((place(&point.policy, point.cache_size), to_full.influence.as_ref()?))
    })
}

/// `full cache: perplexity 7.16`.
pub(crate) fn full(panel: &Panel) -> Option<String> {
    Some(format!("full cache: {} {}", panel.metric.label, panel.metric.show(panel.full()?.estimate.value)))
}

/// Which number of a point is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Value,
    /// How far it is from the full cache: of a perplexity the excess in nats.
    Difference,
}

/// The table of a panel; `None` where it would be empty, as differences are without a full cache.
pub(crate) fn grid(panel: &Panel, show: Show) -> Option<Grid> {
    let sizes = panel.sizes();
    let columns: Vec<(&Panel, Option<Size>)> = match sizes.is_empty() {
        true => vec![(panel, None)],
        false => sizes.iter().map(|size| (panel, Some(*size))).collect(),
    };
    let name = |(_, size): &(&Panel, Option<Size>)| size.map_or_else(|| "all".into(), Column::of_size);
    let lines = lines(&panel.policies(), &columns, show);
    (!lines.is_empty()).then(|| Grid { columns: columns.iter().map(name).collect(), lines })
}

/// A line for each policy that was measured in any column, which is a panel at a cache size.
pub(crate) fn lines(policies: &[&str], columns: &[(&Panel, Option<Size>)], show: Show) -> Vec<Line> {
    let worse: Vec<Vec<&str>> = columns.iter().map(|(panel, size)| worse(panel, *size)).collect();
    let line = |policy: &&str| {
        let cell = |(&(panel, size), worse): (&(&Panel, Option<Size>), &Vec<&str>)| {
            let point = panel.shown_at(policy, size)?;
            let mut entry = number(panel, point, show)?;
            entry.worse = worse.contains(policy);
            entry.partial = !point.complete;
            Some(entry)
        };
        Line::of_policy(policy, columns.iter().zip(&worse).map(cell).collect())
    };
    policies.iter().map(line).filter(Line::has_any).collect()
}

/// The number of a point; `None` where there is no difference to the full cache.
pub(crate) fn number(panel: &Panel, point: &Point, show: Show) -> Option<Entry> {
    Some(match show {
        Show::Value => Entry::of(&panel.metric, point.estimate),
        Show::Difference => {
            let to_full = point.to_full.as_ref()?;
            let nats = to_full.nats.filter(|_| panel.metric.excess().is_some());
            nats.map_or_else(|| Entry::of_difference(&panel.metric, to_full.shown), Entry::of_excess)
        }
    })
}

/// The policies at a size that are shown to be worse than the best there: of those that can be chosen, over all samples, the one with
/// the best number.
fn worse(panel: &Panel, size: Option<Size>) -> Vec<&str> {
    let Some(size) = size else { return Vec::new() };
    let at_size = || panel.points.iter().filter(|point| point.cache_size == Some(size));
    let loss = |point: &&Point| match panel.metric.better {
        Better::Higher => -point.estimate.value,
        _ => point.estimate.value,
    };
    let choices = at_size().filter(|point| point.complete && panel.is_choice(&point.policy));
    let Some(best) = choices.min_by(|a, b| loss(a).total_cmp(&loss(b))) else { return Vec::new() };
    let is_worse = |policy: &&str| {
        let pair = panel.pair(policy, &best.policy, size);
        pair.is_some_and(|pair| pair.outcome(panel.metric.better) == Outcome::Worse)
    };
    at_size().map(|point| point.policy.as_str()).filter(is_worse).collect()
}

/// How to read the table of a panel.
pub(crate) fn meaning(panel: &Panel) -> String {
    let spread = match panel.points.iter().any(|point| point.estimate.interval.is_some()) {
        true => format!("; in brackets are 95 % intervals over clusters{}", panel::coverage(panel.clusters)),
        false => String::new(),
    };
    let compared = guess(panel).map_or_else(String::new, |guess| format!(" For comparison, {guess}."));
    format!("{}{}{spread}.{compared}", better(panel), counts(panel))
}

/// Which way is better, and what is grey; as a sentence.
fn better(panel: &Panel) -> String {
    let better = match panel.metric.better {
        Better::Lower => "Lower is better",
        Better::Higher => "Higher is better",
        Better::Unknown => return String::new(),
    };
    let grey = match panel.pairs.iter().any(|pair| pair.is_clear()) {
        true => format!(
            "; grey (or in parentheses) is what is shown to be worse than the best of its column, {}",
            pairs::FAMILY
        ),
        false => String::new(),
    };
    format!("{better}{grey}. ")
}

fn counts(panel: &Panel) -> String {
    format!("{} from {}", counted(panel.samples, "sample"), counted(panel.clusters, "cluster"))
}

/// `the commonest answer would reach 12.5`, where a guess is known.
pub(crate) fn guess(panel: &Panel) -> Option<String> {
    let guess = panel.metric.guess?;
    Some(format!("{} would reach {}", guess.by, panel.metric.show(panel.guess?)))
}

fn notes(panel: &Panel) -> Vec<String> {
    let partial = panel.points.iter().any(|point| !point.complete);
    let dagger = partial.then(|| "† not over all samples of this table".to_owned());
    dagger.into_iter().chain(panel.notes.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::cell;
    use crate::report::format::terminal::text_under;

    #[test]
    fn what_is_worse_than_the_best_of_its_column_is_marked_and_nothing_else() {
        let at = |policy, size, values: [f64; 7]| {
            let samples = ["a", "b", "c", "d", "e", "f", "g"].into_iter().zip(values);
            cell("nll", policy, size, &samples.map(|(name, value)| (name, value, 1.0)).collect::<Vec<_>>())
        };
        let all = [
            at("full", None, [1.0; 7]),
            at("truncate", Some(64), [1.1; 7]),
            at("window", Some(64), [3.0; 7]),
            // In the mean a little worse than tova, in three books better.
            at("h2o", Some(64), [1.8, 2.3, 1.8, 2.3, 1.8, 2.3, 2.0]),
            at("tova", Some(64), [2.0; 7]),
            at("tova", Some(128), [1.5; 7]),
        ];
        let panels = crate::report::fixture::panels(&all.concat());
        let expected = "\
cache size      64    128
full          2.72   2.72
truncate      3.00      -
window      (20.09)     -
h2o           7.71      -
tova          7.39   4.48
";
        let mut shown = grid(&panels[0], Show::Value).unwrap();
        shown
            .lines
            .iter_mut()
            .flat_map(|line| line.cells.iter_mut().flatten())
            .for_each(|cell| cell.spread = None);
        assert_eq!(text_under("cache size", &shown), expected);
        let difference = text_under("", &grid(&panels[0], Show::Difference).unwrap());
        // Of a perplexity in nats: window has 3, the full cache 1.
        assert!(!difference.contains("full") && difference.contains("(2.000)"), "{difference}");
        assert!(difference.contains(" 1.043 ") && difference.contains(" 1.000 "), "{difference}");
        // Five books tell nothing apart, so nothing is marked.
        let five: Vec<_> = all.concat().into_iter().filter(|row| row.sample < "f".into()).collect();
        let shown = text_under("", &grid(&crate::report::fixture::panels(&five)[0], Show::Value).unwrap());
        assert!(!shown.contains('(') && shown.contains("20.09"), "{shown}");
        let without_full = crate::report::fixture::panels(&at("tova", Some(64), [2.0; 7]));
        assert!(grid(&without_full[0], Show::Difference).is_none());
    }
}

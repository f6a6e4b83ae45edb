//! How the paper's claims are measured: gaps to the full cache, leads over other policies, rises over long texts.
//!
//! Losses and leads are positive where the sentence of the claim says "worse" and "better", whichever way a metric improves.
//! The paper's own numbers are measured by the same functions.

use super::claim::{Finding, Observation};
use super::published::Paper;
use super::{Evidence, TOVA, numbers, titles};
use crate::metric::Better;
use crate::report::retention::Section;
use crate::report::{Estimate, Interval, Panel, RUNNING, SeriesKey, throughput};

/// What the paper compares TOVA with.
pub(super) const BASELINES: [&str; 6] = ["truncate", "window", "window+1", "window+4", "h2o", "h2o-layer"];
pub(super) const BEST_BASELINE: &str = "window+4";

/// The sizes that evict, ascending.
fn sizes(panel: &Panel) -> Vec<u32> {
    panel.sizes().into_iter().filter(|size| *size < panel.key.length).collect()
}

/// By how much a policy is worse than the full cache.
fn loss(panel: &Panel, policy: &str, size: u32) -> Option<Estimate> {
    let difference = panel.point(policy, Some(size))?.to_full?;
    Some(if panel.metric.better == Better::Higher { difference.turned() } else { difference })
}

/// By how much a policy is better than another.
fn lead(panel: &Panel, policy: &str, other: &str, size: u32) -> Option<f64> {
    let difference = value_at(panel, policy, size)? - value_at(panel, other, size)?;
    Some(if panel.metric.better == Better::Higher { difference } else { -difference })
}

fn value_at(panel: &Panel, policy: &str, size: u32) -> Option<f64> {
    panel.point(policy, Some(size)).map(|point| point.estimate.value)
}

/// An estimate in another unit.
fn scaled(of: Estimate, unit: impl Fn(f64) -> f64) -> Estimate {
    let interval = of.interval.map(|interval| Interval { low: unit(interval.low), high: unit(interval.high) });
    Estimate { value: unit(of.value), interval }
}

fn place(policy: &str, size: u32) -> String {
    format!("{policy} at {size}")
}

fn least(measured: impl Iterator<Item = Observation>) -> Option<Observation> {
    measured.min_by(|a, b| a.estimate.value.total_cmp(&b.estimate.value))
}

/// How much worse than full a policy is at a share of the length.
pub(super) fn gap(panel: &Panel, policy: &str, part: u32) -> Option<Observation> {
    let size = panel.key.length / part;
    Some(Observation { estimate: loss(panel, policy, size)?, at: place(policy, size) })
}

/// The least by which a policy is better than any other at any size.
pub(super) fn smallest_lead(panel: &Panel, policy: &str, others: &[&str]) -> Option<Observation> {
    let pairs = sizes(panel).into_iter().flat_map(|size| others.iter().map(move |other| (size, *other)));
    least(pairs.filter_map(|(size, other)| {
        Some(Observation::of(lead(panel, policy, other, size)?, format!("against {}", place(other, size))))
    }))
}

/// How near the nearest baseline comes to full with less than half of the length.
pub(super) fn nearest_baseline(panel: &Panel) -> Option<Observation> {
    let sizes = sizes(panel).into_iter().filter(|size| *size < panel.key.length / 2);
    let pairs = sizes.flat_map(|size| BASELINES.iter().map(move |baseline| (size, *baseline)));
    least(pairs.filter_map(|(size, baseline)| {
        Some(Observation { estimate: loss(panel, baseline, size)?, at: place(baseline, size) })
    }))
}

/// The share of sizes at which no other baseline is better than Window+4, in percent.
pub(super) fn best_baseline(panel: &Panel) -> Option<Observation> {
    let others = BASELINES.into_iter().filter(|baseline| *baseline != BEST_BASELINE);
    let least_lead = |size| {
        let leads = others.clone().filter_map(|other| lead(panel, BEST_BASELINE, other, size));
        leads.min_by(f64::total_cmp)
    };
    let leads: Vec<f64> = sizes(panel).into_iter().filter_map(least_lead).collect();
    let best = leads.iter().filter(|lead| **lead >= 0.0).count();
    let share = 100.0 * best as f64 / leads.len() as f64;
    (!leads.is_empty()).then(|| Observation::of(share, format!("{best} of {} sizes", leads.len())))
}

/// A finding for each panel of a task and metric that measured it, except on long texts.
pub(super) fn of_panels(
    evidence: &Evidence<'_>,
    (task, metric): (&str, &str),
    measure: impl Fn(&Panel) -> Option<Observation>,
) -> Vec<Finding> {
    let panels = evidence.panels_of(task, metric, &|_| true);
    let found = panels.iter().zip(titles(&panels)).filter(|(panel, _)| !evidence.is_long(&panel.key));
    found.filter_map(|(panel, title)| Some((title, measure(panel)?))).collect()
}

impl Observation {
    fn of(value: f64, at: String) -> Self {
        Self { estimate: Estimate { value, interval: None }, at }
    }
}

/// The paper's LLaMA-2 needs less for SQuALITY than its other models.
pub(super) fn is_llama_2(key: &SeriesKey) -> bool {
    let name = key.model.to_lowercase();
    name.contains("llama-2") || name.contains("llama2")
}

/// The running averages of a key, by tokens read, from the end of a usual text on.
pub(super) type Running<'a> = [(u64, &'a Panel)];

pub(super) fn of_long_texts(
    evidence: &Evidence<'_>,
    measure: fn(&Running<'_>) -> Option<Observation>,
) -> Vec<Finding> {
    let running = evidence.results.panels.iter().filter(|panel| panel.metric.id == "nll").filter_map(|panel| {
        let end = panel.slice.as_deref()?.strip_prefix(RUNNING)?.strip_prefix(':')?.parse::<u64>().ok()?;
        (end >= u64::from(numbers::LENGTH)).then_some((end, panel))
    });
    // Panels are ordered by key, then by the number in their slice.
    let running: Vec<(u64, &Panel)> = running.collect();
    let keys: Vec<SeriesKey> = running.iter().map(|(_, panel)| panel.key.clone()).collect();
    let of_one = running.chunk_by(|a, b| a.1.key == b.1.key);
    of_one.filter_map(|running| Some((running[0].1.key.title(&keys), measure(running)?))).collect()
}

/// The first of a policy's names that was measured, at the paper's size or the largest.
fn run_as<'a>(running: &Running<'a>, names: [&str; 3]) -> Option<(&'a str, u32)> {
    let (_, panel) = running.last()?;
    let of = |name: &str| panel.points.iter().filter(|point| point.policy == name).collect::<Vec<_>>();
    let points = names.into_iter().map(of).find(|points| !points.is_empty())?;
    let usual = points.iter().find(|point| point.cache_size == Some(numbers::LENGTH / 8));
    let point = usual.or(points.last())?;
    Some((point.policy.as_str(), point.cache_size?))
}

const LONG_TOVA: [&str; 3] = ["tova@squeezed", "tova@slot", "tova"];
const LONG_WINDOW: [&str; 3] = ["window+4@slot", "window+4@squeezed", "window+4"];

/// The highest running average minus that of a text of usual length.
pub(super) fn rise(running: &Running<'_>) -> Option<Observation> {
    let (policy, size) = run_as(running, LONG_TOVA)?;
    let values: Vec<(u64, f64)> =
        running.iter().filter_map(|(end, panel)| Some((*end, value_at(panel, policy, size)?))).collect();
    let [(start, first), later @ ..] = &values[..] else { return None };
    let (end, highest) = later.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Observation::of(highest - first, format!("{}, from {start} to {end} tokens", place(policy, size))))
}

/// The least by which TOVA's running average is below Window+4's.
pub(super) fn least_lead(running: &Running<'_>) -> Option<Observation> {
    let (own, size) = run_as(running, LONG_TOVA)?;
    let (other, other_size) = run_as(running, LONG_WINDOW)?;
    least(running.iter().filter_map(|(end, panel)| {
        let value = value_at(panel, other, other_size)? - value_at(panel, own, size)?;
        let at = format!("{} against {other} after {end} tokens", place(own, size));
        Some(Observation::of(value, at))
    }))
}

/// Wins minus losses at a quarter of the length, in percent of the pairs.
pub(super) fn preference(evidence: &Evidence<'_>) -> Vec<Finding> {
    let losses = evidence.panels_of("judge", "judge_loss", &|policy| policy == TOVA);
    of_panels(evidence, ("judge", "judge_win"), |wins| {
        let size = wins.key.length / 4;
        let lost = losses.iter().find(|panel| panel.key == wins.key)?;
        let value = value_at(wins, TOVA, size)? - value_at(lost, TOVA, size)?;
        Some(Observation::of(value, place(TOVA, size)))
    })
}

/// How much longer stories are at a quarter of the length, in percent of the full cache's.
pub(super) fn story_length(evidence: &Evidence<'_>) -> Vec<Finding> {
    of_panels(evidence, ("story", "new_tokens"), |panel| {
        let size = panel.key.length / 4;
        let full = panel.full()?.estimate.value;
        let difference = panel.point(TOVA, Some(size))?.to_full?;
        let estimate = scaled(difference, |tokens| 100.0 * tokens / full);
        Some(Observation { estimate, at: place(TOVA, size) })
    })
}

pub(super) fn timed(
    evidence: &Evidence<'_>,
    choose: impl Fn((Option<f64>, Option<f64>)) -> Option<f64>,
) -> Vec<Finding> {
    let tables = throughput::tables(&evidence.results.series, &Paper);
    let keys: Vec<SeriesKey> = tables.iter().map(|table| table.key.clone()).collect();
    let found = tables.iter().filter_map(|table| {
        let size = table.key.length / 8;
        let value = choose(table.relative(TOVA, Some(size)))?;
        Some((table.key.title(&keys), Observation::of(value, place(TOVA, size))))
    });
    found.collect()
}

/// Mean steps a token is visible of a sample: the mean over t of min(t, k + 1).
pub(super) fn identity(length: u32, size: u32) -> f64 {
    let sum: u64 = (1..=u64::from(length)).map(|t| t.min(u64::from(size) + 1)).sum();
    sum as f64 / f64::from(length.max(1))
}

/// The largest distance of mean lifetimes from the counted mean.
pub(super) fn lifetimes(evidence: &Evidence<'_>) -> Vec<Finding> {
    of_panels(evidence, ("retention", "lifetime"), |panel| {
        let points = panel.points.iter().filter(|point| point.is_policy());
        let away = points.filter_map(|point| {
            let size = point.cache_size?;
            let value = (point.estimate.value - identity(panel.key.length, size)).abs();
            Some(Observation::of(value, place(&point.policy, size)))
        });
        away.max_by(|a, b| a.estimate.value.total_cmp(&b.estimate.value))
    })
}

/// The share of recent tokens at the size where it is farthest from the middle of the paper's range.
pub(super) fn recent(evidence: &Evidence<'_>) -> Vec<Finding> {
    let middle = (numbers::RECENT_SHARE.0 + numbers::RECENT_SHARE.1) / 2.0;
    of_panels(evidence, ("retention", "recent_share"), |panel| {
        let points = panel.points.iter().filter(|point| point.policy == TOVA);
        let away = |value: f64| (value - middle).abs();
        let point = points.max_by(|a, b| away(a.estimate.value).total_cmp(&away(b.estimate.value)))?;
        Some(Observation { estimate: point.estimate, at: place(TOVA, point.cache_size?) })
    })
}

/// The least share of a sample's steps at which its first token is there, in percent.
pub(super) fn first_token(evidence: &Evidence<'_>) -> Vec<Finding> {
    let found = evidence.kept().into_iter().filter_map(|section: &Section<'_>| {
        let share = |steps: f64| 100.0 * steps / f64::from(section.key().length.max(1));
        let sizes = section.sizes_of(TOVA).into_iter().filter_map(|size| {
            let steps = section.steps("position:0", TOVA, size)?;
            Some(Observation { estimate: scaled(steps, share), at: place(TOVA, size) })
        });
        Some((section.title().to_owned(), least(sizes)?))
    });
    found.collect()
}

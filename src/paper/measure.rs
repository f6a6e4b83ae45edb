//! How the paper's claims are measured: gaps to the full cache, leads over other policies, rises over long texts.
//!
//! Losses and leads are positive where the sentence of the claim says "worse" and "better", whichever way a metric improves.
//! The paper's own numbers are measured by the same functions.

use super::claim::{Finding, Observation};
use super::published::Paper;
use super::said::{amount, hundredths, interval, percent, signed_interval, with, worse};
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
    let difference = panel.point(policy, Some(size))?.to_full.as_ref()?.shown;
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

fn least(measured: impl Iterator<Item = Observation>) -> Option<Observation> {
    measured.min_by(|a, b| a.estimate.value.total_cmp(&b.estimate.value))
}

/// How much worse than full a policy is at a share of the length.
pub(super) fn gap(panel: &Panel, policy: &str, part: u32) -> Option<Observation> {
    let size = panel.key.length / part;
    let estimate = loss(panel, policy, size)?;
    let range = signed_interval(estimate, ["better", "worse"], hundredths);
    let said = format!("{} is {} than the full cache{range}", with(policy, size), worse(panel, estimate.value));
    Some(Observation { estimate, said })
}

/// The least by which a policy is better than any other at any size.
pub(super) fn smallest_lead(panel: &Panel, policy: &str, others: &[&str]) -> Option<Observation> {
    let pairs = sizes(panel).into_iter().flat_map(|size| others.iter().map(move |other| (size, *other)));
    least(pairs.filter_map(|(size, other)| {
        let lead = lead(panel, policy, other, size)?;
        let by = amount(panel, lead);
        let said = match lead {
            lead if lead > 0.0 => {
                format!(
                    "{policy} is better at every measured size; the nearest is {}, {by} worse",
                    with(other, size)
                )
            }
            lead if lead < 0.0 => format!("{} is {by} better than {policy}", with(other, size)),
            _ => format!("{} is as good as {policy}", with(other, size)),
        };
        Some(Observation::of(lead, said))
    }))
}

/// How near the nearest baseline comes to full with less than half of the length.
pub(super) fn nearest_baseline(panel: &Panel) -> Option<Observation> {
    let sizes = sizes(panel).into_iter().filter(|size| *size < panel.key.length / 2);
    let pairs = sizes.flat_map(|size| BASELINES.iter().map(move |baseline| (size, *baseline)));
    least(pairs.filter_map(|(size, baseline)| {
        let estimate = loss(panel, baseline, size)?;
        let range = signed_interval(estimate, ["better", "worse"], hundredths);
        let by = worse(panel, estimate.value);
        let said = format!("the nearest is {}, {by} than the full cache{range}", with(baseline, size));
        Some(Observation { estimate, said })
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
    let said = format!("{BEST_BASELINE} is the best of them at {best} of {} cache sizes", leads.len());
    (!leads.is_empty()).then(|| Observation::of(share, said))
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
    fn of(value: f64, said: String) -> Self {
        Self { estimate: Estimate { value, interval: None }, said }
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
fn run_as<'a>(running: &Running<'a>, names: &[&str]) -> Option<(&'a str, u32)> {
    let (_, panel) = running.last()?;
    let of = |name: &str| panel.points.iter().filter(|point| point.policy == name).collect::<Vec<_>>();
    let points = names.iter().map(|name| of(name)).find(|points| !points.is_empty())?;
    let usual = points.iter().find(|point| point.cache_size == Some(numbers::LENGTH / 8));
    let point = usual.or(points.last())?;
    Some((point.policy.as_str(), point.cache_size?))
}

/// The paper squeezes the positions of TOVA's keys (section 7.2); `tova@slot` is another policy.
const LONG_TOVA: [&str; 2] = ["tova@squeezed", TOVA];
/// The paper does not say where the keys of Window+4 stand.
const LONG_WINDOW: [&str; 3] = ["window+4@slot", "window+4@squeezed", "window+4"];

/// The highest running average minus that of a text of usual length.
pub(super) fn rise(running: &Running<'_>) -> Option<Observation> {
    let (policy, size) = run_as(running, &LONG_TOVA)?;
    let values: Vec<(u64, f64)> =
        running.iter().filter_map(|(end, panel)| Some((*end, value_at(panel, policy, size)?))).collect();
    let [(start, first), later @ ..] = &values[..] else { return None };
    let (end, highest) = later.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let rise = highest - first;
    let direction = if rise < 0.0 { "below" } else { "above" };
    let said = format!(
        "{} is highest after {end} tokens, {:.2} {direction} its perplexity after {start}",
        with(policy, size),
        rise.abs()
    );
    Some(Observation::of(rise, said))
}

/// The least by which TOVA's running average is below Window+4's.
pub(super) fn least_lead(running: &Running<'_>) -> Option<Observation> {
    let (own, size) = run_as(running, &LONG_TOVA)?;
    let (other, other_size) = run_as(running, &LONG_WINDOW)?;
    least(running.iter().filter_map(|(end, panel)| {
        let value = value_at(panel, other, other_size)? - value_at(panel, own, size)?;
        let said = format!(
            "{} is least ahead after {end} tokens, where it is {} than {}",
            with(own, size),
            worse(panel, -value),
            with(other, other_size)
        );
        Some(Observation::of(value, said))
    }))
}

/// Wins minus losses at a quarter of the length, in percent of the pairs.
pub(super) fn preference(evidence: &Evidence<'_>) -> Vec<Finding> {
    let losses = evidence.panels_of("judge", "judge_loss", &|policy| policy == TOVA);
    of_panels(evidence, ("judge", "judge_win"), |wins| {
        let size = wins.key.length / 4;
        let lost = losses.iter().find(|panel| panel.key == wins.key)?;
        let (won, lost) = (value_at(wins, TOVA, size)?, value_at(lost, TOVA, size)?);
        let said = format!(
            "the story of {} was preferred in {} of the pairs, the full cache's in {}",
            with(TOVA, size),
            percent(won),
            percent(lost)
        );
        Some(Observation::of(won - lost, said))
    })
}

/// How much longer stories are at a quarter of the length, in percent of the full cache's.
pub(super) fn story_length(evidence: &Evidence<'_>) -> Vec<Finding> {
    of_panels(evidence, ("story", "new_tokens"), |panel| {
        let size = panel.key.length / 4;
        let full = panel.full()?.estimate.value;
        let difference = panel.point(TOVA, Some(size))?.to_full.as_ref()?.shown;
        let estimate = scaled(difference, |tokens| 100.0 * tokens / full);
        let longer =
            |change: f64| format!("{} {}", percent(change.abs()), if change < 0.0 { "shorter" } else { "longer" });
        let range = signed_interval(estimate, ["shorter", "longer"], percent);
        let by = longer(estimate.value);
        let said = format!("stories of {} are {by} than the full cache's{range}", with(TOVA, size));
        Some(Observation { estimate, said })
    })
}

/// How many times as many tokens per second are decoded as with the full cache.
pub(super) fn speed(evidence: &Evidence<'_>) -> Vec<Finding> {
    timed(evidence, |(speed, _), place| {
        let speed = speed?;
        let said = format!("{place} decodes {speed:.2} times as many tokens per second as the full cache");
        Some(Observation::of(speed, said))
    })
}

/// The memory of a cache in percent of the full cache's.
pub(super) fn memory(evidence: &Evidence<'_>) -> Vec<Finding> {
    timed(evidence, |(_, memory), place| {
        let share = 100.0 * memory?;
        Some(Observation::of(share, format!("{place} takes {} of the full cache's memory", percent(share))))
    })
}

/// Speed and memory relative to the full cache, at an eighth of the length.
fn timed(
    evidence: &Evidence<'_>,
    observe: impl Fn((Option<f64>, Option<f64>), String) -> Option<Observation>,
) -> Vec<Finding> {
    let tables = throughput::tables(&evidence.results.series, &Paper);
    let keys: Vec<SeriesKey> = tables.iter().map(|table| table.key.clone()).collect();
    let found = tables.iter().filter_map(|table| {
        let size = table.key.length / 8;
        let observed = observe(table.relative(TOVA, Some(size)), with(TOVA, size))?;
        Some((table.key.title(&keys), observed))
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
            let said = format!("the farthest is {}, {value:.2} steps away", with(&point.policy, size));
            Some(Observation::of(value, said))
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
        let (estimate, place) = (point.estimate, with(TOVA, point.cache_size?));
        let said =
            format!("{place} is farthest from that: {}{}", percent(estimate.value), interval(estimate, percent));
        Some(Observation { estimate, said })
    })
}

/// The least share of a sample's steps at which its first token is there, in percent.
pub(super) fn first_token(evidence: &Evidence<'_>) -> Vec<Finding> {
    let found = evidence.kept().into_iter().filter_map(|section: &Section<'_>| {
        let share = |steps: f64| 100.0 * steps / f64::from(section.key().length.max(1));
        let sizes = section.sizes_of(TOVA).into_iter().filter_map(|size| {
            let steps = section.steps("position:0", TOVA, size)?;
            let estimate = scaled(steps, share);
            let range = interval(estimate, percent);
            let said = format!(
                "{} keeps it least, for {} of the steps{range}",
                with(TOVA, size),
                percent(estimate.value)
            );
            Some(Observation { estimate, said })
        });
        Some((section.title().to_owned(), least(sizes)?))
    });
    found.collect()
}

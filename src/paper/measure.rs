//! Measures of the paper's claims about single numbers: costs against the full cache, stories, speed, what is kept.
//!
//! Costs are positive where a policy is worse, whichever way a metric improves. The paper's own numbers are measured by the
//! same functions.

use super::claim::{Finding, Limit, Observation, Verdict};
use super::pairwise::{BASELINES, natural};
use super::wording::{apart, hundredths, interval, percent, with};
use super::{Evidence, TOVA, titles};
use crate::ledger::{IDENTICAL, Settings};
use crate::metric::{Better, Slice};
use crate::report::sections::kept::Kept;
use crate::report::sections::speed as timing;
use crate::report::series::cell_of;
use crate::report::{Difference, Estimate, Interval, Panel, SampleSum, SeriesKey, Size, difference, median};

/// The loss of a policy against the full cache.
fn cost(panel: &Panel, policy: &str, size: impl Into<Size>) -> Option<Difference> {
    Some(panel.point(policy, Some(size))?.to_full.as_ref()?.loss(panel.metric.better))
}

/// An estimate in another unit.
fn scaled(of: Estimate, unit: impl Fn(f64) -> f64) -> Estimate {
    let interval = of.interval.map(|interval| Interval { low: unit(interval.low), high: unit(interval.high) });
    Estimate { value: unit(of.value), interval }
}

/// Less than held, for a reason that is said.
fn undecided(observed: Observation, why: &str) -> Observation {
    let verdict = observed.verdict.max(Verdict::NotDecided);
    Observation { verdict, said: format!("{}{why}", observed.said), ..observed }
}

/// The samples of a metric in a panel's setting, of a policy at a size.
fn samples<'e>(
    evidence: &'e Evidence<'_>,
    panel: &Panel,
    metric: &'e str,
    place: (&'e str, Option<Size>),
) -> Vec<&'e SampleSum<'e>> {
    let cell = cell_of(&evidence.results.series, &panel.key, metric, place);
    cell.map_or_else(Vec::new, |cell| cell.samples.values().collect())
}

/// Turns what was observed of a policy into not decided where it evicted nothing: no sample has more tokens than its cache has entries.
/// Rows of no tokens do not say that.
fn where_evicted(
    evidence: &Evidence<'_>,
    panel: &Panel,
    (policy, size): (&str, u32),
    observed: Observation,
) -> Observation {
    let fits = |sum: &SampleSum<'_>| {
        let tokens = sum.row.prompt_tokens + sum.row.new_tokens;
        tokens > 0 && tokens <= size
    };
    let samples = samples(evidence, panel, &panel.metric.id, (policy, Some(size.into())));
    match !samples.is_empty() && samples.into_iter().all(fits) {
        true => undecided(observed, "; no sample was longer than the cache, so nothing was evicted"),
        false => observed,
    }
}

/// The loss of a policy against the full cache at a share of the length.
fn gap(panel: &Panel, policy: &str, part: u32, limit: Limit) -> Option<Observation> {
    let size = panel.key.length / part;
    let cost = cost(panel, policy, size)?;
    let words = if panel.metric.better == Better::Higher { ["above", "below"] } else { ["below", "above"] };
    let said = format!("{} is {} the full cache", with(policy, size), apart(&panel.metric, &cost, words));
    let observed = limit.observe(natural(&cost), said);
    Some(match panel.metric.guess.filter(|_| !panel.beats_guess()) {
        Some(guess) => undecided(observed, &format!(", which is not told apart from {}", guess.by)),
        None => observed,
    })
}

/// The loss of TOVA against the full cache at a share of the length, if it evicted anything there.
pub(super) fn near_full(evidence: &Evidence<'_>, panel: &Panel, part: u32, limit: Limit) -> Option<Observation> {
    let observed = gap(panel, TOVA, part, limit)?;
    Some(where_evicted(evidence, panel, (TOVA, panel.key.length / part), observed))
}

/// The least loss of the baselines against the full cache at a share of the length.
pub(super) fn baselines(panel: &Panel, part: u32, limit: Limit) -> Option<Observation> {
    let size = panel.key.length / part;
    let nearest = limit.decisive(BASELINES.all().filter_map(|baseline| gap(panel, baseline, part, limit)))?;
    let (coverage, is_complete) =
        BASELINES.coverage(&[size.into()], |name, size| cost(panel, name, size).is_some());
    let verdict = if is_complete { nearest.verdict } else { nearest.verdict.max(Verdict::NotDecided) };
    let said = format!("nearest: {}; {coverage}", nearest.said);
    Some(Observation { verdict, said, ..nearest })
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

/// The paper's LLaMA-2 needs less for SQuALITY than its other models.
pub(super) fn is_llama_2(panel: &Panel) -> bool {
    let name = panel.key.model.to_lowercase();
    name.contains("llama-2") || name.contains("llama2")
}

/// Wins minus losses at a quarter of the length, in percent of the pairs.
pub(super) fn preference(evidence: &Evidence<'_>, limit: Limit) -> Vec<Finding> {
    let losses = evidence.panels_of("judge", LOSS, &|policy| policy == TOVA);
    of_panels(evidence, ("judge", WIN), |wins| {
        let size = wins.key.length / 4;
        let place = (TOVA, Some(size.into()));
        let sums = |metric| cell_of(&evidence.results.series, &wins.key, metric, place);
        let more = difference(&wins.metric, sums(WIN)?, sums(LOSS)?)?.shown;
        let lost = losses.iter().find(|panel| panel.key == wins.key)?;
        let [won, lost] = [wins, lost].map(|panel| Some(panel.point(TOVA, Some(size))?.estimate.value));
        let said = format!(
            "the story of {} was preferred in {} of the pairs, the full cache's in {}: {:+.1} points{}",
            with(TOVA, size),
            percent(won?),
            percent(lost?),
            more.value,
            interval(more, |points| format!("{points:+.1}"))
        );
        let ties = samples(evidence, wins, TIE, place);
        let is_identical = |sum: &&SampleSum<'_>| sum.row.output.as_deref() == Some(IDENTICAL);
        let observed = limit.observe(more, said);
        Some(match !ties.is_empty() && ties.iter().all(is_identical) {
            true => undecided(observed, "; all pairs are of identical stories, and none was judged"),
            false => observed,
        })
    })
}

const WIN: &str = "judge_win";
const TIE: &str = "judge_tie";
const LOSS: &str = "judge_loss";

/// Whether at least half of the texts of a cache ended at `max_new_tokens`, so that not even their median length is known.
fn is_cut_short(evidence: &Evidence<'_>, panel: &Panel, place: (&str, Option<Size>)) -> bool {
    let most =
        Settings::from(&*panel.key.generation).get("max_new_tokens").and_then(|most| most.parse::<f64>().ok());
    let samples = samples(evidence, panel, &panel.metric.id, place);
    let cut = |most: f64| samples.iter().filter(|sum| sum.sums.values[0] >= most * sum.sums.weight).count();
    most.is_some_and(|most| !samples.is_empty() && 2 * cut(most) >= samples.len())
}

/// The extra length of stories at a quarter of the length, in percent of the full cache's.
pub(super) fn story_length(evidence: &Evidence<'_>, limit: Limit) -> Vec<Finding> {
    of_panels(evidence, ("story", "new_tokens"), |panel| {
        let size = panel.key.length / 4;
        let full = panel.full()?.estimate.value;
        let difference = panel.point(TOVA, Some(size))?.to_full.as_ref()?.shown;
        let estimate = scaled(difference, |tokens| 100.0 * tokens / full);
        let (longer, word) = match estimate.value < 0.0 {
            true => (estimate.turned(), "shorter"),
            false => (estimate, "longer"),
        };
        let range = interval(longer, percent);
        let by = percent(longer.value);
        let said = format!("stories of {} are {by}{range} {word} than the full cache's", with(TOVA, size));
        let observed = where_evicted(evidence, panel, (TOVA, size), limit.observe(estimate, said));
        let both = [("full", None), (TOVA, Some(size.into()))];
        let is_cut = both.into_iter().any(|place| is_cut_short(evidence, panel, place));
        // A difference that shows all the same is one.
        Some(match is_cut && observed.verdict == Verdict::Held {
            true => undecided(observed, "; half of them or more ended at `max_new_tokens`"),
            false => observed,
        })
    })
}

/// The tokens per second with TOVA's cache of an eighth of the length, those with the full cache being 1; the
/// interval is the range of the repeats.
pub(super) fn speed(evidence: &Evidence<'_>, limit: Limit) -> Vec<Finding> {
    let timed = timing::all(&evidence.results.series);
    let keys: Vec<SeriesKey> = timed.iter().map(|table| table.key.clone()).collect();
    let found = timed.iter().filter_map(|table| {
        let size = table.key.length / 8;
        let repeats = |policy: &str, size| table.line(policy, size)?.sorted("decode_batch");
        let (own, full) = (repeats(TOVA, Some(size.into()))?, repeats("full", None)?);
        // Each is ascending.
        let interval = match (own, full) {
            ([fastest, .., slowest], [full_fastest, .., full_slowest]) => {
                Some(Interval { low: full_fastest / slowest, high: full_slowest / fastest })
            }
            _ => None,
        };
        let estimate = Estimate { value: median(full) / median(own), interval };
        let said = format!(
            "{} decodes {:.2}{} times as many tokens per second as the full cache",
            with(TOVA, size),
            estimate.value,
            self::interval(estimate, hundredths)
        );
        Some((table.key.title(&keys), limit.observe(estimate, said)))
    });
    found.collect()
}

/// The share of recent tokens, in percent.
pub(super) fn recent(evidence: &Evidence<'_>, limit: Limit) -> Vec<Finding> {
    of_panels(evidence, ("retention", "recent_share"), |panel| {
        let points = panel.points.iter().filter(|point| point.policy == TOVA);
        limit.decisive(points.filter_map(|point| {
            let (estimate, place) = (point.estimate, with(TOVA, point.cache_size?));
            let range = interval(estimate, percent);
            let said = format!("nearest to the limit is {place}: {}{range}", percent(estimate.value));
            Some(limit.observe(estimate, said))
        }))
    })
}

/// The share of a sample's steps at which its first token is there, in percent.
pub(super) fn first_token(evidence: &Evidence<'_>, limit: Limit) -> Vec<Finding> {
    let found = evidence.kept().into_iter().filter_map(|section: &Kept<'_>| {
        let share = |steps: f64| 100.0 * steps / f64::from(section.key.length.max(1));
        let sizes = section.sizes_of(TOVA).into_iter().filter_map(|size| {
            let estimate = scaled(section.steps(Some(&Slice::number("position", 0)), TOVA, size)?, share);
            let (kept, range) = (percent(estimate.value), interval(estimate, percent));
            let said = format!("{} keeps it least, for {kept}{range} of the steps", with(TOVA, size));
            Some(limit.observe(estimate, said))
        });
        Some((section.title.clone(), limit.decisive(sizes)?))
    });
    found.collect()
}

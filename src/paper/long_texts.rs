//! Claims about texts far longer than the model was trained on, by the averages over all tokens read so far (Figure 7).
//!
//! Averages at two places of a text, or of two policies, are compared over the samples that both have.

use super::claim::{Finding, Limit, Observation, Verdict};
use super::pairwise::natural;
use super::wording::{apart, with};
use super::{Evidence, TOVA, numbers};
use crate::metric::Metric;
use crate::report::{PolicyAtSize, Running, SeriesKey, Size, difference, has_verdicts, running};

/// The averages of a key, from the end of a usual text on.
pub(super) type LongText<'a> = [Running<'a>];

const METRIC: &str = "nll";
/// The paper squeezes the positions of TOVA's keys (section 7.2); `tova@slot` is another policy.
const LONG_TOVA: [&str; 2] = ["tova@squeezed", TOVA];
/// The paper does not say where the keys of Window+4 stand.
const LONG_WINDOW: [&str; 3] = ["window+4@slot", "window+4@squeezed", "window+4"];

pub(super) fn of_long_texts(
    evidence: &Evidence<'_>,
    measure: impl Fn(&LongText<'_>) -> Option<Observation>,
) -> Vec<Finding> {
    let mut all = running(&evidence.results.series);
    all.retain(|running| running.metric == METRIC && running.end >= u64::from(numbers::LENGTH));
    let keys: Vec<SeriesKey> = all.iter().map(|running| running.key.clone()).collect();
    let texts = all.chunk_by(|a, b| a.key == b.key);
    texts.filter_map(|text| Some((text[0].key.title(&keys), measure(text)?))).collect()
}

/// The places where the first of a policy's names was measured.
fn run_as<'a>(text: &LongText<'a>, names: &[&str]) -> Vec<PolicyAtSize<'a>> {
    let Some(last) = text.last() else { return Vec::new() };
    let of = |name: &&str| last.series.keys().filter(|(policy, _)| policy == name).cloned().collect::<Vec<_>>();
    names.iter().map(of).find(|places| !places.is_empty()).unwrap_or_default()
}

/// The paper's size or the largest.
fn usual(places: Vec<PolicyAtSize<'_>>) -> Option<PolicyAtSize<'_>> {
    let is_usual = |size: Option<Size>| size == Some(Size::Entries(numbers::LENGTH / 8));
    places.into_iter().max_by_key(|(_, size)| (is_usual(*size), *size))
}

fn named((policy, size): &PolicyAtSize<'_>) -> Option<String> {
    Some(with(policy, (*size)?))
}

/// The average after each later place minus that of a text of usual length.
pub(super) fn rise(text: &LongText<'_>, limit: Limit) -> Option<Observation> {
    let metric = Metric::of(METRIC);
    let place = usual(run_as(text, &LONG_TOVA))?;
    let name = named(&place)?;
    let [first, later @ ..] = text else { return None };
    limit.decisive(later.iter().filter_map(|later| {
        let rise = difference(&metric, later.series.get(&place)?, first.series.get(&place)?)?;
        let said = format!(
            "the average of {name} after {} tokens is {} that after {}",
            later.end,
            apart(&metric, &rise, ["below", "above"]),
            first.end
        );
        Some(limit.observe(natural(&rise), said))
    }))
}

/// The gain of TOVA's average over Window+4's of the same size, at each place. Policies are told apart from 6 clusters on.
pub(super) fn least_gain(text: &LongText<'_>, limit: Limit) -> Option<Observation> {
    let metric = Metric::of(METRIC);
    let others = run_as(text, &LONG_WINDOW);
    let mut of_both = run_as(text, &LONG_TOVA);
    of_both.retain(|(_, size)| others.iter().any(|(_, other)| other == size));
    let own = usual(of_both)?;
    let other = others.into_iter().find(|(_, size)| *size == own.1)?;
    let (own_name, other_name) = (named(&own)?, named(&other)?);
    limit.decisive(text.iter().filter_map(|running| {
        let gain = difference(&metric, running.series.get(&other)?, running.series.get(&own)?)?;
        let by = apart(&metric, &gain, ["better", "worse"]);
        let said =
            format!("after {} tokens the average of {other_name} is {by} than that of {own_name}", running.end);
        let observed = limit.observe(natural(&gain), said);
        let verdict = if has_verdicts(gain.clusters) { observed.verdict } else { Verdict::NotDecided };
        Some(Observation { verdict, ..observed })
    }))
}

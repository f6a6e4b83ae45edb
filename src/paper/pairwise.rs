//! Claims that one policy is better than others, by the pairs of a panel: they say what the table of pairs says.
//!
//! A claim names what the policy is compared with. Where one of those was not measured, nothing is held.

use super::claim::{Limit, Observation, Verdict};
use super::wording::{apart, listed, with};
use crate::report::{Difference, Estimate, Outcome, Pair, Panel, Size};

/// The policies that a policy is compared with.
pub(super) struct Others {
    /// Policies that the claim names.
    named: &'static [&'static str],
    /// Variants of these, which count where they were measured.
    variants: &'static [&'static str],
}

/// Figure 3's baselines; Table 3 has the variants.
pub(super) const BASELINES: Others =
    Others { named: &["truncate", "window", "window+4", "h2o"], variants: &["window+1", "h2o-layer"] };
/// The baselines of Figures 4 and 5.
pub(super) const BASELINES_OF_QUESTIONS: Others = Others { named: &["truncate", "window+4"], variants: &[] };
pub(super) const BY_HEAD: Others = Others { named: &["tova-head"], variants: &[] };

/// The estimate that decides a comparison of two numbers: nats of a perplexity.
pub(super) fn natural(difference: &Difference) -> Estimate {
    difference.nats.unwrap_or(difference.shown)
}

impl Others {
    pub(super) fn all(&self) -> impl Iterator<Item = &'static str> {
        self.named.iter().chain(self.variants).copied()
    }

    /// Says which of them were measured and which that the claim names were not, with their sizes where these are not
    /// all; and whether none is missing.
    pub(super) fn coverage(&self, sizes: &[Size], has: impl Fn(&str, Size) -> bool) -> (String, bool) {
        let at = |name: &str, wanted: bool| -> Option<String> {
            let found: Vec<Size> = sizes.iter().copied().filter(|size| has(name, *size) == wanted).collect();
            match found.len() {
                0 => None,
                all if all == sizes.len() => Some(name.to_owned()),
                _ => Some(format!("{name} at {}", numbers(&found))),
            }
        };
        let measured: Vec<String> = self.all().filter_map(|name| at(name, true)).collect();
        let missing: Vec<String> = self.named.iter().filter_map(|name| at(name, false)).collect();
        let mut said = format!("compared: {}, at {}", listed(&measured), numbers(sizes));
        if !missing.is_empty() {
            said += &format!("; not measured: {}", listed(&missing));
        }
        (said, missing.is_empty())
    }
}

fn numbers(sizes: &[Size]) -> String {
    listed(&sizes.iter().map(Size::to_string).collect::<Vec<_>>())
}

/// Whether a policy is better than others at every size that evicts.
pub(super) fn better_than(panel: &Panel, policy: &str, others: &Others) -> Option<Observation> {
    let mut sizes = panel.sizes();
    sizes.retain(|size| size.is_below(panel.key.length));
    let of_size =
        |size: &Size| others.all().filter_map(|other| panel.pair(policy, other, *size)).collect::<Vec<_>>();
    let pairs: Vec<Pair> = sizes.iter().flat_map(of_size).collect();
    let has = |name: &str, size: Size| pairs.iter().any(|pair| pair.against == name && pair.cache_size == size);
    let (coverage, is_complete) = others.coverage(&sizes, has);
    let outcome = |pair: &Pair| pair.outcome(panel.metric.better);
    // By how much it is better.
    let gain = |pair: &Pair| pair.difference.loss(panel.metric.better).turned();
    // Better only where the test among all pairs and the pair's own interval say so.
    let verdict = |pair: &Pair| match outcome(pair) {
        Outcome::Worse => Verdict::NotHeld,
        Outcome::Better => Limit::Above(0.0).verdict(&natural(&gain(pair))).min(Verdict::NotDecided),
        Outcome::Equal | Outcome::NoClearDifference => Verdict::NotDecided,
    };
    // The least favourable of those that decide.
    let value = |pair: &Pair| natural(&gain(pair)).value;
    let decisive = pairs.iter().min_by(|a, b| verdict(b).cmp(&verdict(a)).then(value(a).total_cmp(&value(b))))?;
    let count = |wanted: Outcome| pairs.iter().filter(|pair| outcome(pair) == wanted).count();
    let equal = match count(Outcome::Equal) {
        0 => String::new(),
        equal => format!(", equal in {equal}"),
    };
    let of_these = if verdict(decisive) == Verdict::NotDecided { " of these" } else { "" };
    let said = format!(
        "{policy} is better in {} of {} comparisons, worse in {}{equal}, not told apart in {}; the least \
         favourable{of_these}: {} is {} than {policy}; {coverage}",
        count(Outcome::Better),
        pairs.len(),
        count(Outcome::Worse),
        count(Outcome::NoClearDifference),
        with(&decisive.against, decisive.cache_size),
        apart(&panel.metric, &gain(decisive), ["better", "worse"]),
    );
    let least = if is_complete { Verdict::Held } else { Verdict::NotDecided };
    Some(Observation { estimate: natural(&gain(decisive)), verdict: verdict(decisive).max(least), said })
}

//! Claims that one policy is better than others, by the pairs of a panel: they say what the table of pairs says.
//!
//! A claim names what the policy is compared with. Where one of those was not measured, nothing is held.

use super::claim::{Limit, Observation, Verdict};
use super::wording::{apart, listed, with};
use crate::report::{Difference, Estimate, Outcome, Pair, Panel, Size};

/// What a policy is compared with.
pub(super) struct Others {
    /// Those that the claim names.
    named: &'static [&'static str],
    /// Variants of these, which count where they were measured.
    variants: &'static [&'static str],
}

/// Figure 3's baselines; Table 3 has the variants.
pub(super) const BASELINES: Others =
    Others { named: &["truncate", "window", "window+4", "h2o"], variants: &["window+1", "h2o-layer"] };
/// Those of Figures 4 and 5.
pub(super) const BASELINES_OF_QUESTIONS: Others = Others { named: &["truncate", "window+4"], variants: &[] };
pub(super) const BY_HEAD: Others = Others { named: &["tova-head"], variants: &[] };

/// A policy against another at a size.
struct Lead {
    against: &'static str,
    size: Size,
    outcome: Outcome,
    /// By how much it is better.
    difference: Difference,
}

/// The sizes that evict, ascending.
fn sizes(panel: &Panel) -> Vec<Size> {
    panel.sizes().into_iter().filter(|size| size.is_below(panel.key.length)).collect()
}

/// What decides a comparison of two numbers: nats of a perplexity.
pub(super) fn natural(difference: &Difference) -> Estimate {
    difference.nats.unwrap_or(difference.shown)
}

fn lead(panel: &Panel, policy: &str, against: &'static str, size: Size) -> Option<Lead> {
    let of_both = |pair: &&Pair| {
        let names = (pair.policy.as_str(), pair.against.as_str());
        pair.cache_size == size && (names == (policy, against) || names == (against, policy))
    };
    let found = panel.pairs.iter().find(of_both)?;
    let pair = if found.policy == policy { found.clone() } else { found.turned() };
    let better = panel.metric.better;
    Some(Lead { against, size, outcome: pair.outcome(better), difference: pair.difference.loss(better).turned() })
}

impl Lead {
    /// Better only where the test among all pairs and the pair's own interval say so.
    fn verdict(&self) -> Verdict {
        match self.outcome {
            Outcome::Worse => Verdict::NotHeld,
            Outcome::Better => Limit::Above(0.0).verdict(&natural(&self.difference)).min(Verdict::NotDecided),
            Outcome::Equal | Outcome::NoClearDifference => Verdict::NotDecided,
        }
    }
}

impl Others {
    pub(super) fn all(&self) -> impl Iterator<Item = &'static str> {
        self.named.iter().chain(self.variants).copied()
    }

    /// Which of them were measured and which of those that the claim names were not, with their sizes where these are not
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

/// A policy against each of the others at each size that has both.
fn all_leads(panel: &Panel, policy: &str, others: &Others) -> Vec<Lead> {
    let of_size = |size: Size| others.all().filter_map(move |other| lead(panel, policy, other, size));
    sizes(panel).into_iter().flat_map(of_size).collect()
}

fn has(leads: &[Lead], name: &str, size: Size) -> bool {
    leads.iter().any(|lead| lead.against == name && lead.size == size)
}

/// Whether a policy is better than others at every size.
pub(super) fn leads(panel: &Panel, policy: &str, others: &Others) -> Option<Observation> {
    let leads = all_leads(panel, policy, others);
    let (coverage, is_complete) = others.coverage(&sizes(panel), |name, size| has(&leads, name, size));
    let value = |lead: &Lead| natural(&lead.difference).value;
    // The least favourable of those that decide.
    let decisive =
        leads.iter().min_by(|a, b| b.verdict().cmp(&a.verdict()).then(value(a).total_cmp(&value(b))))?;
    let count = |wanted: Outcome| leads.iter().filter(|lead| lead.outcome == wanted).count();
    let equal = match count(Outcome::Equal) {
        0 => String::new(),
        equal => format!(", equal in {equal}"),
    };
    let of_these = if decisive.verdict() == Verdict::NotDecided { " of these" } else { "" };
    let said = format!(
        "{policy} is better in {} of {} comparisons, worse in {}{equal}, not told apart in {}; the least \
         favourable{of_these}: {} is {} than {policy}; {coverage}",
        count(Outcome::Better),
        leads.len(),
        count(Outcome::Worse),
        count(Outcome::NoClearDifference),
        with(decisive.against, decisive.size),
        apart(&panel.metric, &decisive.difference, ["better", "worse"]),
    );
    let verdict = if is_complete { decisive.verdict() } else { decisive.verdict().max(Verdict::NotDecided) };
    Some(Observation { estimate: natural(&decisive.difference), verdict, said })
}

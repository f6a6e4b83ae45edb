//! Every metric the program knows, one line each, in the order of reports.
//!
//! A line says what a metric is called, which way is better, how its sums pool and what a guess would reach. Reports and
//! comparisons ask this table and treat no metric by its name. It knows nothing of rows, policies or how a metric is computed.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::format::plain;

/// Direction in which a metric improves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
    /// Neither way is better, or this version does not know the metric.
    #[default]
    Unknown,
}

/// Function that makes the shown number from the pooled `sum(value) / sum(weight)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The exponential of a mean negative log-likelihood.
    Perplexity,
    /// The mean itself.
    #[default]
    Mean,
    /// Mean seconds per item, shown as items per second.
    Rate,
    /// A share of one, shown in percent.
    Share,
    /// The geometric mean of three shares, see [`GEOMETRIC_MEANS`], in percent.
    GeometricShare,
}

/// Property that sets a metric apart from a result that the same engine on the same machine repeats bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// The value depends on the device and its load: seconds, resident memory.
    Clock,
    /// The value depends on the device's memory, by counting: a batch that fits.
    Memory,
    /// The value depends on a judge, which is another program.
    Judge,
    /// Subtracting the full cache's value means nothing: the metric compares with the full cache itself.
    NoDifference,
    /// Policies weigh a sample differently: texts that differ have lengths that differ.
    VaryingWeights,
    /// Weights do not count anything that a reader would count.
    Uncountable,
    /// The metric only adds detail to another: a table, but no figure.
    Detail,
    /// The value is what a guess would reach; it is shown with the metric it belongs to.
    Guess,
    /// The value is a table for each sample, carried as text; it is not a number.
    SampleTable,
}

/// Value that a guess or a trivial answer would reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Guess {
    /// Metric whose rows hold the guess.
    pub metric: &'static str,
    /// Words for who guesses, as in "a guess among the values named so far would reach".
    pub by: &'static str,
}

/// A metric and what reports need to know of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metric {
    /// Name in rows.
    pub id: Cow<'static, str>,
    /// Name in tables and on axes.
    pub label: Cow<'static, str>,
    pub better: Better,
    pub pooling: Pooling,
    pub guess: Option<Guess>,
    /// Ends of the value axis, for metrics whose differences must be seen on the whole scale.
    pub range: Option<(f64, f64)>,
    /// Beginning of figures' file names, if it is not the id.
    #[serde(borrow)]
    pub stem: Option<&'static str>,
    /// Unit that the likelihood of a perplexity is per, for metrics in which policies score the same tokens as the full cache.
    #[serde(borrow)]
    pub per: Option<&'static str>,
    properties: Vec<Property>,
}

/// All metrics but those of guesses, which are in [`Metric::guess`]: one a line of `metrics.json`, in the order of reports.
pub static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("metrics.json")).expect("the table has the form of metrics")
});

/// The metrics that are geometric means of three others, and those three; guesses are combined alike.
pub const GEOMETRIC_MEANS: [(&str, [&str; 3]); 2] = [
    ("rouge", ["rouge1", "rouge2", "rougeL"]),
    ("rouge_trivial", ["rouge1_trivial", "rouge2_trivial", "rougeL_trivial"]),
];

/// The metric of a sample that could not be measured; its text says why.
pub const NOT_MEASURED: &str = "not_measured";
/// The metric of a sample in which a formula gave no number for entries that could leave.
pub const NO_NUMBER: &str = "no_number";
/// The metric of a sample whose scored part repeats a run of its prompt word for word: the tokens that do, of all that are scored.
pub const REPEATS_PROMPT: &str = "repeats_prompt";
/// The metric of a task's first sample where books are too short for the samples asked for: how many, of all books. Its text names them.
pub const TOO_SHORT: &str = "too_short";
/// The metric of a sample whose share of the prompt is less than the policy protects, which it keeps all the same.
pub const SHARE_RAISED: &str = "share_raised";
/// The metric of a sample that has tables beside its rows; its text lists them with their SHA-256.
pub const SIDE_FILES: &str = "side_files";

impl Metric {
    /// Finds the metric of a name, if it is in the table.
    pub fn known(id: &str) -> Option<&'static Metric> {
        METRICS.iter().find(|metric| metric.id == id)
    }

    /// Finds the metric of a name. An unknown one is shown under its own name, without saying what is better.
    pub fn of(id: &str) -> Metric {
        let is_guess = || METRICS.iter().filter_map(|metric| metric.guess).any(|guess| guess.metric == id);
        Self::known(id).cloned().unwrap_or_else(|| Metric {
            id: Cow::Owned(id.to_owned()),
            label: Cow::Owned(plain(id)),
            properties: if is_guess() { vec![Property::Guess] } else { Vec::new() },
            ..Metric::default()
        })
    }

    /// Whether the metric has a property.
    pub fn has(&self, property: Property) -> bool {
        self.properties.contains(&property)
    }

    /// Whether the metric is a result of a policy, and neither a guess nor a table for each sample. Memory held was a metric in
    /// engine 6, and is a column since.
    pub fn is_result(&self) -> bool {
        !self.has(Property::Guess) && !self.has(Property::SampleTable) && self.id != "held_bytes"
    }

    /// Whether the metric depends on a device, so that numbers of two devices do not compare.
    pub fn is_timed(&self) -> bool {
        self.has(Property::Clock) || self.has(Property::Memory)
    }

    /// Place among the metrics of a report; unknown ones come last, by name.
    pub fn order(&self) -> (usize, &str) {
        let known = METRICS.iter().position(|metric| metric.id == self.id);
        (known.unwrap_or(METRICS.len()), &self.id)
    }

    /// Value that is shown, from the pooled metric and, for a geometric mean, the two parts pooled beside it.
    pub fn of_pooled(&self, [pooled, second, third]: [f64; 3]) -> f64 {
        match self.pooling {
            // No probability is infinite, and a perplexity of 0 would look like the best of all.
            Pooling::Perplexity if pooled == f64::NEG_INFINITY => f64::NAN,
            Pooling::Perplexity => pooled.exp(),
            Pooling::Mean => pooled,
            Pooling::Rate => 1.0 / pooled,
            Pooling::Share => 100.0 * pooled,
            Pooling::GeometricShare => 100.0 * (pooled * second * third).cbrt(),
        }
    }

    /// Metric for how far a perplexity is above the full cache's, in nats.
    pub fn excess(&self) -> Option<Metric> {
        let label = format!("excess over full (nats/{})", self.per?);
        Some(Metric { id: self.id.clone(), label: label.into(), better: Better::Lower, ..Metric::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_unique_and_means_have_parts() {
        for (i, metric) in METRICS.iter().enumerate() {
            assert_eq!(Metric::of(&metric.id), *metric);
            assert_eq!(metric.order().0, i, "{} is listed twice", metric.id);
            let has_parts = GEOMETRIC_MEANS.iter().any(|(mean, _)| metric.id == *mean);
            assert_eq!(metric.pooling == Pooling::GeometricShare, has_parts, "{}", metric.id);
            assert!(METRICS[..i].iter().all(|other| other.label != metric.label), "{}", metric.label);
        }
    }

    #[test]
    fn guesses_and_tables_are_no_results_and_unknown_metrics_keep_their_names() {
        let found = ["recall", "recall_chance", "kept_until", "bleu"].map(Metric::of);
        assert_eq!(found.each_ref().map(Metric::is_result), [true, false, false, true]);
        let [.., bleu] = found;
        assert_eq!((&*bleu.label, bleu.better), ("bleu", Better::Unknown));
        assert!(bleu.order() > METRICS[METRICS.len() - 1].order());
    }

    #[test]
    fn sums_pool_by_the_kind_of_metric() {
        let pooled = |id: &str, parts: [f64; 3]| Metric::of(id).of_pooled(parts);
        assert_eq!(pooled("decode", [0.25, 0.0, 0.0]), 4.0, "a quarter of a second each is four a second");
        assert_eq!(pooled("top1_agreement", [0.875, 0.0, 0.0]), 87.5);
        assert!((pooled("rouge", [0.722_222, 0.333_333, 0.722_222]) - 55.8136).abs() < 1e-3);
    }
}

//! Every metric the program knows, one line each, in the order of reports.
//!
//! A line says what a metric is called, which way is better, how its sums pool and what a guess would reach. Reports and
//! comparisons ask this table and treat no metric by its name. It knows nothing of rows, policies or how a metric is computed.

use std::borrow::Cow;

use serde::Serialize;

use crate::format::plain;

/// Which way a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
    /// Neither way is better, or this version does not know the metric.
    Unknown,
}

/// How pooled `sum(value) / sum(weight)` becomes the number that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The exponential of a mean negative log-likelihood.
    Perplexity,
    /// The mean itself.
    Mean,
    /// Mean seconds per item, shown as items per second.
    Rate,
    /// A share of one, shown in percent.
    Share,
    /// The geometric mean of three shares, see [`GEOMETRIC_MEANS`], in percent.
    GeometricShare,
}

/// What sets a metric apart from a result that the same engine on the same machine repeats bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// It depends on the device and its load: seconds, resident memory.
    Clock,
    /// It depends on the device's memory, by counting: a batch that fits.
    Memory,
    /// It depends on a judge, which is another program.
    Judge,
    /// Subtracting the full cache's value means nothing: the metric compares with the full cache itself.
    NoDifference,
    /// Policies weigh a sample differently: texts that differ have lengths that differ.
    VaryingWeights,
    /// Weights count nothing that a reader would count.
    Uncountable,
    /// It only adds detail to another metric: a table, no figure.
    Detail,
    /// What a guess would reach, which is shown with the metric it belongs to.
    Guess,
    /// A table for each sample, carried as text. It is no number.
    SampleTable,
}

/// What a guess or a trivial answer would reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The metric whose rows hold it.
    pub metric: &'static str,
    /// Who guesses, as in "a guess among the values named so far would reach".
    pub by: &'static str,
}

/// One metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The name in rows.
    pub id: Cow<'static, str>,
    /// The name in tables and on axes.
    pub label: Cow<'static, str>,
    pub better: Better,
    pub pooling: Pooling,
    pub guess: Option<Guess>,
    /// The ends of the value axis, where differences must be seen on the whole scale.
    pub range: Option<(f64, f64)>,
    /// The beginning of figures' file names, where it is not the id.
    pub stem: Option<&'static str>,
    /// What the likelihood of a perplexity is per, where policies score the same tokens as the full cache.
    pub per: Option<&'static str>,
    /// The title of its figures, with `{model}` and `{data}`, where `perplexity of {model} on {data}` would read oddly.
    pub title: Option<&'static str>,
    properties: &'static [Property],
}

use Better::{Higher, Lower, Unknown};
use Pooling::{GeometricShare, Mean, Perplexity, Rate, Share};
use Property::{Clock, Detail, Judge, Memory, NoDifference, SampleTable, Uncountable, VaryingWeights};

const BY_VALUES: &str = "a guess among the values named so far";
const BY_COMMONEST: &str = "the commonest answer";
const BY_CHOICES: &str = "a guess among the four choices";
const BY_FIRST_WORDS: &str = "the document's first words";

/// All metrics but those of guesses, which are in [`Metric::guess`].
pub static METRICS: &[Metric] = &[
    new("nll", "perplexity", Lower, Perplexity).stem("perplexity").per("token"),
    new("nll_word", "word-level perplexity", Lower, Perplexity).stem("word-perplexity").per("word"),
    new("kl_to_full", "KL to full (nats)", Lower, Mean)
        .with(&[NoDifference])
        .title("KL divergence from full, {model} on {data}"),
    new("top1_agreement", "top-1 agreement (%)", Higher, Share)
        .with(&[NoDifference])
        .title("top-1 agreement with full, {model} on {data}"),
    new("evicted_mass", "evicted attention (%)", Lower, Share)
        .with(&[NoDifference])
        .title("attention to evicted tokens, {model} on {data}"),
    new("recall", "recall (%)", Higher, Share)
        .guess("recall_chance", BY_VALUES)
        .range(0.0, 100.0)
        .title("recall of facts by {model} in {data}"),
    new("rouge", "ROUGE (geometric mean)", Higher, GeometricShare).guess("rouge_trivial", BY_FIRST_WORDS),
    new("f1", "F1 (%)", Higher, Share).guess("f1_trivial", BY_COMMONEST),
    new("longbench", "LongBench score (%)", Higher, Share)
        .guess("longbench_trivial", BY_COMMONEST)
        .title("LongBench score of {model} on {data}"),
    new("accuracy", "right choices (%)", Higher, Share)
        .guess("accuracy_chance", BY_CHOICES)
        .range(0.0, 100.0)
        .title("right choices of {model} in {data}"),
    new("accuracy_likelihood", "right choices by likelihood (%)", Higher, Share)
        .guess("accuracy_chance", BY_CHOICES)
        .range(0.0, 100.0)
        .title("right choices of {model} in {data}, by likelihood"),
    new("acc", "accuracy (%)", Higher, Share).title("accuracy of {model} in {data}"),
    new("acc_norm", "accuracy per character (%)", Higher, Share)
        .title("accuracy per character of {model} in {data}"),
    new("acc_bytes", "accuracy per byte (%)", Higher, Share).with(&[Detail]),
    new("f1_choice", "F1 of choices (%)", Higher, Share).with(&[VaryingWeights]).title("F1 of {model} in {data}"),
    new("target_perplexity", "perplexity of the target", Lower, Perplexity).stem("target-perplexity"),
    new("word_perplexity", "perplexity by words", Lower, Perplexity).stem("perplexity-by-words").per("word"),
    new("byte_perplexity", "perplexity by bytes", Lower, Perplexity).stem("perplexity-by-bytes").per("byte"),
    new("loglikelihood", "log-likelihood of the target (nats)", Higher, Mean).with(&[Detail]),
    new("bits_per_byte", "bits per byte", Lower, Mean).with(&[Detail]),
    new("found", "needles found (%)", Higher, Share).title("needles found by {model} in {data}"),
    new("pass_at_1", "pass@1 (%)", Higher, Share).title("problems solved by {model} in {data}"),
    new("ruler", "RULER score (%)", Higher, Share).title("RULER score of {model} on {data}"),
    new("exact_match", "exact match (%)", Higher, Share).with(&[Detail]),
    new("f1_ascii", "F1, ASCII (%)", Higher, Share).with(&[Detail]),
    new("rouge1", "ROUGE-1", Higher, Share).guess("rouge1_trivial", BY_FIRST_WORDS).with(&[Detail]),
    new("rouge2", "ROUGE-2", Higher, Share).guess("rouge2_trivial", BY_FIRST_WORDS).with(&[Detail]),
    new("rougeL", "ROUGE-L", Higher, Share).guess("rougeL_trivial", BY_FIRST_WORDS).with(&[Detail]),
    new("rouge_geo_instance", "ROUGE (geometric mean of each)", Higher, Share).with(&[Detail]),
    new("nll_written", "perplexity of what was written", Unknown, Perplexity)
        .with(&[VaryingWeights])
        .title("perplexity of what {model} wrote"),
    new("answer_nll", "perplexity of the answer", Lower, Perplexity)
        .stem("answer-perplexity")
        .title("perplexity of the reference answer, {model} on {data}"),
    new("new_tokens", "tokens written", Unknown, Mean).with(&[Detail]),
    new("answered", "answers in a box (%)", Higher, Share).with(&[Detail]),
    new("cut_off", "cut off at the limit (%)", Lower, Share).with(&[Detail]),
    new("held_bytes", "cache bytes after the prompt", Lower, Mean).with(&[VaryingWeights, Detail]),
    new("distinct_1", "distinct words (%)", Unknown, Share).with(&[Detail]),
    new("distinct_2", "distinct word pairs (%)", Unknown, Share).with(&[Detail]),
    new("distinct_3", "distinct word triples (%)", Unknown, Share).with(&[Detail]),
    new("repetition_4", "repeated word quadruples (%)", Lower, Share).with(&[Detail]),
    new("judge_win", "judged better than full (%)", Higher, Share)
        .with(&[Judge, NoDifference])
        .title("stories of {model} judged better than full's"),
    new("judge_tie", "judged equal to full (%)", Unknown, Share)
        .with(&[Judge, NoDifference])
        .title("stories of {model} judged equal to full's"),
    new("judge_loss", "judged worse than full (%)", Lower, Share)
        .with(&[Judge, NoDifference])
        .title("stories of {model} judged worse than full's"),
    new("judge_unreadable", "unreadable verdicts (%)", Lower, Share).with(&[Judge, NoDifference, Detail]),
    new("verdict", "preferred by place (%)", Unknown, Share).with(&[Judge, NoDifference, Detail]),
    new("decode_batch", "tokens/s in the largest batch", Higher, Rate)
        .with(&[Clock, VaryingWeights])
        .title("decoding speed of {model} in the largest batch"),
    new("decode", "tokens/s of one sequence", Higher, Rate)
        .with(&[Clock])
        .title("decoding speed of {model}, one sequence"),
    new("prefill", "prompt tokens/s", Higher, Rate).with(&[Clock]).title("prefill speed of {model}"),
    new("first_token", "seconds to the first token", Lower, Mean).with(&[Clock, Detail]),
    new("batch", "largest batch", Higher, Mean).with(&[Memory, Detail]),
    new("cache_bytes", "cache bytes of a sequence", Lower, Mean).with(&[Memory, Detail]),
    new("resident_bytes", "resident bytes of a sequence", Lower, Mean).with(&[Clock, VaryingWeights, Detail]),
    new("recent_share", "recent tokens among the kept (%)", Unknown, Share)
        .with(&[NoDifference, Uncountable])
        .title("recent tokens among those that {model} keeps on {data}"),
    // All policies have the same mean lifetime, by counting. Its slices differ and have a section of their own.
    new("lifetime", "steps a token is kept", Unknown, Mean).with(&[NoDifference, Detail]),
    new("kept_until", "kept_until", Unknown, Mean).with(&[SampleTable]),
    new("held_by_head", "held_by_head", Unknown, Mean).with(&[SampleTable]),
    new("lifetime_by_token", "lifetime_by_token", Unknown, Mean).with(&[SampleTable]),
];

/// The metrics that are geometric means of three others, and those three; guesses are combined alike.
pub const GEOMETRIC_MEANS: [(&str, [&str; 3]); 2] = [
    ("rouge", ["rouge1", "rouge2", "rougeL"]),
    ("rouge_trivial", ["rouge1_trivial", "rouge2_trivial", "rougeL_trivial"]),
];

const fn new(id: &'static str, label: &'static str, better: Better, pooling: Pooling) -> Metric {
    let (id, label) = (Cow::Borrowed(id), Cow::Borrowed(label));
    Metric {
        id,
        label,
        better,
        pooling,
        guess: None,
        range: None,
        stem: None,
        per: None,
        title: None,
        properties: &[],
    }
}

impl Metric {
    /// The metric of a name, if it is in the table.
    pub fn known(id: &str) -> Option<&'static Metric> {
        METRICS.iter().find(|metric| metric.id == id)
    }

    /// The metric of a name. An unknown one is shown under its own name, and without saying what is better.
    pub fn of(id: &str) -> Metric {
        let is_guess = || METRICS.iter().filter_map(|metric| metric.guess).any(|guess| guess.metric == id);
        Self::known(id).cloned().unwrap_or_else(|| Metric {
            id: Cow::Owned(id.to_owned()),
            label: Cow::Owned(plain(id)),
            properties: if is_guess() { &[Property::Guess] } else { &[] },
            ..new("", "", Unknown, Mean)
        })
    }

    /// Whether it has a property.
    pub fn has(&self, property: Property) -> bool {
        self.properties.contains(&property)
    }

    /// Whether it is a result of a policy: neither what a guess would reach nor a table for each sample.
    pub fn is_result(&self) -> bool {
        !self.has(Property::Guess) && !self.has(SampleTable)
    }

    /// Whether it is a property of a device, so that numbers of two devices do not compare.
    pub fn is_timed(&self) -> bool {
        self.has(Clock) || self.has(Memory)
    }

    /// The place among the metrics of a report; unknown ones come last, by name.
    pub fn order(&self) -> (usize, &str) {
        let known = METRICS.iter().position(|metric| metric.id == self.id);
        (known.unwrap_or(METRICS.len()), &self.id)
    }

    /// The value shown, from the pooled metric and, of a geometric mean, the two parts pooled beside it.
    pub fn of_pooled(&self, [pooled, second, third]: [f64; 3]) -> f64 {
        match self.pooling {
            // No probability is infinite, and a perplexity of 0 would look like the best of all.
            Perplexity if pooled == f64::NEG_INFINITY => f64::NAN,
            Perplexity => pooled.exp(),
            Mean => pooled,
            Rate => 1.0 / pooled,
            Share => 100.0 * pooled,
            GeometricShare => 100.0 * (pooled * second * third).cbrt(),
        }
    }

    /// How far a perplexity is above the full cache's, in nats, as a metric.
    pub fn excess(&self) -> Option<Metric> {
        let label = format!("excess over full (nats/{})", self.per?);
        Some(Metric { id: self.id.clone(), label: label.into(), ..new("", "", Lower, Mean) })
    }

    const fn guess(mut self, metric: &'static str, by: &'static str) -> Metric {
        self.guess = Some(Guess { metric, by });
        self
    }

    const fn range(mut self, low: f64, high: f64) -> Metric {
        self.range = Some((low, high));
        self
    }

    const fn stem(mut self, stem: &'static str) -> Metric {
        self.stem = Some(stem);
        self
    }

    const fn per(mut self, per: &'static str) -> Metric {
        self.per = Some(per);
        self
    }

    const fn title(mut self, title: &'static str) -> Metric {
        self.title = Some(title);
        self
    }

    const fn with(mut self, properties: &'static [Property]) -> Metric {
        self.properties = properties;
        self
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
            assert_eq!(metric.pooling == GeometricShare, has_parts, "{}", metric.id);
            assert!(METRICS[..i].iter().all(|other| other.label != metric.label), "{}", metric.label);
        }
    }

    #[test]
    fn guesses_and_tables_are_no_results_and_unknown_metrics_keep_their_names() {
        let found = ["recall", "recall_chance", "kept_until", "bleu"].map(Metric::of);
        assert_eq!(found.each_ref().map(Metric::is_result), [true, false, false, true]);
        let [.., bleu] = found;
        assert_eq!((&*bleu.label, bleu.better), ("bleu", Unknown));
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

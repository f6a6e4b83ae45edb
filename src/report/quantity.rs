//! What a metric's pooled number is called, which way is better, and how its values are written.
//!
//! It knows nothing of rows or policies. A metric it has not heard of is still reported, under its own name, without
//! saying what is better.

use super::escape;

/// Whether a metric of the rows is a result of a policy: what a guess would reach stands beside one, and tables of single
/// samples are no numbers.
pub fn is_result(metric: &str) -> bool {
    let beside = metric.ends_with("_chance") || metric.ends_with("_trivial");
    !beside && !["kept_until", "lifetime_by_token"].contains(&metric)
}

/// Which way a quantity improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
    /// A metric this version does not know.
    Unknown,
}

/// How pooled `sum(value) / sum(weight)` becomes what is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// The exponential of a mean negative log-likelihood.
    Perplexity,
    /// As it is.
    Plain,
    /// Seconds for each, shown as how many a second.
    Rate,
    /// A share of one, written in percent.
    Share,
    /// The geometric mean of three shares, in percent.
    GeometricShare,
}

/// The metrics that have a name and a better direction here, in the order of a report.
pub const METRICS: [&str; 35] = [
    "nll",
    "nll_word",
    "kl_to_full",
    "top1_agreement",
    "evicted_mass",
    "recall",
    "rouge",
    "f1",
    "found",
    "exact_match",
    "f1_ascii",
    "rouge1",
    "rouge2",
    "rougeL",
    "rouge_geo_instance",
    "nll_written",
    "new_tokens",
    "distinct_1",
    "distinct_2",
    "distinct_3",
    "repetition_4",
    "judge_win",
    "judge_tie",
    "judge_loss",
    "judge_unreadable",
    "verdict",
    "decode_batch",
    "decode",
    "prefill",
    "first_token",
    "batch",
    "cache_bytes",
    "resident_bytes",
    "recent_share",
    "lifetime",
];

/// One metric, as the report shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// The metric's name in the rows.
    pub metric: String,
    /// The name in tables and on axes.
    pub name: String,
    pub better: Better,
    /// Whether subtracting the full cache's value means something (it does not where the metric itself compares with
    /// the full cache).
    pub has_difference: bool,
    shape: Shape,
    /// Where it stands among the metrics of a report.
    rank: usize,
}

impl Quantity {
    /// What the rows' metric is shown as.
    pub fn of(metric: &str) -> Self {
        use Better::{Higher, Lower, Unknown};
        let (rank, name, better, has_difference, shape) = match metric {
            "nll" => (0, "perplexity", Lower, true, Shape::Perplexity),
            "nll_word" => (1, "word-level perplexity", Lower, true, Shape::Perplexity),
            "kl_to_full" => (2, "KL to full (nats)", Lower, false, Shape::Plain),
            "top1_agreement" => (3, "top-1 agreement (%)", Higher, false, Shape::Share),
            "evicted_mass" => (4, "evicted attention (%)", Lower, false, Shape::Share),
            "recall" => (5, "recall (%)", Higher, true, Shape::Share),
            "rouge" => (6, "ROUGE (geometric mean)", Higher, true, Shape::GeometricShare),
            "f1" => (7, "F1 (%)", Higher, true, Shape::Share),
            "found" => (8, "needles found (%)", Higher, true, Shape::Share),
            "exact_match" => (9, "exact match (%)", Higher, true, Shape::Share),
            "f1_ascii" => (10, "F1, ASCII (%)", Higher, true, Shape::Share),
            "rouge1" => (11, "ROUGE-1", Higher, true, Shape::Share),
            "rouge2" => (12, "ROUGE-2", Higher, true, Shape::Share),
            "rougeL" => (13, "ROUGE-L", Higher, true, Shape::Share),
            "rouge_geo_instance" => (14, "ROUGE (geometric mean of each)", Higher, true, Shape::Share),
            "nll_written" => (15, "perplexity of what was written", Unknown, true, Shape::Perplexity),
            "new_tokens" => (16, "tokens written", Unknown, true, Shape::Plain),
            "distinct_1" => (17, "distinct words (%)", Unknown, true, Shape::Share),
            "distinct_2" => (18, "distinct word pairs (%)", Unknown, true, Shape::Share),
            "distinct_3" => (19, "distinct word triples (%)", Unknown, true, Shape::Share),
            "repetition_4" => (20, "repeated word quadruples (%)", Lower, true, Shape::Share),
            "judge_win" => (21, "judged better than full (%)", Higher, false, Shape::Share),
            "judge_tie" => (22, "judged equal to full (%)", Unknown, false, Shape::Share),
            "judge_loss" => (23, "judged worse than full (%)", Lower, false, Shape::Share),
            "judge_unreadable" => (24, "unreadable verdicts (%)", Lower, false, Shape::Share),
            "verdict" => (25, "preferred by place (%)", Unknown, false, Shape::Share),
            "decode_batch" => (26, "tokens/s in the largest batch", Higher, true, Shape::Rate),
            "decode" => (27, "tokens/s of one sequence", Higher, true, Shape::Rate),
            "prefill" => (28, "prompt tokens/s", Higher, true, Shape::Rate),
            "first_token" => (29, "seconds to the first token", Lower, true, Shape::Plain),
            "batch" => (30, "largest batch", Higher, true, Shape::Plain),
            "cache_bytes" => (31, "cache bytes of a sequence", Lower, true, Shape::Plain),
            "resident_bytes" => (32, "resident bytes of a sequence", Lower, true, Shape::Plain),
            "recent_share" => (33, "recent tokens among the kept (%)", Unknown, false, Shape::Share),
            "lifetime" => (34, "steps a token is kept", Unknown, false, Shape::Plain),
            other => (35, other, Unknown, true, Shape::Plain),
        };
        Self { metric: metric.to_owned(), name: escape::plain(name), better, has_difference, shape, rank }
    }

    /// From the pooled metric, and the two beside it where it is made of three, to the quantity.
    pub fn of_pooled(&self, [pooled, second, third]: [f64; 3]) -> f64 {
        match self.shape {
            Shape::Perplexity => pooled.exp(),
            Shape::Plain => pooled,
            Shape::Rate => 1.0 / pooled,
            Shape::Share => 100.0 * pooled,
            Shape::GeometricShare => 100.0 * (pooled * second * third).cbrt(),
        }
    }

    /// How a pooled `sum(value) / sum(weight)` becomes the quantity, by a name that scripts can act on.
    pub(super) fn transform(&self) -> &'static str {
        match self.shape {
            Shape::Perplexity => "exp",
            Shape::Plain => "identity",
            Shape::Rate => "reciprocal",
            Shape::Share | Shape::GeometricShare => "percent",
        }
    }

    /// Whether it only says more about another quantity, or about texts, and is shown as a table without a figure.
    pub(super) fn is_detail(&self) -> bool {
        let details = [
            "f1_ascii",
            "exact_match",
            "rouge1",
            "rouge2",
            "rougeL",
            "rouge_geo_instance",
            "new_tokens",
            "verdict",
            "judge_unreadable",
            "first_token",
            "batch",
            "cache_bytes",
            "resident_bytes",
            // The same for every policy, by counting; what differs are its parts, which have a section of their own.
            "lifetime",
        ];
        let name = self.metric.as_str();
        details.contains(&name) || name.starts_with("distinct_") || name.starts_with("repetition_")
    }

    /// Whether the weights of its rows are numbers of something a reader would count.
    pub(super) fn counts_things(&self) -> bool {
        self.metric != "recent_share"
    }

    /// What would reach the level that stands beside the measured numbers.
    pub(super) fn guess(&self) -> &'static str {
        match self.metric.as_str() {
            "recall" => "a guess among the values named so far",
            "f1" => "the commonest answer",
            _ => "the document's first words",
        }
    }

    /// Whether a logarithmic axis makes sense: shares have a natural scale already.
    pub fn has_log_axis(&self) -> bool {
        !matches!(self.shape, Shape::Share | Shape::GeometricShare)
    }

    /// The ends of the value axis, where the quantity has a natural scale that differences must be seen on.
    pub(super) fn range(&self) -> Option<(f64, f64)> {
        (self.metric == "recall").then_some((0.0, 100.0))
    }

    /// The part of a file name that says what is drawn.
    pub(super) fn slug(&self) -> String {
        match self.metric.as_str() {
            "nll" => "perplexity".to_owned(),
            "nll_word" => "word-perplexity".to_owned(),
            other => escape::slug(other),
        }
    }

    /// One value as a table shows it.
    pub fn show(&self, value: f64) -> String {
        self.show_as(value, value)
    }

    /// Half an interval, with the digits that the value beside it has.
    pub fn show_spread(&self, half_width: f64, value: f64) -> String {
        format!("±{}", self.show_as(half_width, if value.abs() > half_width { value } else { half_width }))
    }

    /// A value with as many digits as one of another size has.
    fn show_as(&self, value: f64, like: f64) -> String {
        if !value.is_finite() {
            return if value.is_nan() { "NaN".to_owned() } else { "inf".to_owned() };
        }
        let size = like.abs();
        match self.shape {
            Shape::Plain if size < 10.0 => format!("{value:.4}"),
            // Beyond these the interval is far wider than the digits left out, and the CSV has them all.
            _ if size >= 1e6 => format!("{value:.2e}"),
            _ if size >= 1000.0 => format!("{value:.0}"),
            _ if size >= 100.0 => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        }
    }

    /// A difference, with its sign.
    pub fn show_difference(&self, difference: f64) -> String {
        let shown = self.show(difference);
        // "-0.00" would claim a direction that the digits shown do not have.
        match shown.strip_prefix('-') {
            Some(digits) if digits.chars().all(|c| c == '0' || c == '.') => digits.to_owned(),
            Some(_) => shown,
            None if shown.chars().any(|c| ('1'..='9').contains(&c)) => format!("+{shown}"),
            None => shown,
        }
    }

    /// The order of quantities in a report.
    pub fn order(&self) -> (usize, &str) {
        (self.rank, &self.metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_sensibly() {
        let perplexity = Quantity::of("nll");
        let check = |value, expected: &str| assert_eq!(perplexity.show(value), expected);
        check(7.16, "7.16");
        check(17.654, "17.65");
        check(240.17, "240.2");
        check(4812.27, "4812");
        check(1.234e9, "1.23e9");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "inf");
        assert_eq!(perplexity.show_difference(2.37), "+2.37");
        assert_eq!(perplexity.show_difference(-0.014), "-0.01");
        assert_eq!(perplexity.show_difference(-0.004), "0.00");
        assert_eq!(perplexity.show_spread(913.6, 4812.27), "±914");
        assert_eq!(perplexity.show_spread(0.26, 7.16), "±0.26");
        assert_eq!(Quantity::of("kl_to_full").show(0.01234), "0.0123");
        assert_eq!(Quantity::of("top1_agreement").of_pooled([0.875, 0.0, 0.0]), 87.5);
    }

    #[test]
    fn the_list_of_metrics_is_the_table_of_quantities() {
        let ranks: Vec<usize> = METRICS.iter().map(|metric| Quantity::of(metric).rank).collect();
        assert_eq!(ranks, (0..Quantity::of("unheard of").rank).collect::<Vec<_>>());
    }

    #[test]
    fn an_unknown_metric_keeps_its_name() {
        let rate = Quantity::of("decode");
        assert_eq!(rate.of_pooled([0.25, 0.0, 0.0]), 4.0, "a quarter of a second for each is four a second");
        let rouge = Quantity::of("bleu");
        assert_eq!((rouge.name.as_str(), rouge.better), ("bleu", Better::Unknown));
    }

    #[test]
    fn a_geometric_mean_of_three() {
        let rouge = Quantity::of("rouge");
        assert!((rouge.of_pooled([0.722_222, 0.333_333, 0.722_222]) - 55.8136).abs() < 1e-3);
    }
}

//! How a metric's values are written in tables, on axes and in file names.

use crate::metric::{Metric, Pooling};
use crate::report::escape;
use crate::report::statistics::Interval;

impl Metric {
    /// How a pooled `sum(value) / sum(weight)` becomes the value shown, by a name that scripts can act on.
    pub(crate) fn transform(&self) -> &'static str {
        match self.pooling {
            Pooling::Perplexity => "exp",
            Pooling::Mean => "identity",
            Pooling::Rate => "reciprocal",
            Pooling::Share | Pooling::GeometricShare => "percent",
        }
    }

    /// Whether a logarithmic axis makes sense: shares have a natural scale already.
    pub(crate) fn has_log_axis(&self) -> bool {
        !matches!(self.pooling, Pooling::Share | Pooling::GeometricShare)
    }

    /// The part of a file name that says what is drawn.
    pub(crate) fn slug(&self) -> String {
        self.stem.map_or_else(|| escape::slug(&self.id), str::to_owned)
    }

    /// One value as a table shows it.
    pub fn show(&self, value: f64) -> String {
        self.show_as(value, value)
    }

    /// The ends of an interval, with the digits that the value in it has.
    pub fn show_interval(&self, Interval { low, high }: Interval, value: f64) -> String {
        format!("[{}, {}]", self.show_as(low, value), self.show_as(high, value))
    }

    /// The ends of a difference's interval, with their signs.
    pub fn show_interval_of_difference(&self, Interval { low, high }: Interval) -> String {
        format!("[{}, {}]", self.show_difference(low), self.show_difference(high))
    }

    /// A value with as many digits as one of another size has.
    fn show_as(&self, value: f64, like: f64) -> String {
        if !value.is_finite() {
            return if value.is_nan() { "NaN".to_owned() } else { "inf".to_owned() };
        }
        let size = like.abs();
        match self.pooling {
            Pooling::Mean if size < 10.0 => format!("{value:.4}"),
            // The interval is far wider than the digits left out, and the CSV has them all.
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
}

/// A difference with its sign; "-0.00" would claim a direction that the digits shown do not have.
pub(crate) fn signed(difference: f64, digits: usize) -> String {
    let shown = format!("{difference:+.digits$}");
    match shown.chars().any(|c| ('1'..='9').contains(&c)) || !difference.is_finite() {
        true => shown,
        false => shown.replace(['+', '-'], ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_they_need() {
        let perplexity = Metric::of("nll");
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
        assert_eq!(perplexity.show_interval(Interval { low: 998.4, high: 7001.2 }, 4812.27), "[998, 7001]");
        let difference = Interval { low: -0.004, high: 0.262 };
        assert_eq!(perplexity.show_interval_of_difference(difference), "[0.00, +0.26]");
        assert_eq!(Metric::of("kl_to_full").show(0.01234), "0.0123");
    }
}

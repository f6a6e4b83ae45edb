//! How a metric's values are written in tables, on axes and in file names.

use crate::metric::{Metric, Pooling};
use crate::report::escape;

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

    /// A value with as many digits as one of another size has.
    pub(crate) fn show_as(&self, value: f64, like: f64) -> String {
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
        with_sign(&self.show(difference))
    }
}

/// A difference of so many digits, with its sign.
pub(crate) fn signed(difference: f64, digits: usize) -> String {
    with_sign(&format!("{difference:.digits$}"))
}

/// "-0.00" would claim a direction that the digits shown do not have.
fn with_sign(shown: &str) -> String {
    let digits = shown.trim_start_matches('-');
    match shown.chars().any(|c| ('1'..='9').contains(&c)) {
        true if digits == shown => format!("+{shown}"),
        true => shown.to_owned(),
        false => digits.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Entry, Estimate, Interval};

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
        let estimate = |value, low, high| Estimate { value, interval: Some(Interval { low, high }) };
        let value = Entry::of(&perplexity, estimate(4812.27, 998.4, 7001.2));
        assert_eq!(value.spread.as_deref(), Some("[998, 7001]"));
        let difference = Entry::of_difference(&perplexity, estimate(0.1, -0.004, 0.262));
        assert_eq!(difference.spread.as_deref(), Some("[0.00, +0.26]"));
        assert_eq!(Metric::of("kl_to_full").show(0.01234), "0.0123");
    }
}

//! Numbers as exact fractions: `0.5`, `.5`, `1/2`, `\frac{1}{2}` and `\frac{2}{4}` are one number.

use std::fmt;

/// A fraction in its lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    above: i128,
    /// Positive.
    below: i128,
}

impl Number {
    /// Reads a number from canonical LaTeX: an integer, a decimal, a quotient of two, or an integer with a proper fraction
    /// behind it. `None` for all else, and for numbers of more than about 30 digits.
    pub fn parse(text: &str) -> Option<Number> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let number = unsigned(text)?;
        Some(Number { above: if negative { -number.above } else { number.above }, ..number })
    }

    /// `above / below`.
    fn of(above: i128, below: i128) -> Option<Number> {
        if below == 0 {
            return None;
        }
        let divisor = common_divisor(above, below).max(1) * below.signum();
        Some(Number { above: above / divisor, below: below / divisor })
    }

    fn over(self, other: Number) -> Option<Number> {
        Number::of(self.above.checked_mul(other.below)?, self.below.checked_mul(other.above)?)
    }
}

/// Digits that a number may have, so that a product of two and a sign fit.
const MOST_DIGITS: usize = 18;

fn unsigned(text: &str) -> Option<Number> {
    if let Some((above, below)) = text.split_once('/') {
        return decimal(above)?.over(decimal(below)?);
    }
    let Some((whole, fraction)) = text.split_once("\\frac{") else { return decimal(text) };
    let (above, below) = fraction.strip_suffix('}')?.split_once("}{")?;
    if whole.is_empty() {
        return signed(above)?.over(signed(below)?);
    }
    let (fraction, whole) = (decimal(above)?.over(decimal(below)?)?, decimal(whole)?);
    // 3 before 1/2 is the mixed number; 3 before 7/2 is a product.
    let is_mixed = whole.below == 1 && fraction.above < fraction.below;
    let above = whole.above.checked_mul(fraction.below)?.checked_add(fraction.above)?;
    is_mixed.then(|| Number::of(above, fraction.below))?
}

fn signed(text: &str) -> Option<Number> {
    match text.strip_prefix('-') {
        Some(rest) => decimal(rest).map(|number| Number { above: -number.above, ..number }),
        None => decimal(text),
    }
}

/// `12`, `0.5`, `.5` or `12.`, without a sign.
fn decimal(text: &str) -> Option<Number> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || digits.len() > MOST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Number::of(digits.parse().ok()?, 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)
}

fn common_divisor(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.above < 0 { "-" } else { "" };
        match self.below {
            1 => write!(f, "{}", self.above),
            below => write!(f, "{sign}\\frac{{{}}}{{{below}}}", self.above.abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        let cases = [
            ("0.50", Some("\\frac{1}{2}")),
            (".5", Some("\\frac{1}{2}")),
            ("-3/-6", None),
            ("\\frac{-3}{6}", Some("-\\frac{1}{2}")),
            ("-\\frac{3}{-6}", Some("\\frac{1}{2}")),
            ("2\\frac{1}{3}", Some("\\frac{7}{3}")),
            ("-2\\frac{1}{3}", Some("-\\frac{7}{3}")),
            ("2\\frac{4}{3}", None),
            ("007", Some("7")),
            ("12.", Some("12")),
            ("1/0", None),
            ("-0", Some("0")),
            ("\\frac{1.5}{0.5}", Some("3")),
            (".", None),
            ("", None),
            ("1e5", None),
            ("12345678901234567890", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Number::parse(text).map(|number| number.to_string()).as_deref(), expected, "{text}");
        }
    }
}

//! JSON inside a `script` element, with numbers that lose no bit.
//!
//! JSON has no NaN and no infinity, so these are written as text, as in rows.

use anyhow::{Context as _, Result};
use serde::{Serialize, Serializer};

/// A number as it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exact(pub(super) f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            // Most numbers are counts, which are shorter without `.0`; a negative zero keeps its sign.
            value if value.fract() == 0.0 && value.abs() < 1e15 && (value != 0.0 || value.is_sign_positive()) => {
                serializer.serialize_i64(value as i64)
            }
            value if value.is_finite() => serializer.serialize_f64(value),
            value => serializer.collect_str(&value),
        }
    }
}

/// JSON that is safe inside a `script` element: no `<` can end the element or begin a comment, and no line separator can be
/// taken for the end of a line. These characters occur only inside JSON strings, where an escape means the same.
pub(super) fn inside_script(value: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string(value).context("writing JSON into the page")?;
    Ok(json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lose_no_bit() {
        let values =
            [0.0, -0.0, 1.0 / 3.0, 4095.0, -7.0, 1e15, 1e300, 5e-324, f64::MAX, 0.1 + 0.2, 123_456_789.125];
        let written = inside_script(&values.map(Exact)).unwrap();
        let read: Vec<f64> = serde_json::from_str(&written).unwrap();
        assert!(read.iter().map(|n| n.to_bits()).eq(values.iter().map(|n| n.to_bits())), "{written}");
        let odd = inside_script(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Exact)).unwrap();
        assert_eq!(odd, r#"["NaN","inf","-inf"]"#);
    }

    #[test]
    fn texts_cannot_end_the_script() {
        let text = "</script><!-- \u{2028}\u{2029} \" \\ \u{0} & é";
        let written = inside_script(&text).unwrap();
        assert!(!written.contains('<') && !written.contains(['\u{2028}', '\u{2029}', '\u{0}']), "{written}");
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
    }
}

//! Halves of characters in JSON: `\ud83d` without its other half. Python reads such a text, and fails where it is encoded.

use std::borrow::Cow;
use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde_json::Value;

/// Stands for a half. Texts do not have it: Unicode keeps it for the use inside programs.
const HALF: &str = "\u{fdd0}";

/// JSON in which a mark stands for every half, so that it can be read.
pub fn marked(json: &str) -> Cow<'_, str> {
    let mut marked = String::new();
    let (mut kept, mut from) = (0, 0);
    // An escaped backslash is no escape itself.
    while let Some(at) = json[from..].find('\\').map(|at| from + at) {
        let Some(first) = code(json, at) else {
            from = (at + 2).min(json.len());
            while !json.is_char_boundary(from) {
                from += 1;
            }
            continue;
        };
        let second = code(json, at + 6);
        let is_pair =
            (0xd800..0xdc00).contains(&first) && second.is_some_and(|code| (0xdc00..0xe000).contains(&code));
        from = if is_pair { at + 12 } else { at + 6 };
        if !is_pair && (0xd800..0xe000).contains(&first) {
            marked.push_str(&json[kept..at]);
            marked.push_str(HALF);
            kept = from;
        }
    }
    if kept == 0 { Cow::Borrowed(json) } else { Cow::Owned(marked + &json[kept..]) }
}

/// The code of the escape `\uXXXX` at a byte.
fn code(json: &str, at: usize) -> Option<u32> {
    let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
    u32::from_str_radix(digits, 16).ok()
}

/// A row whose used columns have no marks.
///
/// # Errors
/// One has; it is named.
pub fn check(row: Value, used: &BTreeSet<&str>) -> Result<Value> {
    let broken = row
        .as_object()
        .into_iter()
        .flatten()
        .find(|(name, value)| used.contains(name.as_str()) && (name.contains(HALF) || has_half(value)));
    if let Some((name, _)) = broken {
        bail!(
            "`{name}` has half of a character (a surrogate, such as \\ud83d, without its other half); write it whole"
        );
    }
    Ok(row)
}

fn has_half(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(HALF),
        Value::Array(items) => items.iter().any(has_half),
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains(HALF) || has_half(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_marked_and_pairs_kept() {
        let read = |json: &str| serde_json::from_str::<Value>(&marked(json)).unwrap();
        assert_eq!(read(r#"{"a": "\ud83d\ude00 \u00e9 \\\\ud83d"}"#)["a"], "\u{1f600} é \\\\ud83d");
        let row = read(r#"{"a": "x \ud83d", "b": ["\ude00\ud83d"], "c": "\ud83d\u0041", "d": "\\\ud83d é"}"#);
        for name in ["a", "b", "c", "d"] {
            assert!(check(row.clone(), &[name].into()).unwrap_err().to_string().contains(&format!("`{name}`")));
        }
        assert!(matches!(marked(r#"{"a": "\n\\"}"#), Cow::Borrowed(_)));
        check(row, &["e"].into()).unwrap();
    }
}

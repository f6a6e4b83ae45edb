//! Parts of canonical texts, from which ids of cells and samples follow.
//!
//! They are spelled out here, so that renaming a type, a field or a variant moves no id. The notation is the one that the first
//! results had: that of Rust's debug output. It must stay (`run/golden_ids.rs`).

use std::fmt::{Display, Write as _};

/// A key and its value.
pub type Setting = (&'static str, String);

/// The setting whose value `auto` stands for what the model does.
pub const BOS: &str = "bos";

/// A text in quotes. Characters that do not print, and marks that join the character before them, are escaped.
pub fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// `[1, 2]`
pub fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let mut list = String::from("[");
    for item in items {
        let comma = if list.len() == 1 { "" } else { ", " };
        let _ = write!(list, "{comma}{item}");
    }
    list + "]"
}

/// `["a", "b"]`
pub fn quoted_list<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    list(texts.into_iter().map(|text| quoted(text.as_ref())))
}

/// `Some(1)` or `None`
pub fn option<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| format!("Some({value})"))
}

/// A limit as canonical texts spell it.
pub fn limit_text(limit: Option<usize>) -> String {
    limit.map_or_else(|| "all".to_string(), |limit| limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_is_that_of_the_first_results() {
        for (text, expected) in [
            ("it's", r#""it's""#),
            ("a\"b\\\n\t\0", r#""a\"b\\\n\t\0""#),
            ("é\u{301}\u{7f}\u{ad}😀", r#""é\u{301}\u{7f}\u{ad}😀""#),
            ("\u{301}", r#""\u{301}""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
        let texts = ["a\"b", "é\u{301}", ""];
        assert_eq!(quoted_list(texts), format!("{texts:?}"));
        assert_eq!(list([0; 0]), "[]");
        assert_eq!(option(Some(list([1, 2]))), "Some([1, 2])");
        assert_eq!(option(None::<u32>), "None");
    }
}

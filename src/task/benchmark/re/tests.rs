//! Patterns and replacements against those of CPython 3.11 (`tests/golden/make/re_goldens.py`).

use fancy_regex::Captures;
use serde_json::{Value, json};

use super::Pattern;

/// What `re.findall` makes of a match.
fn found(captures: &Captures<'_>) -> Value {
    let group = |at: usize| captures.get(at).map_or("", |group| group.as_str());
    match captures.len() {
        1 => json!(group(0)),
        2 => json!(group(1)),
        count => (1..count).map(group).collect(),
    }
}

#[test]
fn patterns_find_and_replace_as_in_python() {
    let table: Vec<Vec<Value>> =
        serde_json::from_str(include_str!("../../../../tests/golden/python_re.json")).unwrap();
    let mut wrong = Vec::new();
    for row in &table {
        let text = |at: usize| row[at].as_str().unwrap();
        let pattern = Pattern::new(text(0));
        let (what, is_right) = match (row.len(), pattern) {
            (1, pattern) => (format!("{pattern:?}"), pattern.is_err()),
            (_, Err(error)) => (error.to_string(), false),
            (2, Ok(pattern)) => {
                let replaced = pattern.sub(text(1), "a", 0);
                (format!("{replaced:?}"), replaced.is_err())
            }
            (_, Ok(pattern)) => {
                let all: Vec<Value> = pattern.find_all(text(1)).unwrap().iter().map(found).collect();
                let replaced = pattern.sub(text(3), text(1), 0).unwrap();
                (format!("{all:?} {replaced:?}"), json!(all) == row[2] && replaced == text(4))
            }
        };
        if !is_right {
            wrong.push(format!("{row:?} is {what}"));
        }
    }
    assert!(table.len() > 400 && wrong.is_empty(), "{} of {}:\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

#[test]
fn only_so_many_matches_are_replaced() {
    let pattern = Pattern::new("a").unwrap();
    assert_eq!(pattern.sub("b", "aaa", 2).unwrap(), "bba");
}

/// Patterns that would take for ever, or all memory, are errors that name them.
#[test]
fn a_pattern_without_end_is_an_error() {
    let text = "a".repeat(60);
    for pattern in [r"(a|a)*\1b", r"(?:a|a|b\b)*c$", r"(?=(a+))(?:\1|aa?)+b\b"] {
        let error = Pattern::new(pattern).unwrap().find_all(&text).unwrap_err();
        assert!(error.to_string().contains(pattern), "{error:#}");
    }
    for pattern in [r"(?:(?:(?:\ba){1000}){1000}){1000}", r"a{99999999999999999999}", &"(".repeat(100_000)] {
        assert!(format!("{:#}", Pattern::new(pattern).unwrap_err()).contains("cannot be used"));
    }
}

/// What Python takes and fancy-regex does not, or otherwise.
#[test]
fn what_cannot_be_translated_is_refused() {
    for (pattern, words) in [
        ("(a*)*", "may be empty"),
        ("(?:(a)|b?)+c", "may be empty"),
        ("(?=a)*b", "cannot be used"),
        (r"\N{DIGIT ONE}", "`\\N` has no meaning"),
    ] {
        let error = format!("{:#}", Pattern::new(pattern).unwrap_err());
        assert!(error.contains(pattern) && error.contains(words), "{error}");
    }
}

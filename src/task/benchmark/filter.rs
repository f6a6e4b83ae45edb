//! `filter_list`: what is taken of a written answer before it is scored.

use std::collections::BTreeMap;

use fancy_regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::python;

/// A chain of filters.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterChain {
    pub name: String,
    pub filter: Vec<FilterStep>,
}

/// One step.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "function", rename_all = "snake_case", deny_unknown_fields)]
pub enum FilterStep {
    /// These two change nothing, because each row has one answer.
    TakeFirst,
    MajorityVote,
    /// What a pattern finds, as `re.findall` does: of the match number `group_select`, counted from the end where negative, the
    /// first group that is not empty.
    Regex {
        #[serde(default)]
        regex_pattern: Pattern,
        #[serde(default)]
        group_select: i64,
        /// What is taken where nothing is found.
        #[serde(default = "invalid")]
        fallback: String,
    },
    RemoveWhitespace,
    Lowercase,
    Uppercase,
    Map {
        mapping_dict: BTreeMap<String, Value>,
        /// What is taken of an answer that is not there.
        #[serde(default)]
        default_value: Value,
    },
}

fn invalid() -> String {
    "[invalid]".to_owned()
}

/// A pattern of Python's `re`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Pattern(pub Regex);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Pattern, String> {
        // What Rust spells otherwise. Flags may only stand at the beginning, where both have them.
        let regex = Regex::new(&text.replace("\\Z", "\\z"));
        regex.map(Pattern).map_err(|error| format!("the pattern {text} cannot be used: {error}"))
    }
}

impl Default for Pattern {
    fn default() -> Pattern {
        Pattern(Regex::new(r"#### (\-?[0-9\.\,]+)").expect("the pattern is right"))
    }
}

impl FilterChain {
    /// The chain of a file that names none.
    pub fn none() -> FilterChain {
        FilterChain { name: "none".into(), filter: Vec::new() }
    }

    /// The text that the chain leaves of an answer.
    pub fn apply(&self, text: &str) -> String {
        self.filter.iter().fold(text.to_owned(), |text, step| step.apply(text))
    }
}

impl FilterStep {
    fn apply(&self, text: String) -> String {
        match self {
            FilterStep::TakeFirst | FilterStep::MajorityVote => text,
            FilterStep::RemoveWhitespace => python_strip(&text).to_owned(),
            FilterStep::Lowercase => text.to_lowercase(),
            FilterStep::Uppercase => text.to_uppercase(),
            FilterStep::Map { mapping_dict, default_value } => {
                python::str(mapping_dict.get(&text).unwrap_or(default_value))
            }
            FilterStep::Regex { regex_pattern, group_select, fallback } => {
                let found = find(&regex_pattern.0, *group_select, &text);
                found.map_or_else(|| fallback.clone(), |found| python_strip(&found).to_owned())
            }
        }
    }
}

/// What `str.strip` leaves.
pub fn python_strip(text: &str) -> &str {
    let is_space = |c: char| c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}');
    text.trim_matches(is_space)
}

fn find(regex: &Regex, select: i64, text: &str) -> Option<String> {
    let all: Vec<_> = regex.captures_iter(text).map_while(Result::ok).collect();
    let at = if select < 0 { all.len().checked_sub(select.unsigned_abs() as usize)? } else { select as usize };
    let found = all.get(at)?;
    match found.len() {
        1 => Some(found[0].to_owned()),
        2 => Some(found.get(1).map_or("", |group| group.as_str()).to_owned()),
        _ => {
            let mut groups = (1..found.len()).filter_map(|group| Some(found.get(group)?.as_str()));
            groups.find(|group| !group.is_empty()).map(str::to_owned)
        }
    }
}

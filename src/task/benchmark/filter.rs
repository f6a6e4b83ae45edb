//! `filter_list`: what is taken of a written answer before it is scored.

use fancy_regex::Regex;
use serde_json::Value;

use super::python;
use crate::yaml::{self, ConfigError, Spanned};

/// Named chains; the first is what totals are of. There is at least one.
pub type Filters = Vec<(String, Vec<Filter>)>;

/// One step.
#[derive(Clone, Debug)]
pub enum Filter {
    /// What a pattern finds, as `re.findall` does: of the match number `select`, counted from the end where negative, the first
    /// group that is not empty.
    Regex {
        regex: Regex,
        select: i64,
        fallback: String,
    },
    Strip,
    Lowercase,
    Uppercase,
    Map {
        pairs: Vec<(String, String)>,
        default: String,
    },
}

impl Filter {
    fn apply(&self, text: &str) -> String {
        match self {
            Filter::Strip => python_strip(text).to_owned(),
            Filter::Lowercase => text.to_lowercase(),
            Filter::Uppercase => text.to_uppercase(),
            Filter::Map { pairs, default } => {
                pairs.iter().find(|(key, _)| key == text).map_or(default, |(_, value)| value).clone()
            }
            Filter::Regex { regex, select, fallback } => find(regex, *select, text)
                .map_or_else(|| fallback.clone(), |found| python_strip(&found).to_owned()),
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

/// The text that a chain leaves of an answer.
pub fn filtered(chain: &[Filter], text: &str) -> String {
    chain.iter().fold(text.to_owned(), |text, filter| filter.apply(&text))
}

/// A pattern of Python's `re`, with what Rust spells otherwise.
pub fn pattern(text: &str) -> Result<Regex, String> {
    // Flags may only stand at the beginning, where both have them.
    Regex::new(&text.replace("\\Z", "\\z")).map_err(|error| error.to_string())
}

/// Checks a `filter_list`.
///
/// # Errors
/// A step that is not understood; the place is that of the list.
pub fn filters(list: &Option<Spanned<Value>>) -> Result<Filters, ConfigError> {
    let Some(Spanned { value, referenced }) = list.as_ref().filter(|list| !list.value.is_null()) else {
        return Ok(vec![("none".into(), Vec::new())]);
    };
    let refuse = |message: String, hint: &str| yaml::refuse(*referenced, message, hint);
    let form = "write [{name: NAME, filter: [{function: regex, regex_pattern: '...'}, {function: take_first}]}]";
    let Some(chains) = value.as_array().filter(|chains| !chains.is_empty()) else {
        return refuse("`filter_list` is a list of named chains".into(), form);
    };
    let mut filters = Vec::new();
    for chain in chains {
        let (Some(name), Some(steps)) = (chain["name"].as_str(), chain["filter"].as_array()) else {
            return refuse("an entry of `filter_list` has a name and a list `filter`".into(), form);
        };
        let mut of_chain = Vec::new();
        for step in steps {
            match filter(step) {
                Ok(Some(filter)) => of_chain.push(filter),
                Ok(None) => {}
                Err(message) => {
                    let known = "use regex, remove_whitespace, lowercase, uppercase, map and take_first";
                    return refuse(format!("the filter {name}: {message}"), known);
                }
            }
        }
        filters.push((name.to_owned(), of_chain));
    }
    Ok(filters)
}

/// A step; `None` for one that changes nothing, because each row has one answer.
fn filter(step: &Value) -> Result<Option<Filter>, String> {
    let text = |key: &str, default: &str| step.get(key).map_or(default.to_owned(), python::str);
    let known = |keys: &[&str]| match step
        .as_object()
        .and_then(|step| step.keys().find(|key| !keys.contains(&key.as_str())))
    {
        Some(key) => Err(format!("`{key}` has no meaning here")),
        None => Ok(()),
    };
    Ok(match step["function"].as_str().unwrap_or_default() {
        "take_first" | "majority_vote" => None,
        "remove_whitespace" => Some(Filter::Strip),
        "lowercase" => Some(Filter::Lowercase),
        "uppercase" => Some(Filter::Uppercase),
        "map" => {
            known(&["function", "mapping_dict", "default_value"])?;
            let pairs = step["mapping_dict"].as_object().into_iter().flatten();
            let pairs = pairs.map(|(key, value)| (key.clone(), python::str(value))).collect();
            Some(Filter::Map { pairs, default: text("default_value", "None") })
        }
        "regex" => {
            known(&["function", "regex_pattern", "group_select", "fallback"])?;
            let source = text("regex_pattern", r"#### (\-?[0-9\.\,]+)");
            let regex =
                pattern(&source).map_err(|error| format!("the pattern {source} cannot be used: {error}"))?;
            let select = step.get("group_select").and_then(Value::as_i64).unwrap_or(0);
            Some(Filter::Regex { regex, select, fallback: text("fallback", "[invalid]") })
        }
        other => return Err(format!("`{other}` is not understood")),
    })
}

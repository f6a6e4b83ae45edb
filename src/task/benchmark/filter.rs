//! `filter_list`: what is taken of a written answer before it is scored.

use std::collections::BTreeMap;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::python;
use super::re::Pattern;
use crate::jinja::is_space;

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
        regex_pattern: Box<Pattern>,
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

impl FilterChain {
    /// The chain of a file that names none.
    pub fn none() -> FilterChain {
        FilterChain { name: "none".into(), filter: Vec::new() }
    }

    /// The text that the chain leaves of an answer.
    ///
    /// # Errors
    /// A pattern that takes too many steps.
    pub fn apply(&self, text: &str) -> Result<String> {
        self.filter.iter().try_fold(text.to_owned(), |text, step| step.apply(text))
    }
}

impl FilterStep {
    fn apply(&self, text: String) -> Result<String> {
        Ok(match self {
            FilterStep::TakeFirst | FilterStep::MajorityVote => text,
            FilterStep::RemoveWhitespace => python_strip(&text).to_owned(),
            FilterStep::Lowercase => text.to_lowercase(),
            FilterStep::Uppercase => text.to_uppercase(),
            FilterStep::Map { mapping_dict, default_value } => {
                python::str(mapping_dict.get(&text).unwrap_or(default_value))
            }
            FilterStep::Regex { regex_pattern, group_select, fallback } => {
                match find(regex_pattern, *group_select, &text)? {
                    Some(found) => python_strip(found.as_deref().unwrap_or(fallback)).to_owned(),
                    None => fallback.clone(),
                }
            }
        })
    }
}

/// What `str.strip` leaves.
pub fn python_strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// The match that is selected, if there is one; of several groups the first that is not empty, if one is.
fn find(pattern: &Pattern, select: i64, text: &str) -> Result<Option<Option<String>>> {
    let all = pattern.find_all(text)?;
    let at = if select < 0 { all.len() as i64 + select } else { select };
    let found = usize::try_from(at).ok().and_then(|at| all.get(at));
    Ok(found.map(|found| {
        let group = |at: usize| found.get(at).map_or("", |group| group.as_str());
        let first = match found.len() {
            1 => Some(group(0)),
            2 => Some(group(1)),
            count => (1..count).map(group).find(|group| !group.is_empty()),
        };
        first.map(str::to_owned)
    }))
}

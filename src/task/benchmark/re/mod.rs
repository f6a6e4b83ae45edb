//! Patterns of Python's `re`: what `re.findall` and `re.sub` of CPython 3.11 give of a text.
//!
//! `translate` writes a pattern anew for `fancy-regex`, `replacement` reads what `re.sub` puts in place of a match. What can
//! not be translated is refused; a pattern that takes too many steps on a text is an error, and never no match.

mod class;
mod replacement;
#[cfg(test)]
mod tests;
mod translate;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use fancy_regex::{Captures, Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use replacement::Replacement;

/// Steps back that one match may take, about a second. Python's own engine has no limit, and may take for ever.
const MOST_STEPS: usize = 10_000_000;
/// The longest that all matches of a text may take.
const MOST_TIME: Duration = Duration::from_secs(10);

/// A pattern.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Pattern {
    source: String,
    regex: Regex,
    /// The pattern without matches that are empty where the search begins.
    advancing: Regex,
    /// The numbers of named groups.
    names: BTreeMap<String, usize>,
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(source: String) -> Result<Pattern, String> {
        Pattern::new(&source).map_err(|error| format!("{error:#}"))
    }
}

impl Pattern {
    /// Compiles a pattern of Python.
    ///
    /// # Errors
    /// What Python refuses too, and what only Python has.
    pub fn new(source: &str) -> Result<Pattern> {
        let cannot = || format!("the pattern {source} cannot be used");
        let (pattern, names) =
            translate::translate(source).map_err(|error| anyhow!(error)).with_context(cannot)?;
        let compile = |pattern: &str| RegexBuilder::new(pattern).backtrack_limit(MOST_STEPS).build();
        let regex = compile(&pattern).with_context(cannot)?;
        // `\G` is where a search begins.
        let advancing = compile(&format!("(?:{pattern})(?!\\G)")).with_context(cannot)?;
        Ok(Pattern { source: source.to_owned(), regex, advancing, names })
    }

    /// Finds what `re.finditer` finds: after an empty match a longer one may begin at the same place.
    ///
    /// # Errors
    /// A search that takes too many steps.
    pub fn find_all<'t>(&self, text: &'t str) -> Result<Vec<Captures<'t>>> {
        let began = Instant::now();
        let mut found = Vec::new();
        let (mut at, mut is_after_empty) = (0, false);
        loop {
            let regex = if is_after_empty { &self.advancing } else { &self.regex };
            let next = regex.captures_from_pos(text, at);
            let next = next.with_context(|| format!("the pattern {} takes too many steps", self.source))?;
            let Some((captures, whole)) = next.and_then(|captures| captures.get(0).map(|whole| (captures, whole)))
            else {
                return Ok(found);
            };
            (at, is_after_empty) = (whole.end(), whole.start() == whole.end());
            found.push(captures);
            ensure!(
                began.elapsed() < MOST_TIME,
                "the pattern {} takes more than {MOST_TIME:?} on a text of {} bytes",
                self.source,
                text.len()
            );
        }
    }

    /// Replaces as `re.sub(pattern, replacement, text, count)` does.
    ///
    /// # Errors
    /// A replacement that Python refuses, or a search that takes too many steps.
    pub fn sub(&self, replacement: &str, text: &str, count: usize) -> Result<String> {
        let replacement = Replacement::new(replacement, &self.names, self.regex.captures_len())
            .map_err(|error| anyhow!("the replacement {replacement} cannot be used: {error}"))?;
        let mut out = String::new();
        let mut end = 0;
        let most = if count == 0 { usize::MAX } else { count };
        for captures in self.find_all(text)?.iter().take(most) {
            let Some(whole) = captures.get(0) else { continue };
            out += &text[end..whole.start()];
            replacement.expand(captures, &mut out);
            end = whole.end();
        }
        out += &text[end..];
        Ok(out)
    }
}

impl Default for Pattern {
    /// The harness' own.
    fn default() -> Pattern {
        Pattern::new(r"#### (\-?[0-9\.\,]+)").expect("the pattern is right")
    }
}

//! Checks that every file needs: numbers in range and lists without repeats, reported with their place in the file.

use std::collections::HashSet;
use std::hash::Hash;

use super::read::{ConfigError, Location, Spanned};
use crate::format::did_you_mean;

/// Returns an error at a place of the file, with a hint.
pub fn refuse<T>(
    location: Location,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> Result<T, ConfigError> {
    Err(ConfigError::at(location, message, hint))
}

/// Checks a number of tokens or things: at least `least`, and small enough for a column of the result rows.
pub fn count(what: &str, number: &Spanned<u64>, least: u32) -> Result<usize, ConfigError> {
    let hint = format!("write a whole number from {least} to {}", u32::MAX);
    match u32::try_from(number.value) {
        Ok(count) if count >= least => Ok(count as usize),
        _ => refuse(number.referenced, format!("{} cannot be {what}", number.value), hint),
    }
}

/// Largest number of things of one kind that a file may ask for and that are all made before the first is measured: stories,
/// answers to a row, prompts.
pub const MOST_MADE: u32 = 10_000;

/// Checks an optional number of things that are made before the first is measured: at least 1 and at most [`MOST_MADE`].
pub fn made(what: &str, number: &Option<Spanned<u64>>) -> Result<Option<usize>, ConfigError> {
    if let Some(number) = number.as_ref().filter(|number| number.value > u64::from(MOST_MADE)) {
        let hint = format!("write a whole number from 1 to {MOST_MADE}");
        return refuse(number.referenced, format!("{} cannot be {what}", number.value), hint);
    }
    limit(what, number)
}

/// Checks an optional number: at least 1.
pub fn limit(what: &str, number: &Option<Spanned<u64>>) -> Result<Option<usize>, ConfigError> {
    number.as_ref().map(|number| count(what, number, 1)).transpose()
}

/// Checks a number from `least` to `most`, both allowed.
pub fn between(what: &str, number: &Spanned<f64>, least: f64, most: f64) -> Result<f64, ConfigError> {
    if number.value >= least && number.value <= most {
        return Ok(number.value);
    }
    let hint = format!("write a number from {least} to {most}");
    refuse(number.referenced, format!("{} cannot be {what}", number.value), hint)
}

/// Reads the entries of a list. Refuses an empty list, and the second of two equal entries.
pub fn distinct<T: Eq + Hash>(
    what: &str,
    list: Location,
    entries: Vec<(T, Location)>,
    spell: impl Fn(&T) -> String,
) -> Result<Vec<T>, ConfigError> {
    if entries.is_empty() {
        return refuse(list, format!("`{what}` is empty"), "name at least one, or there is nothing to run");
    }
    let mut seen = HashSet::new();
    for (entry, location) in &entries {
        if !seen.insert(entry) {
            let message = format!("{} is listed twice under `{what}`", spell(entry));
            return refuse(*location, message, "remove one of them");
        }
    }
    Ok(entries.into_iter().map(|(entry, _)| entry).collect())
}

/// Reads different words of a list, each of which must be known.
pub fn words(
    list: &str,
    words: &[Spanned<String>],
    known: &[&'static str],
) -> Result<Vec<&'static str>, ConfigError> {
    let mut found = Vec::new();
    for Spanned { value: word, referenced } in words {
        let Some(known) = known.iter().find(|known| *known == word) else {
            let hint = format!("{}use some of {}", did_you_mean(word, known.iter().copied()), known.join(", "));
            return refuse(*referenced, format!("`{list}` knows no `{word}`"), hint);
        };
        found.push((*known, *referenced));
    }
    if found.is_empty() {
        Ok(Vec::new())
    } else {
        distinct(list, Location::UNKNOWN, found, |word| (*word).to_owned())
    }
}

/// One word of those that are known, where there is one.
pub fn word(
    key: &str,
    word: &Option<Spanned<String>>,
    known: &[&'static str],
) -> Result<Option<&'static str>, ConfigError> {
    Ok(words(key, word.as_slice(), known)?.pop())
}

/// Reads different numbers of at least `least`; `what` names one of them in messages.
pub fn distinct_counts(
    list: &str,
    place: Location,
    numbers: &[Spanned<u64>],
    what: &str,
    least: u32,
) -> Result<Vec<usize>, ConfigError> {
    let number = |n: &Spanned<u64>| Ok((count(&format!("a {what}"), n, least)?, n.referenced));
    let numbers = numbers.iter().map(number).collect::<Result<_, ConfigError>>()?;
    distinct(list, place, numbers, |number| format!("{what} {number}"))
}

//! What `re.sub` puts in place of a match: text, and groups of the match as `\1` or `\g<name>`.

use std::collections::BTreeMap;

use fancy_regex::Captures;

use super::translate::{escaped_control, group_number};

/// A replacement, read as CPython 3.11 reads it.
pub struct Replacement(Vec<Part>);

enum Part {
    Text(char),
    Group(usize),
}

impl Replacement {
    /// # Errors
    /// A group that the pattern has not, or an escape without a meaning.
    pub fn new(text: &str, names: &BTreeMap<String, usize>, groups: usize) -> Result<Replacement, String> {
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        let mut parts = Vec::new();
        while let Some(&c) = chars.get(at) {
            at += 1;
            if c != '\\' {
                parts.push(Part::Text(c));
                continue;
            }
            let escaped = *chars.get(at).ok_or("it ends with a backslash")?;
            at += 1;
            if escaped == 'g' {
                let name: String = chars[at..].iter().take_while(|c| **c != '>').collect();
                let length = name.chars().count();
                let name = name.strip_prefix('<').filter(|_| at + length < chars.len());
                let name = name.ok_or("`\\g` is not followed by <name>")?;
                at += length + 1;
                let number = name.parse().ok().filter(|_| name.bytes().all(|b| b.is_ascii_digit()));
                let group = number.or(names.get(name).copied());
                parts.push(Part::Group(group.ok_or_else(|| format!("there is no group {name}"))?));
            } else if escaped.is_ascii_digit() {
                let (group, digits) = group_number(&chars[at - 1..])?;
                parts.push(Part::Group(group));
                at += digits - 1;
            } else if let Some(c) = escaped_control(escaped).or((escaped == 'b').then_some('\u{8}')) {
                parts.push(Part::Text(c));
            } else if escaped.is_ascii_alphabetic() {
                return Err(format!("`\\{escaped}` has no meaning"));
            } else {
                parts.extend([Part::Text('\\'), Part::Text(escaped)]);
            }
        }
        let missing = parts.iter().find_map(|part| match part {
            Part::Group(group) if *group >= groups => Some(group),
            _ => None,
        });
        match missing {
            Some(group) => Err(format!("there is no group {group}")),
            None => Ok(Replacement(parts)),
        }
    }

    /// Writes it for a match. A group that took no part is empty.
    pub fn expand(&self, captures: &Captures<'_>, out: &mut String) {
        for part in &self.0 {
            match part {
                Part::Text(c) => out.push(*c),
                Part::Group(group) => out.push_str(captures.get(*group).map_or("", |group| group.as_str())),
            }
        }
    }
}

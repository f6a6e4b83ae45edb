//! Named settings in one text: the columns `generation` and `selection`, and the parts of a `definition`.

use std::fmt;

/// Names with their values, in order. As text `depths=[10, 50, 90] texts=2`: values may have spaces, and a name consists of small letters
/// and `_`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings<'a>(pub Vec<(&'a str, String)>);

impl Settings<'_> {
    /// Value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str())
    }
}

impl<'a> FromIterator<&'a (&'static str, String)> for Settings<'a> {
    fn from_iter<I: IntoIterator<Item = &'a (&'static str, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (*name, value.clone())).collect())
    }
}

impl<'a> From<&'a str> for Settings<'a> {
    fn from(text: &'a str) -> Self {
        let mut pairs: Vec<(&str, String)> = Vec::new();
        for word in text.split(' ') {
            let is_name =
                |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            match (word.split_once('=').filter(|(name, _)| is_name(name)), pairs.last_mut()) {
                (Some((name, value)), _) => pairs.push((name, value.to_owned())),
                (None, Some((_, value))) => *value += &format!(" {word}"),
                (None, None) => {}
            }
        }
        Self(pairs)
    }
}

impl fmt::Display for Settings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&pairs.join(" "))
    }
}

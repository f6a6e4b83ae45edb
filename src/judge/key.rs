//! The key of the judge's endpoint: it goes into one header and nowhere else.
//!
//! It has no `Debug` and no `Display` that would show it, and it takes itself out of whatever a server says.

use std::fmt;

use anyhow::{Result, ensure};
use ureq::http::HeaderValue;

/// What stands where the key stood.
const HIDDEN: &str = "[key]";

/// A key, and the ways it may be spelt in what a server sends back.
#[derive(Clone)]
pub struct Key {
    secret: String,
    spellings: Vec<String>,
}

impl Key {
    /// Whitespace around it is dropped, for it often comes from a file; nothing left is no key. `variable` is
    /// where it came from.
    ///
    /// # Errors
    /// Characters that cannot stand in a header; the key is not shown.
    pub fn new(text: &str, variable: &str) -> Result<Option<Key>> {
        let secret = text.trim();
        ensure!(
            secret.bytes().all(|byte| byte.is_ascii_graphic()),
            "the key in {variable} has characters no key has\nhint: write it again, on one line"
        );
        if secret.is_empty() {
            return Ok(None);
        }
        let json = secret.replace('\\', "\\\\").replace('"', "\\\"");
        let mut spellings = vec![json.replace('/', "\\/"), json, secret.to_string()];
        // The longest first: it may contain a shorter one.
        spellings.sort_by_key(|spelling| std::cmp::Reverse(spelling.len()));
        spellings.dedup();
        Ok(Some(Key { secret: secret.to_string(), spellings }))
    }

    /// `Bearer` and the key, marked as not to be logged.
    pub(super) fn header(&self) -> HeaderValue {
        let value = format!("Bearer {}", self.secret);
        let mut header = HeaderValue::from_str(&value).expect("printable ASCII can stand in a header");
        header.set_sensitive(true);
        header
    }

    /// The text without the key.
    pub(super) fn redact(&self, text: &str) -> String {
        self.spellings.iter().fold(text.to_string(), |text, spelling| text.replace(spelling.as_str(), HIDDEN))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_itself_nowhere() {
        let key = Key::new(" sk-\"a/b\\c\n", "V").unwrap().unwrap();
        let header = key.header();
        assert_eq!(header.to_str().unwrap(), "Bearer sk-\"a/b\\c");
        for shown in [format!("{key:?}"), format!("{:?}", Some(&key)), format!("{header:?}")] {
            assert!(!shown.contains("sk-"), "{shown}");
        }
        for echo in ["no sk-\"a/b\\c here", r#"{"k": "sk-\"a/b\\c"}"#, r#"{"k": "sk-\"a\/b\\c"}"#] {
            let shown = key.redact(echo);
            assert!(shown.contains("[key]") && !shown.contains("sk-"), "{shown}");
        }
        assert_eq!(key.redact("nothing to hide"), "nothing to hide");
    }

    #[test]
    fn nothing_is_no_key_and_a_strange_one_is_not_shown() {
        assert!(Key::new(" \n", "V").unwrap().is_none());
        let error = format!("{:#}", Key::new("sk-se cret", "MY_KEY").unwrap_err());
        assert!(error.contains("MY_KEY") && !error.contains("cret"), "{error}");
    }
}

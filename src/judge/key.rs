//! The key of the judge's endpoint. It goes into one header and nowhere else: `Debug` does not show it, and it is removed
//! from whatever a server sends back.

use std::fmt;

use anyhow::{Result, ensure};
use ureq::http::HeaderValue;

/// Replaces the key in a server's texts.
const HIDDEN: &str = "[key]";

#[derive(Clone)]
pub struct Key(String);

impl Key {
    /// Surrounding whitespace is dropped, since keys often come from files; `None` if nothing is left. `variable` is the
    /// environment variable the text comes from.
    ///
    /// # Errors
    /// Characters that keys cannot have; the key is not shown.
    pub fn new(text: &str, variable: &str) -> Result<Option<Key>> {
        let secret = text.trim();
        // Without quotes and backslashes a key looks the same inside JSON, but for its slashes.
        ensure!(
            secret.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\')),
            "the key in {variable} has characters that no key has\nhint: write it again, on one line and without quotes"
        );
        Ok((!secret.is_empty()).then(|| Key(secret.to_string())))
    }

    /// The value of the `authorization` header, marked as not to be logged.
    pub(super) fn header(&self) -> HeaderValue {
        let mut header = HeaderValue::from_str(&format!("Bearer {}", self.0)).expect("the key is printable ASCII");
        header.set_sensitive(true);
        header
    }

    pub(super) fn redact(&self, text: &str) -> String {
        text.replace(&self.0, HIDDEN).replace(&self.0.replace('/', "\\/"), HIDDEN)
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
    fn keys_are_never_shown() {
        let key = Key::new(" sk-a/b\n", "V").unwrap().unwrap();
        let header = key.header();
        assert_eq!(header.to_str().unwrap(), "Bearer sk-a/b");
        for shown in [format!("{key:?}"), format!("{header:?}")] {
            assert!(!shown.contains("sk-"), "{shown}");
        }
        for echo in ["no sk-a/b here", r#"{"k": "sk-a/b"}"#, r#"{"k": "sk-a\/b"}"#] {
            let shown = key.redact(echo);
            assert!(shown.contains("[key]") && !shown.contains("sk-"), "{shown}");
        }
        assert!(Key::new(" \n", "V").unwrap().is_none());
        for wrong in ["sk-se cret", "\"sk-secret\""] {
            let error = format!("{:#}", Key::new(wrong, "MY_KEY").unwrap_err());
            assert!(error.contains("MY_KEY") && !error.contains("cret"), "{error}");
        }
    }
}

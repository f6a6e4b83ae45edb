//! The address of the judge, and the key for it.
//!
//! The key goes into one header and nowhere else: `Debug` does not show it, and it is removed from whatever a server sends back.

use std::fmt;

use anyhow::{Result, anyhow, ensure};
use ureq::http::{HeaderValue, Uri};

const COMPLETIONS: &str = "/chat/completions";

/// The base URL of an OpenAI-compatible server, such as `https://api.openai.com/v1`.
#[derive(Clone, Debug)]
pub struct Endpoint(Uri);

impl Endpoint {
    /// # Errors
    /// Any other text. It is not shown, since it may contain a password or a key.
    pub fn new(text: &str) -> Result<Endpoint> {
        // A password before an `@` must not get into rows and messages.
        let is_plain = !text.contains(['@', '?', '#']);
        let uri = text.trim().parse::<Uri>().ok().filter(|uri| {
            is_plain && matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some()
        });
        uri.map(Endpoint).ok_or_else(|| {
            anyhow!(
                "the judge's base URL is not valid\n\
                 hint: write it like https://api.openai.com/v1 or http://localhost:8000/v1"
            )
        })
    }

    /// Host and port.
    pub fn host(&self) -> &str {
        self.0.authority().map_or("", |authority| authority.as_str())
    }

    /// Whether a key would be sent to another machine without encryption.
    pub fn is_unencrypted(&self) -> bool {
        let host = self.0.host().unwrap_or_default();
        let is_local = host == "localhost" || host.starts_with("127.") || host == "[::1]";
        self.0.scheme_str() == Some("http") && !is_local
    }

    /// The URL of chat completions. Some servers' pages give all of it for the base URL.
    pub(super) fn completions(&self) -> String {
        let url = self.0.to_string();
        let base = url.trim_end_matches('/');
        format!("{}{COMPLETIONS}", base.strip_suffix(COMPLETIONS).unwrap_or(base))
    }
}

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
        text.replace(&self.0, "[key]").replace(&self.0.replace('/', "\\/"), "[key]")
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
    fn base_urls_are_checked_and_never_shown() {
        let endpoint = Endpoint::new(" https://api.openai.com/v1/ ").unwrap();
        assert_eq!(endpoint.completions(), "https://api.openai.com/v1/chat/completions");
        let whole = Endpoint::new("https://api.openai.com/v1/chat/completions/").unwrap();
        assert_eq!(whole.completions(), endpoint.completions());
        assert_eq!(Endpoint::new("http://localhost:8000").unwrap().host(), "localhost:8000");
        for wrong in "|api.openai.com|ftp://x|https://|http:///x|https://u:secret@x|https://secret/a@x|https://x y"
            .split('|')
        {
            let error = format!("{:#}", Endpoint::new(wrong).unwrap_err());
            assert!(error.contains("hint:") && !error.contains("secret"), "{error}");
        }
        for (url, unencrypted) in [
            ("http://localhost:8000/v1", false),
            ("http://127.0.0.1/v1", false),
            ("http://[::1]:80/v1", false),
            ("https://judge.example/v1", false),
            ("http://judge.example/v1", true),
            ("http://10.0.0.7:8000/v1", true),
        ] {
            assert_eq!(Endpoint::new(url).unwrap().is_unencrypted(), unencrypted, "{url}");
        }
    }

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

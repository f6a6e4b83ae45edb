//! The address of an OpenAI-compatible server.

use anyhow::{Result, anyhow};
use ureq::http::Uri;

/// A base URL such as `https://api.openai.com/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// The URL of chat completions.
    pub(super) fn completions(&self) -> String {
        format!("{}/chat/completions", self.0.to_string().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_checked_and_never_shown() {
        let endpoint = Endpoint::new(" https://api.openai.com/v1/ ").unwrap();
        assert_eq!(endpoint.completions(), "https://api.openai.com/v1/chat/completions");
        assert_eq!(endpoint.host(), "api.openai.com");
        assert_eq!(Endpoint::new("http://localhost:8000").unwrap().host(), "localhost:8000");
        for wrong in [
            "",
            "api.openai.com",
            "ftp://x",
            "https://",
            "http:///x",
            "https://u:secret@x",
            "https://secret/a@x",
            "https://x y",
        ] {
            let error = format!("{:#}", Endpoint::new(wrong).unwrap_err());
            assert!(error.contains("hint:") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn unencrypted_endpoints_are_recognized() {
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
}

//! The address of an OpenAI-compatible server.

use anyhow::{Result, ensure};

/// A base URL such as `https://api.openai.com/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Without a slash at the end.
    base: String,
}

impl Endpoint {
    /// # Errors
    /// Any other text. It is not shown, since it may contain a password or a key.
    pub fn new(text: &str) -> Result<Endpoint> {
        let base = text.trim().trim_end_matches('/');
        let rest = base.strip_prefix("https://").or_else(|| base.strip_prefix("http://"));
        let sound = rest.is_some_and(|rest| {
            !rest.is_empty() && !rest.starts_with(['/', ':']) && rest.bytes().all(|byte| byte.is_ascii_graphic())
        });
        ensure!(
            sound && !base.contains(['@', '?', '#', '\\', '"', '<', '>', '^', '`', '{', '|', '}']),
            "the judge's base URL is not valid\n\
             hint: write it like https://api.openai.com/v1 or http://localhost:8000/v1"
        );
        Ok(Endpoint { base: base.to_string() })
    }

    /// Host and port.
    pub fn host(&self) -> &str {
        let rest = self.base.split_once("://").map_or(self.base.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    /// Whether a key would be sent to another machine without encryption.
    pub fn is_unencrypted(&self) -> bool {
        let host = self.host();
        let name = if host.starts_with('[') { host } else { host.split(':').next().unwrap_or(host) };
        let local = name == "localhost" || name.starts_with("127.") || name.starts_with("[::1]");
        self.base.starts_with("http://") && !local
    }

    /// The URL of chat completions.
    pub(super) fn completions(&self) -> String {
        format!("{}/chat/completions", self.base)
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
        for wrong in
            ["", "api.openai.com", "ftp://x", "https://", "http:///x", "https://u:secret@x", "https://x y"]
        {
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

//! Where the judge is: the address of an OpenAI-compatible server.

use anyhow::{Result, ensure};

/// An address such as `https://api.openai.com/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Without a slash at the end.
    base: String,
}

impl Endpoint {
    /// # Errors
    /// What is no such address. It is not shown: someone may have put a password or a key in.
    pub fn new(text: &str) -> Result<Endpoint> {
        let base = text.trim().trim_end_matches('/');
        let rest = base.strip_prefix("https://").or_else(|| base.strip_prefix("http://"));
        let sound = rest.is_some_and(|rest| {
            !rest.is_empty() && !rest.starts_with(['/', ':']) && rest.bytes().all(|byte| byte.is_ascii_graphic())
        });
        ensure!(
            sound && !base.contains(['@', '?', '#', '\\', '"', '<', '>', '^', '`', '{', '|', '}']),
            "the judge's base URL is no address of a server\n\
             hint: write it like https://api.openai.com/v1 or http://localhost:8000/v1"
        );
        Ok(Endpoint { base: base.to_string() })
    }

    /// Host and port.
    pub fn host(&self) -> &str {
        let rest = self.base.split_once("://").map_or(self.base.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    /// Whether a key sent there can be read on its way: no encryption, and not this machine.
    pub fn is_open(&self) -> bool {
        let host = self.host();
        let name = if host.starts_with('[') { host } else { host.split(':').next().unwrap_or(host) };
        let own = name == "localhost" || name.starts_with("127.") || name.starts_with("[::1]");
        self.base.starts_with("http://") && !own
    }

    /// Where questions go.
    pub(super) fn completions(&self) -> String {
        format!("{}/chat/completions", self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url() {
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
    fn what_can_be_read_on_its_way_is_known() {
        for (url, open) in [
            ("http://localhost:8000/v1", false),
            ("http://127.0.0.1/v1", false),
            ("http://[::1]:80/v1", false),
            ("https://judge.example/v1", false),
            ("http://judge.example/v1", true),
            ("http://10.0.0.7:8000/v1", true),
        ] {
            assert_eq!(Endpoint::new(url).unwrap().is_open(), open, "{url}");
        }
    }
}

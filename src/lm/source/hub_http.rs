//! Requests to the hub: what a file is called and how long it is, its bytes, and whether the hub answers at all.
//!
//! The token is sent to the hub's own host only, never to where it redirects, and redirects are limited. Headers
//! are returned unchecked; where bytes go and when to retry is decided in `download`.

use std::io::Read;
use std::time::Duration;

use anyhow::{Result, anyhow};
use hf_hub::Repo;
use ureq::Agent;
use ureq::config::{Config, ConfigBuilder, RedirectAuthHeaders};
use ureq::http::{HeaderMap, HeaderValue};
use ureq::typestate::{AgentScope, WithoutBody};

use super::repo::shown;
use super::{HubError, HubSettings};

/// The hub redirects once or twice.
const MAX_REDIRECTS: u32 = 5;
/// How long a server may take to accept a connection, and to begin its answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An HTTP client for one hub.
pub(super) struct HubHttp<'a> {
    agent: Agent,
    settings: &'a HubSettings,
}

/// What the hub says of a file, unchecked.
pub(super) struct RemoteFile {
    pub(super) etag: String,
    pub(super) commit: String,
    pub(super) size: u64,
}

/// A file of a repository.
pub(super) struct HubFile<'a> {
    pub(super) repo: &'a Repo,
    pub(super) name: &'a str,
    pub(super) url: String,
}

impl HubFile<'_> {
    /// The file as messages show it.
    pub(super) fn shown(&self) -> String {
        format!("{} of {}", self.name, shown(self.repo))
    }
}

impl<'a> HubHttp<'a> {
    pub(super) fn new(settings: &'a HubSettings) -> HubHttp<'a> {
        let config = config()
            .max_redirects(MAX_REDIRECTS)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT));
        HubHttp { agent: config.build().new_agent(), settings }
    }

    /// Scheme and host of the hub.
    fn origin(&self) -> &'a str {
        origin(&self.settings.endpoint)
    }

    /// Name, commit and size of a file. For a large file the hub states them in its redirect to wherever the bytes
    /// are, so only the hub itself is asked.
    pub(super) fn describe(&self, file: &HubFile<'_>) -> Result<RemoteFile, HubError> {
        let (settings, mut url) = (self.settings, file.url.clone());
        let required = |headers: &HeaderMap, name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
            value.ok_or_else(|| settings.strange(&format!("its header {name} is missing or unreadable")))
        };
        for _ in 0..=MAX_REDIRECTS {
            let request = self.get(&url).header("range", "bytes=0-0").config().max_redirects(0).build();
            let response = request.call().map_err(|error| self.error(file, error))?;
            let (status, headers) = (response.status(), response.headers());
            if !status.is_success() && !status.is_redirection() {
                return Err(settings.refused(file.repo, Some(file.name), status.as_u16()));
            }
            let size = if status.is_redirection() {
                let location = required(headers, "location")?;
                let path = location.strip_prefix(self.origin()).unwrap_or(&location);
                if path.starts_with('/') && !path.starts_with("//") && headers.get("x-linked-size").is_none() {
                    url = format!("{}{path}", self.origin());
                    continue;
                }
                required(headers, "x-linked-size")?
            } else {
                required(headers, "content-range")?.rsplit('/').next().unwrap_or_default().to_owned()
            };
            let linked = headers.contains_key("x-linked-etag");
            let etag = required(headers, if linked { "x-linked-etag" } else { "etag" })?;
            let size = size.parse().map_err(|_| settings.strange("a length is no number"))?;
            let commit = required(headers, "x-repo-commit")?;
            return Ok(RemoteFile { etag: etag.replace('"', ""), commit, size });
        }
        Err(settings.strange("it redirects without end"))
    }

    /// The bytes of a file from offset `from`; `None` if the server begins elsewhere.
    pub(super) fn bytes(&self, file: &HubFile<'_>, from: u64) -> Result<Option<impl Read + use<>>, HubError> {
        let request = self.get(&file.url).header("range", format!("bytes={from}-"));
        let response = request.call().map_err(|error| self.error(file, error))?;
        match response.status().as_u16() {
            206 => Ok(Some(response.into_body().into_reader())),
            200 if from == 0 => Ok(Some(response.into_body().into_reader())),
            200 | 416 => Ok(None),
            status => Err(self.settings.refused(file.repo, Some(file.name), status)),
        }
    }

    fn error(&self, file: &HubFile<'_>, error: ureq::Error) -> HubError {
        let cause = error.to_string();
        if matches!(error, ureq::Error::TooManyRedirects | ureq::Error::BadUri(_) | ureq::Error::RedirectFailed) {
            return self.settings.strange(&cause);
        }
        match error.into_io().kind() {
            std::io::ErrorKind::UnexpectedEof => self.settings.truncated(file.shown(), &cause),
            _ => self.settings.unreachable(&cause),
        }
    }

    fn get(&self, url: &str) -> ureq::RequestBuilder<WithoutBody> {
        let request = self.agent.get(url);
        let Some(token) = self.settings.token.as_ref().filter(|_| origin(url) == self.origin()) else {
            return request;
        };
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.secret()))
            .expect("a token is printable ASCII, which is valid in a header");
        value.set_sensitive(true);
        request.header("authorization", value)
    }
}

/// What the hub answered to `whoami`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubAnswer {
    /// The HTTP status.
    pub status: u16,
    pub token: TokenState,
}

/// What the hub says of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// None was sent, or the answer says nothing of it: a mirror may not know the request.
    Unknown,
    Accepted,
    /// Not valid, or no longer.
    Refused,
}

/// Asks the hub whose the token is, for at most `timeout`. Only the status of the answer is used.
///
/// # Errors
/// No answer, with the reason; the token is not in it.
pub fn whoami(settings: &HubSettings, timeout: Duration) -> Result<HubAnswer> {
    settings.check()?;
    // A redirect is an answer too.
    let config = config().max_redirects(0).timeout_global(Some(timeout));
    let http = HubHttp { agent: config.build().new_agent(), settings };
    let response =
        http.get(&format!("{}/api/whoami-v2", settings.endpoint)).call().map_err(|error| anyhow!("{error}"))?;
    let status = response.status().as_u16();
    let token = match status {
        200 if settings.token.is_some() => TokenState::Accepted,
        401 if settings.token.is_some() => TokenState::Refused,
        _ => TokenState::Unknown,
    };
    Ok(HubAnswer { status, token })
}

fn config() -> ConfigBuilder<AgentScope> {
    Config::builder().http_status_as_error(false).user_agent(concat!("tova-bench/", env!("CARGO_PKG_VERSION")))
}

/// Scheme and host of an address.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    url[host..].find('/').map_or(url, |end| &url[..host + end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_and_host() {
        for (url, expected) in [
            ("https://huggingface.co/o/n", "https://huggingface.co"),
            ("https://huggingface.co", "https://huggingface.co"),
            ("http://127.0.0.1:80/hf/o", "http://127.0.0.1:80"),
            ("https://huggingface.co.evil/o", "https://huggingface.co.evil"),
        ] {
            assert_eq!(origin(url), expected);
        }
    }
}

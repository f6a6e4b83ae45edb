//! Requests to the hub: what a repository contains, and whether the hub answers at all. Files are left to `download`.
//!
//! The token is sent to the hub's own scheme, host and port only, never to where it redirects, and redirects are limited.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Result, anyhow};
use hf_hub::api::Siblings;
use serde::Deserialize;
use ureq::http::{HeaderMap, HeaderValue, Response};
use ureq::typestate::WithoutBody;
use ureq::{Agent, Body};

use super::repo::{HubRepo, is_commit};
use super::{HubError, HubSettings};

/// Largest number of redirects that are followed. The hub redirects once or twice.
const MAX_REDIRECTS: u32 = 5;
/// Longest time that a server may take to accept a connection, and to begin its answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Largest description of a repository in bytes; a dataset may have very many files.
const LONGEST_INFO: u64 = 64 << 20;

pub(super) type Request = ureq::RequestBuilder<WithoutBody>;

/// What the hub says of a repository.
#[derive(Deserialize)]
pub(super) struct Described {
    pub(super) sha: String,
    pub(super) siblings: Vec<Siblings>,
    /// How its licence is accepted, `auto` or `manual`; `false` of a repository without one that must be.
    #[serde(default)]
    gated: serde_json::Value,
}

impl Described {
    pub(super) fn is_gated(&self) -> bool {
        self.gated.is_string()
    }
}

/// An HTTP client for one hub.
pub(super) struct HubHttp<'a> {
    agent: Agent,
    pub(super) settings: &'a HubSettings,
}

impl<'a> HubHttp<'a> {
    pub(super) fn new(settings: &'a HubSettings) -> HubHttp<'a> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("tova-bench/", env!("CARGO_PKG_VERSION")))
            // They are followed here: the library compares hosts without their ports.
            .max_redirects(0)
            .timeout_connect(Some(TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT))
            .timeout_per_read(Some(settings.idle));
        HubHttp { agent: config.build().into(), settings }
    }

    /// Asks for the commit of the revision and the names of its files.
    pub(super) fn describe_repo(&self, repo: &HubRepo) -> Result<Described, HubError> {
        let settings = self.settings;
        let url = format!("{}/api/{}", settings.endpoint, repo.on_hub.api_url());
        let send = |request: Request| request.config().timeout_global(Some(settings.timeout)).build().call();
        let response = self.follow(&url, send, |_, _| false);
        let mut response = response.map_err(|error| settings.unreachable(error))?;
        if response.status() != 200 {
            return Err(settings.status(repo, repo, response.status().as_u16()));
        }
        let body = response.body_mut().with_config().limit(LONGEST_INFO);
        let info: Described = body.read_json().map_err(|error| settings.unexpected(error))?;
        // The commit becomes the name of a folder.
        if !is_commit(&info.sha) {
            return Err(settings.unexpected(format!("it names no commit of {repo}")));
        }
        Ok(info)
    }

    /// Error of a failed request for `file`.
    pub(super) fn error(&self, file: &str, error: ureq::Error) -> HubError {
        match &error {
            ureq::Error::TooManyRedirects | ureq::Error::BadUri(_) | ureq::Error::RedirectFailed => {
                self.settings.unexpected(error)
            }
            ureq::Error::Io(io) if io.kind() == ErrorKind::UnexpectedEof => self.settings.broken_off(file, error),
            _ => self.settings.unreachable(error),
        }
    }

    /// Follows redirects of a request to its answer, or to a redirect that `is_answer` accepts: its address, and its headers.
    pub(super) fn follow(
        &self,
        url: &str,
        send: impl Fn(Request) -> Result<Response<Body>, ureq::Error>,
        is_answer: impl Fn(&str, &HeaderMap) -> bool,
    ) -> Result<Response<Body>, ureq::Error> {
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let response = send(self.get(&url))?;
            let location = response.headers().get("location").and_then(|location| location.to_str().ok());
            match location.map(|location| target(&url, location)) {
                Some(to) if response.status().is_redirection() && !is_answer(&to, response.headers()) => url = to,
                _ => return Ok(response),
            }
        }
        Err(ureq::Error::TooManyRedirects)
    }

    /// Whether an address is the hub's own.
    pub(super) fn is_own(&self, url: &str) -> bool {
        origin(url) == origin(&self.settings.endpoint)
    }

    /// Request with the token, if it goes to the hub itself.
    fn get(&self, url: &str) -> Request {
        // A compressed answer would have another length than the file.
        let request = self.agent.get(url).header("accept-encoding", "identity");
        let Some(token) = self.settings.token.as_ref().filter(|_| self.is_own(url)) else { return request };
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.secret()))
            .expect("a token is printable ASCII, which is valid in a header");
        value.set_sensitive(true);
        request.header("authorization", value)
    }
}

/// Asks the hub whose the token is, for at most `timeout`. Returns the HTTP status: with a token, 200 accepts and
/// 401 rejects it; a mirror may not know the request and answer 404.
///
/// # Errors
/// No answer, with the reason; the token is not in it.
pub fn whoami(settings: &HubSettings, timeout: Duration) -> Result<u16> {
    let request = HubHttp::new(settings).get(&format!("{}/api/whoami-v2", settings.endpoint)).config();
    // A redirect is an answer too.
    let response = request.timeout_global(Some(timeout)).build().call();
    Ok(response.map_err(|error| anyhow!("{error}"))?.status().as_u16())
}

/// Scheme, host and port of an address, in one spelling.
fn origin(url: &str) -> String {
    let origin = url.split('/').take(3).collect::<Vec<_>>().join("/").to_ascii_lowercase();
    let usual = if origin.starts_with("https:") { ":443" } else { ":80" };
    origin.strip_suffix(usual).unwrap_or(&origin).to_owned()
}

/// Address that a redirect from `url` leads to.
fn target(url: &str, location: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    let folder = url.split(['?', '#']).next().and_then(|path| path.rsplit_once('/')).unwrap_or_default().0;
    match location {
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{host}{location}"),
        _ if location.contains("://") => location.to_owned(),
        _ => format!("{folder}/{location}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        assert_eq!(origin("https://huggingface.co"), "https://huggingface.co");
        assert_eq!(origin("HTTPS://HuggingFace.co:443/o/n"), "https://huggingface.co");
        assert_eq!(origin("http://127.0.0.1:8080/hf/o"), "http://127.0.0.1:8080");
        let (hub, others) =
            ("https://huggingface.co/x", ["http://huggingface.co/x", "https://huggingface.co:8443/x"]);
        assert!(others.iter().all(|other| origin(other) != origin(hub)));
        assert_ne!(origin("https://huggingface.co@evil.example/x"), origin(hub));
    }

    /// Addresses that a browser resolves redirects to (RFC 3986, section 5.2).
    #[test]
    fn redirects_lead_where_they_say() {
        for (location, expected) in [
            ("https://cdn.example/f?a=b://c", "https://cdn.example/f?a=b://c"),
            ("//cdn.example/f", "https://cdn.example/f"),
            ("/api/f?u=http://x", "https://hub.example/api/f?u=http://x"),
            ("g", "https://hub.example/o/g"),
        ] {
            assert_eq!(target("https://hub.example/o/f?q=1/2", location), expected);
        }
    }
}

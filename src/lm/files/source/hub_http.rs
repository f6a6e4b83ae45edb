//! Requests to the hub: what a repository contains, and whether the hub answers at all. Files are left to `download`.
//!
//! The token is sent to the hub's own host only, never to where it redirects, and redirects are limited.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Result, anyhow};
use hf_hub::api::RepoInfo;
use ureq::Agent;
use ureq::config::RedirectAuthHeaders;
use ureq::http::HeaderValue;
use ureq::typestate::WithoutBody;

use super::repo::{HubRepo, is_commit};
use super::{HubError, HubSettings};

/// The hub redirects once or twice.
pub(super) const MAX_REDIRECTS: u32 = 5;
/// How long a server may take to accept a connection, and to begin its answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest description of a repository that is read; a dataset may have very many files.
const LONGEST_INFO: u64 = 64 << 20;

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
            .max_redirects(MAX_REDIRECTS)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT));
        HubHttp { agent: config.build().into(), settings }
    }

    /// The commit of the revision and the names of its files.
    pub(super) fn describe_repo(&self, repo: &HubRepo) -> Result<RepoInfo, HubError> {
        let settings = self.settings;
        let request = self.get(&format!("{}/api/{}", settings.endpoint, repo.on_hub.api_url())).config();
        let response = request.timeout_global(Some(settings.timeout)).build().call();
        let mut response = response.map_err(|error| settings.unreachable(error))?;
        if response.status() != 200 {
            return Err(settings.status(repo, repo, response.status().as_u16()));
        }
        let body = response.body_mut().with_config().limit(LONGEST_INFO);
        let info: RepoInfo = body.read_json().map_err(|error| settings.unexpected(error))?;
        // The commit becomes the name of a folder.
        if !is_commit(&info.sha) {
            return Err(settings.unexpected(format!("it names no commit of {repo}")));
        }
        Ok(info)
    }

    /// The error of a failed request for `file`.
    pub(super) fn error(&self, file: &str, error: ureq::Error) -> HubError {
        match &error {
            ureq::Error::TooManyRedirects | ureq::Error::BadUri(_) | ureq::Error::RedirectFailed => {
                self.settings.unexpected(error)
            }
            ureq::Error::Io(io) if io.kind() == ErrorKind::UnexpectedEof => self.settings.broken_off(file, error),
            _ => self.settings.unreachable(error),
        }
    }

    /// A request with the token; `url` must be on the hub's own host.
    pub(super) fn get(&self, url: &str) -> ureq::RequestBuilder<WithoutBody> {
        let request = self.agent.get(url);
        let Some(token) = &self.settings.token else { return request };
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
    let response = request.max_redirects(0).timeout_global(Some(timeout)).build().call();
    Ok(response.map_err(|error| anyhow!("{error}"))?.status().as_u16())
}

/// Scheme and host of an address.
pub(super) fn origin(url: &str) -> String {
    url.split('/').take(3).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_and_host() {
        assert_eq!(origin("https://huggingface.co"), "https://huggingface.co");
        assert_eq!(origin("http://127.0.0.1:80/hf/o"), "http://127.0.0.1:80");
    }
}

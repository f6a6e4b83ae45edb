//! Requests to the hub: the files of a repository, the etag and size of a file, its bytes, and whether the hub
//! answers at all.
//!
//! The token is sent to the hub's own host only, never to where it redirects, and redirects are limited. Where
//! bytes go and when to retry is decided in `download`.

use std::fmt::Display;
use std::io::{ErrorKind, Read};
use std::time::Duration;

use anyhow::{Result, anyhow};
use hf_hub::api::RepoInfo;
use ureq::Agent;
use ureq::config::RedirectAuthHeaders;
use ureq::http::HeaderValue;
use ureq::typestate::WithoutBody;

use super::repo::{HubRepo, is_commit, is_plain};
use super::{HubError, HubSettings};

/// The hub redirects once or twice.
const MAX_REDIRECTS: u32 = 5;
/// How long a server may take to accept a connection, and to begin its answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest description of a repository that is read; a dataset may have very many files.
const LONGEST_INFO: u64 = 64 << 20;

/// An HTTP client for one hub.
pub(super) struct HubHttp<'a> {
    agent: Agent,
    settings: &'a HubSettings,
}

/// A file of a repository at a commit.
pub(super) struct HubFile<'a> {
    pub(super) repo: &'a HubRepo,
    pub(super) commit: &'a str,
    pub(super) name: &'a str,
}

/// As messages show it.
impl Display for HubFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.name, self.repo)
    }
}

/// What the hub says of the content of a file.
pub(super) struct Content {
    /// The name of the blob in the cache; the SHA-256 if the file is large.
    pub(super) etag: String,
    pub(super) size: u64,
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

    /// Etag and size of a file. For a large file the hub states them in its redirect to wherever the bytes are, so
    /// only the hub itself is asked.
    pub(super) fn describe_file(&self, file: &HubFile<'_>) -> Result<Content, HubError> {
        let settings = self.settings;
        let mut url = self.url(file);
        for _ in 0..=MAX_REDIRECTS {
            let request = self.get(&url).header("range", "bytes=0-0").config().max_redirects(0).build();
            let response = request.call().map_err(|error| self.error(file, error))?;
            let (status, headers) = (response.status(), response.headers());
            if !status.is_success() && !status.is_redirection() {
                return Err(settings.status(file.repo, file, status.as_u16()));
            }
            let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let (linked_etag, linked_size) = (header("x-linked-etag"), header("x-linked-size"));
            let origin = origin(&settings.endpoint);
            let path = header("location").strip_prefix(origin).unwrap_or(header("location"));
            let is_own = path.starts_with('/') && !path.starts_with("//");
            if status.is_redirection() && is_own && linked_size.is_empty() {
                url = format!("{origin}{path}");
                continue;
            }
            let size = match status.is_redirection() {
                true => linked_size,
                false => header("content-range").rsplit('/').next().unwrap_or_default(),
            };
            let etag = if linked_etag.is_empty() { header("etag") } else { linked_etag };
            let etag = etag.trim_start_matches("W/").trim_matches('"').to_owned();
            let sound = is_plain(&etag, b"-_") && header("x-repo-commit") == file.commit;
            return match size.parse() {
                Ok(size) if sound => Ok(Content { etag, size }),
                _ => Err(settings.unexpected(format!("{file} has another commit, no length or no usable etag"))),
            };
        }
        Err(settings.unexpected("it redirects without end"))
    }

    /// The bytes of a file from offset `from`; `None` if the server begins elsewhere.
    pub(super) fn bytes(&self, file: &HubFile<'_>, from: u64) -> Result<Option<impl Read + use<>>, HubError> {
        let request = self.get(&self.url(file)).header("range", format!("bytes={from}-"));
        let response = request.call().map_err(|error| self.error(file, error))?;
        match response.status().as_u16() {
            206 => Ok(Some(response.into_body().into_reader())),
            200 if from == 0 => Ok(Some(response.into_body().into_reader())),
            200 | 416 => Ok(None),
            status => Err(self.settings.status(file.repo, file, status)),
        }
    }

    fn url(&self, HubFile { repo, commit, name }: &HubFile<'_>) -> String {
        format!("{}/{}/resolve/{commit}/{name}", self.settings.endpoint, repo.on_hub.url())
    }

    fn error(&self, file: &HubFile<'_>, error: ureq::Error) -> HubError {
        match &error {
            ureq::Error::TooManyRedirects | ureq::Error::BadUri(_) | ureq::Error::RedirectFailed => {
                self.settings.unexpected(error)
            }
            ureq::Error::Io(io) if io.kind() == ErrorKind::UnexpectedEof => self.settings.broken_off(file, error),
            _ => self.settings.unreachable(error),
        }
    }

    /// A request with the token; `url` must be on the hub's own host.
    fn get(&self, url: &str) -> ureq::RequestBuilder<WithoutBody> {
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
            ("https://huggingface.co", "https://huggingface.co"),
            ("http://127.0.0.1:80/hf/o", "http://127.0.0.1:80"),
            ("https://huggingface.co.evil/o", "https://huggingface.co.evil"),
        ] {
            assert_eq!(origin(url), expected);
        }
    }
}

//! A file of the hub over HTTP: what it is called and how long it is, and its bytes.
//!
//! Knows the hub's headers and believes none of them: a redirect is followed so many times, the token goes to the hub's own
//! address and to nobody it points to, and whoever sends more than was announced is not listened to. Where bytes go, and when
//! to try again, is the business of `download`.

use std::io::Read;
use std::time::Duration;

use ureq::Agent;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{HeaderMap, HeaderValue};

use super::settings::{HubSettings, Token};

/// A hub redirects once or twice.
const MOST_REDIRECTS: u32 = 5;
/// How long a server may take to be reached and to begin its answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The client, and who is asked.
pub(super) struct HubHttp {
    agent: Agent,
    /// Scheme and host of the hub.
    origin: String,
    token: Option<Token>,
}

/// What the hub says of a file. Nothing of it is checked yet.
pub(super) struct RemoteFile {
    pub(super) etag: String,
    pub(super) commit: String,
    pub(super) size: u64,
}

/// Why there is no answer.
pub(super) enum HttpError {
    Status(u16),
    /// The server cannot be reached, or breaks off before its answer.
    Unreachable(String),
    /// It ends in the middle of an answer.
    Truncated(String),
    /// It does not speak as a hub does.
    Strange(String),
}

impl HubHttp {
    pub(super) fn new(settings: &HubSettings) -> HubHttp {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(MOST_REDIRECTS)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .user_agent(concat!("tova-bench/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        HubHttp { agent, origin: origin(&settings.endpoint).to_owned(), token: settings.token.clone() }
    }

    /// What a file is. The hub says it of a large file in its redirect to wherever the bytes are, so nobody else is asked.
    pub(super) fn describe(&self, url: &str) -> Result<RemoteFile, HttpError> {
        let mut url = url.to_owned();
        for _ in 0..=MOST_REDIRECTS {
            let request = self.request(&url, "bytes=0-0").config().max_redirects(0).build();
            let response = request.call().map_err(http_error)?;
            let (status, headers) = (response.status(), response.headers());
            if !status.is_success() && !status.is_redirection() {
                return Err(HttpError::Status(status.as_u16()));
            }
            let size = if status.is_redirection() {
                let location = required(headers, "location")?;
                let path = location.strip_prefix(&self.origin).unwrap_or(location);
                if path.starts_with('/') && !path.starts_with("//") && headers.get("x-linked-size").is_none() {
                    url = format!("{}{path}", self.origin);
                    continue;
                }
                required(headers, "x-linked-size")?
            } else {
                required(headers, "content-range")?.rsplit('/').next().unwrap_or_default()
            };
            let etag = match headers.get("x-linked-etag") {
                Some(_) => required(headers, "x-linked-etag")?,
                None => required(headers, "etag")?,
            };
            let size = size.parse().map_err(|_| HttpError::Strange("a length is no number".to_owned()))?;
            let commit = required(headers, "x-repo-commit")?.to_owned();
            return Ok(RemoteFile { etag: etag.replace('"', ""), commit, size });
        }
        Err(HttpError::Strange("it redirects without end".to_owned()))
    }

    /// The bytes of a file from a place on; `None` where the server begins elsewhere.
    pub(super) fn bytes(&self, url: &str, from: u64) -> Result<Option<impl Read + use<>>, HttpError> {
        let response = self.request(url, &format!("bytes={from}-")).call().map_err(http_error)?;
        match response.status().as_u16() {
            206 => Ok(Some(response.into_body().into_reader())),
            200 if from == 0 => Ok(Some(response.into_body().into_reader())),
            200 | 416 => Ok(None),
            status => Err(HttpError::Status(status)),
        }
    }

    fn request(&self, url: &str, range: &str) -> ureq::RequestBuilder<ureq::typestate::WithoutBody> {
        let request = self.agent.get(url).header("range", range);
        let Some(token) = self.token.as_ref().filter(|_| origin(url) == self.origin) else { return request };
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.secret()))
            .expect("printable ASCII, as a token is, can stand in a header");
        value.set_sensitive(true);
        request.header("authorization", value)
    }
}

/// Scheme and host of an address.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    url[host..].find('/').map_or(url, |end| &url[..host + end])
}

fn required<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, HttpError> {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.ok_or_else(|| HttpError::Strange(format!("its header {name} is missing or unreadable")))
}

fn http_error(error: ureq::Error) -> HttpError {
    let cause = error.to_string();
    if matches!(error, ureq::Error::TooManyRedirects | ureq::Error::BadUri(_) | ureq::Error::RedirectFailed) {
        return HttpError::Strange(cause);
    }
    match error.into_io().kind() {
        std::io::ErrorKind::UnexpectedEof => HttpError::Truncated(cause),
        _ => HttpError::Unreachable(cause),
    }
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

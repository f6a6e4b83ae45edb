//! Errors of the hub, each with what to do about it. No message contains the token or a signed URL.
//!
//! The variants are those that callers distinguish: an unreachable hub is not a failure if the cache has the files.

use std::fmt::Display;
use std::io;

use thiserror::Error;

use super::HubSettings;
use super::repo::HubRepo;

/// A failure to get a file of the hub.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
pub enum HubError {
    /// The hub gives no answer, or says that it has trouble.
    Unreachable(String),
    /// The hub denies access or does not answer as the hub does.
    Refused(String),
    /// A transfer broke off or arrived damaged.
    Transfer(String),
    /// The hub may not be asked, and the file is not in the cache.
    Offline(String),
    /// Neither another attempt nor the cache can help.
    Final(String),
}

impl HubSettings {
    pub(super) fn unreachable(&self, cause: impl Display) -> HubError {
        HubError::Unreachable(self.redact(format!(
            "the hub at {} cannot be reached ({cause}): check the network, the proxy variables and HF_ENDPOINT, or \
             fetch the files on a machine with network, such as a login node",
            self.endpoint
        )))
    }

    /// Error of a server that does not answer as the hub does.
    pub(super) fn unexpected(&self, cause: impl Display) -> HubError {
        HubError::Refused(self.redact(format!(
            "{} does not answer as the hub does ({cause}): check HF_ENDPOINT, and whether a proxy or login page \
             stands in between",
            self.endpoint
        )))
    }

    /// Error for a status other than success of `what`, a repository or a file of it.
    pub(super) fn status(&self, repo: &HubRepo, what: impl Display, status: u16) -> HubError {
        let page = format!("{}/{}", self.endpoint, repo.on_hub.url());
        match status {
            401 | 403 => HubError::Refused(format!(
                "the hub denies access to {what} (status {status}): check the spelling; if it is gated, accept \
                 its licence at {page}; then set HF_TOKEN to a token that may read it"
            )),
            404 => {
                HubError::Final(format!("the hub has no {what}: check the spelling and the revision at {page}"))
            }
            429 | 500.. => self.unreachable(format!("status {status}")),
            _ => self.unexpected(format!("status {status}")),
        }
    }

    /// Error of a cache that is incomplete while the hub may not be asked.
    pub(super) fn offline(&self, repo: &HubRepo) -> HubError {
        HubError::Offline(format!(
            "HF_HUB_OFFLINE is set and not all of {repo} is in the cache {}: run once without HF_HUB_OFFLINE, on a \
             machine with network such as a login node",
            self.cache_dir.display()
        ))
    }

    pub(super) fn broken_off(&self, what: impl Display, cause: impl Display) -> HubError {
        HubError::Transfer(self.redact(format!(
            "the download of {what} broke off ({cause}): run again, it continues where it stopped"
        )))
    }

    /// Error of a cache that cannot be written.
    pub(super) fn disk(&self, error: io::Error) -> HubError {
        HubError::Final(format!(
            "the cache {} cannot be written ({error}): free some space or set HF_HOME to a folder that can be written",
            self.cache_dir.display()
        ))
    }

    /// Removes the token, which a server may send back in an address or an error.
    fn redact(&self, text: String) -> String {
        self.token.as_ref().map_or(text.clone(), |token| text.replace(token.secret(), "[token]"))
    }
}

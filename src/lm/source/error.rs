//! Errors of downloads, each with what to do about it.
//!
//! It is an enumeration because callers branch on the kind: an unreachable hub is no failure if the cache has the
//! files. No variant contains the token or a signed URL.

use std::path::PathBuf;

use thiserror::Error;

/// A failure to get a file of the hub.
#[derive(Debug, Error)]
pub enum HubError {
    #[error(
        "the hub at {endpoint} cannot be reached ({cause}): check the network, the proxy variables and HF_ENDPOINT, \
         or fetch the files on a machine with network, such as a login node"
    )]
    Unreachable { endpoint: String, cause: String },

    #[error(
        "the hub denies access to {what} (status {status}): check the spelling; if it is gated, accept its licence \
         at {page}; then {}",
        if *.token { "set HF_TOKEN to a token that may read it, the present one may not" }
        else { "set HF_TOKEN to a token of your account" }
    )]
    Denied { what: String, status: u16, page: String, token: bool },

    #[error("the hub has no {what}: check the spelling{} at {page}", if *.revision { " and the revision" } else { "" })]
    NotFound { what: String, page: String, revision: bool },

    #[error(
        "HF_HUB_OFFLINE is set and {file} of {what} is missing from the cache {}: run once without HF_HUB_OFFLINE, on a \
         machine with network such as a login node",
        .cache.display()
    )]
    Offline { file: String, what: String, cache: PathBuf },

    #[error("the download of {what} broke off ({cause}): run again, it continues where it stopped")]
    Truncated { what: String, cause: String },

    #[error(
        "{what} arrived damaged ({cause}) and was deleted: run again; if it stays, a proxy or mirror changes files, \
         check HF_ENDPOINT"
    )]
    Damaged { what: String, cause: String },

    #[error(
        "the cache {} cannot be written ({cause}): free some space or set HF_HOME to a folder that can be written",
        .cache.display()
    )]
    Disk { cache: PathBuf, cause: String },

    #[error(
        "{endpoint} does not answer as the hub does ({cause}): check HF_ENDPOINT, and whether a proxy or login page \
         stands in between"
    )]
    Strange { endpoint: String, cause: String },

    #[error("{0}")]
    Name(String),
}

impl HubError {
    /// Whether cached files may be used instead: the hub did not say that they do not exist.
    pub(super) fn allows_cache(&self) -> bool {
        matches!(self, HubError::Unreachable { .. } | HubError::Denied { .. } | HubError::Strange { .. })
    }

    /// Whether another attempt may succeed.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, HubError::Unreachable { .. } | HubError::Truncated { .. } | HubError::Damaged { .. })
    }
}

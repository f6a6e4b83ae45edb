//! A repository of the hub at a revision: its addresses, its folder in the cache, and what it means when the hub
//! refuses it.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::repo::{RepoId, check_revision};
use super::{DEFAULT_REVISION, HubError, HubSettings};

/// A repository at a revision.
pub(super) struct RepoRequest {
    kind: RepoKind,
    id: RepoId,
    pub(super) revision: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RepoKind {
    Model,
    Dataset,
}

impl RepoKind {
    fn plural(self) -> &'static str {
        match self {
            RepoKind::Model => "models",
            RepoKind::Dataset => "datasets",
        }
    }
}

impl RepoRequest {
    pub(super) fn new(id: &RepoId, kind: RepoKind, revision: &str) -> Result<Self> {
        check_revision(revision).with_context(|| format!("`{id}@{revision}`"))?;
        Ok(RepoRequest { kind, id: id.clone(), revision: revision.to_owned() })
    }

    /// `datasets/owner/name`; models have no prefix.
    fn name(&self) -> String {
        let dataset = if self.kind == RepoKind::Dataset { "datasets/" } else { "" };
        format!("{dataset}{}", self.id)
    }

    /// The address of the commit and the names of the files.
    pub(super) fn info_url(&self, endpoint: &str) -> String {
        let revision = self.revision.replace('/', "%2F");
        format!("{endpoint}/api/{}/{}/revision/{revision}", self.kind.plural(), self.id)
    }

    /// The address of a file.
    pub(super) fn file_url(&self, endpoint: &str, commit: &str, file: &str) -> String {
        format!("{endpoint}/{}/resolve/{commit}/{file}", self.name())
    }

    /// The folder in the cache, with `blobs`, `refs` and `snapshots`.
    pub(super) fn folder(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}--{}", self.kind.plural(), self.id.as_str().replace('/', "--")))
    }

    /// What the statuses 401, 403 and 404 mean for the repository, or for a file of it.
    pub(super) fn denied(&self, settings: &HubSettings, file: Option<&str>, status: u16) -> Option<HubError> {
        let what = match file {
            Some(file) => format!("{file} of {self}"),
            None => self.to_string(),
        };
        let page = format!("{}/{}", settings.endpoint, self.name());
        match status {
            401 | 403 => Some(HubError::Denied { what, status, page, token: settings.token.is_some() }),
            404 => Some(HubError::NotFound { what, page, revision: self.revision != DEFAULT_REVISION }),
            _ => None,
        }
    }
}

impl fmt::Display for RepoRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name(), self.revision)
    }
}

//! A repository of the hub at a revision, and what it means when the hub refuses it.

use std::fmt;

use anyhow::{Context, Result};
use hf_hub::{Repo, RepoType};

use super::repo::{RepoId, check_revision};
use super::{DEFAULT_REVISION, HubError, HubSettings};

/// A repository at a revision.
pub(super) struct RepoRequest {
    pub(super) id: RepoId,
    pub(super) kind: RepoType,
    pub(super) revision: String,
    pub(super) repo: Repo,
}

impl RepoRequest {
    pub(super) fn new(id: &RepoId, kind: RepoType, revision: &str) -> Result<Self> {
        check_revision(revision).with_context(|| format!("`{id}@{revision}`"))?;
        let repo = Repo::with_revision(id.as_str().to_owned(), kind, revision.to_owned());
        Ok(RepoRequest { id: id.clone(), kind, revision: revision.to_owned(), repo })
    }

    /// What the statuses 401, 403 and 404 mean for the repository, or for a file of it.
    pub(super) fn denied(&self, settings: &HubSettings, file: Option<&str>, status: u16) -> Option<HubError> {
        let what = match file {
            Some(file) => format!("{file} of {self}"),
            None => self.to_string(),
        };
        let page = format!("{}/{}", settings.endpoint, self.repo.url());
        match status {
            401 | 403 => Some(HubError::Denied { what, status, page, token: settings.token.is_some() }),
            404 => Some(HubError::NotFound { what, page, revision: self.revision != DEFAULT_REVISION }),
            _ => None,
        }
    }
}

impl fmt::Display for RepoRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dataset = if matches!(self.kind, RepoType::Dataset) { "datasets/" } else { "" };
        write!(f, "{dataset}{}@{}", self.id, self.revision)
    }
}

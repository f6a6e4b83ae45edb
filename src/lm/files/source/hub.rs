//! The hub and its cache: which snapshot a request means, and whether the network is needed for it.
//!
//! The cache has the layout that all Hugging Face tools share (`blobs`, `refs`, `snapshots`), so downloads by
//! Python are found here and the reverse. All files of one result are of one commit; the ref of a branch moves
//! only when they are complete.

use std::path::PathBuf;

use anyhow::Result;
use hf_hub::RepoType;

use super::checkpoint::CheckpointFiles;
use super::download::Downloader;
use super::hub_http::{Described, HubHttp};
use super::repo::{HubRepo, RepoId, is_commit};
use super::snapshot::{Origin, Snapshot, names_in};
use super::{DEFAULT_REVISION, DownloadProgress, HubError, HubSettings};
use crate::bounded_read;

/// Largest size of a ref in bytes. A ref holds a commit, which has forty.
const LONGEST_REF: u64 = 4096;

/// File that says which configurations and splits a data set has.
const README: &str = "README.md";
const LONGEST_README: u64 = 1 << 22;

/// Access to the hub, with its cache on this machine.
pub struct Hub<'a> {
    pub settings: &'a HubSettings,
    pub progress: &'a dyn DownloadProgress,
}

impl Hub<'_> {
    /// Calls `take` with a model repository at a branch, tag or commit, whose name was checked. A commit never changes, so files
    /// that are complete in the cache are taken from there. Without a tokenizer in the cache, the hub is asked whether there is
    /// one.
    pub(super) fn in_model(
        &self,
        repo: &RepoId,
        revision: &str,
        take: impl Fn(&Snapshot<'_>) -> Result<CheckpointFiles>,
    ) -> Result<CheckpointFiles> {
        let repo = HubRepo::new(&self.settings.cache_dir, RepoType::Model, repo, revision);
        if is_commit(revision)
            && let Some(cached) = self.cached(&repo, self.settings.offline(&repo))
            && let Ok(taken) = take(&cached)
            && taken.has_tokenizer()
        {
            return Ok(taken);
        }
        self.with_snapshot(&repo, take)
    }

    /// Finds the files of a dataset repository whose names are `wanted`, in the order of the repository; none is an error.
    pub fn dataset_files(&self, repo: &RepoId, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
        let repo = HubRepo::new(&self.settings.cache_dir, RepoType::Dataset, repo, DEFAULT_REVISION);
        self.with_snapshot(&repo, |snapshot| snapshot.paths_wanted(&wanted))
    }

    /// Finds the files of a dataset repository that `choose` takes, given the names of all files and the text of README.md.
    pub fn dataset_rows(
        &self,
        repo: &RepoId,
        choose: impl Fn(&[String], &str) -> Result<Vec<String>>,
    ) -> Result<Vec<PathBuf>> {
        let repo = HubRepo::new(&self.settings.cache_dir, RepoType::Dataset, repo, DEFAULT_REVISION);
        self.with_snapshot(&repo, |snapshot| {
            let readme = if snapshot.has(README) {
                bounded_read::text(&snapshot.path(README)?, LONGEST_README)?
            } else {
                String::new()
            };
            let chosen = choose(&snapshot.all_names(), &readme)?;
            snapshot.paths_wanted(|name| chosen.iter().any(|chosen| chosen == name))
        })
    }

    /// Calls `take` with the snapshot of the hub, or with that of the cache if the hub cannot be asked; the latter with a note
    /// unless HF_HUB_OFFLINE is set.
    fn with_snapshot<T>(&self, repo: &HubRepo, take: impl Fn(&Snapshot<'_>) -> Result<T>) -> Result<T> {
        let is_offline = self.settings.offline;
        let answer = if is_offline { Err(self.settings.offline(repo).into()) } else { self.online(repo, &take) };
        let Err(error) = answer else { return answer };
        // Also when the hub denies access: the cache may have been filled by someone with a token.
        let cause = match error.downcast_ref() {
            Some(cause @ (HubError::Unreachable(_) | HubError::Refused(_) | HubError::Offline(_))) => cause,
            _ => return Err(error),
        };
        let Some(cached) = self.cached(repo, cause.clone()) else { return Err(error) };
        let taken = take(&cached)?;
        if !is_offline {
            let commit = cached.commit.unwrap_or_default();
            self.progress.note(&format!("{cause}; using {repo} from the cache, commit {commit}"));
        }
        Ok(taken)
    }

    fn online<T>(&self, repo: &HubRepo, take: impl Fn(&Snapshot<'_>) -> Result<T>) -> Result<T> {
        let settings = self.settings;
        if let Some(fault) = &settings.token_fault {
            return Err(
                HubError::Refused(format!("{fault}; correct or remove it to ask the hub for {repo}")).into()
            );
        }
        let http = HubHttp::new(settings);
        let described = http.describe_repo(repo)?;
        if described.is_gated() {
            let page = format!("{}/{}", settings.endpoint, repo.on_hub.url());
            self.progress.note(&format!("{repo} is gated: its licence must be accepted at {page}, and HF_TOKEN set to a token that may read it"));
        }
        let Described { sha: commit, siblings, .. } = described;
        let downloader = Downloader { http, progress: self.progress, repo, commit: commit.clone() };
        let taken = take(&Snapshot {
            origin: Origin::Hub(downloader),
            place: repo.to_string(),
            folder: repo.in_cache.pointer_path(&commit),
            names: siblings.into_iter().map(|sibling| sibling.rfilename).collect(),
            commit: Some(commit.clone()),
        })?;
        // The ref is not written again, because the cache may be read-only.
        if repo.on_hub.revision() != commit && self.cached_ref(repo).as_ref() != Some(&commit) {
            repo.in_cache.create_ref(&commit).map_err(|error| settings.disk(error))?;
        }
        Ok(taken)
    }

    /// Snapshot of a revision in the cache. `cause` says why the hub is not asked.
    fn cached(&self, repo: &HubRepo, cause: HubError) -> Option<Snapshot<'_>> {
        let revision = repo.on_hub.revision();
        let commit = if is_commit(revision) { revision.to_owned() } else { self.cached_ref(repo)? };
        let folder = repo.in_cache.pointer_path(&commit);
        (is_commit(&commit) && folder.is_dir()).then(|| Snapshot {
            origin: Origin::Cache(cause),
            place: format!("the cache of {repo}"),
            names: names_in(&folder),
            folder,
            commit: Some(commit),
        })
    }

    /// Commit that a branch or tag means in the cache.
    fn cached_ref(&self, repo: &HubRepo) -> Option<String> {
        let folder = self.settings.cache_dir.join(repo.on_hub.folder_name());
        let file = folder.join("refs").join(repo.on_hub.revision());
        Some(bounded_read::text(&file, LONGEST_REF).ok()?.trim().to_owned())
    }
}

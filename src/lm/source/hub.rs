//! The hub and its cache: which snapshot a request means, and whether the network is needed for it.
//!
//! The cache has the layout that all Hugging Face tools share (`blobs`, `refs`, `snapshots`), so downloads by
//! Python are found here and the reverse. All files of one result are of one commit; the ref of a branch moves
//! only when they are complete.

use std::path::PathBuf;

use anyhow::Result;
use hf_hub::api::RepoInfo;
use hf_hub::api::sync::{Api, ApiBuilder};
use hf_hub::{Cache, Repo, RepoType};

use super::checkpoint::{CheckpointFiles, gather};
use super::download::HubSnapshot;
use super::hub_http::HubHttp;
use super::repo::{RepoId, is_commit, repo_at, shown};
use super::snapshot::{CachedSnapshot, Snapshot};
use super::{DEFAULT_REVISION, DownloadProgress, HubError, HubSettings};
use crate::bounded_read;

/// The largest description of a repository that is read; a dataset may have very many files.
const LONGEST_INFO: u64 = 64 << 20;
/// A ref holds a commit, which has forty bytes.
const LONGEST_REF: u64 = 4096;

/// Files of a dataset, all of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetFiles {
    /// In the order of their names in the repository.
    pub files: Vec<PathBuf>,
    pub commit: String,
}

/// Access to the hub, with its cache on this machine.
pub struct Hub<'a> {
    settings: &'a HubSettings,
    progress: &'a dyn DownloadProgress,
    api: Api,
    cache: Cache,
}

impl<'a> Hub<'a> {
    pub fn new(settings: &'a HubSettings, progress: &'a dyn DownloadProgress) -> Result<Self> {
        settings.check()?;
        let cache = Cache::new(settings.cache_dir.clone());
        let api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(settings.endpoint.clone())
            .with_token(settings.token.as_ref().map(|token| token.secret().to_owned()))
            .with_progress(false)
            .with_retries(0)
            .with_user_agent("tova-bench", env!("CARGO_PKG_VERSION"))
            .build()?;
        Ok(Hub { settings, progress, api, cache })
    }

    /// The checkpoint of a model repository at a branch, tag or commit.
    pub fn checkpoint(&self, repo: &RepoId, revision: &str) -> Result<CheckpointFiles> {
        let repo = repo_at(repo, RepoType::Model, revision)?;
        // A commit never changes. But without a tokenizer in the cache, ask the hub whether there is one.
        if is_commit(revision)
            && let Some(cached) = self.cached(&repo, None)
            && let Ok(files) = gather(&cached)
            && files.tokenizer.is_some()
        {
            return Ok(files);
        }
        self.with_snapshot(&repo, gather)
    }

    /// The files of a dataset repository whose names are `wanted`; none is an error.
    pub fn dataset_files(
        &self,
        repo: &RepoId,
        revision: Option<&str>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<DatasetFiles> {
        let repo = repo_at(repo, RepoType::Dataset, revision.unwrap_or(DEFAULT_REVISION))?;
        self.with_snapshot(&repo, |snapshot| {
            let names = snapshot.names_wanted(&wanted)?;
            let files = names.iter().map(|name| snapshot.path(name)).collect::<Result<_>>()?;
            Ok(DatasetFiles { files, commit: snapshot.commit().unwrap_or_default().to_owned() })
        })
    }

    /// Uses the hub, or if it cannot be asked the cache, with a note unless HF_HUB_OFFLINE is set.
    fn with_snapshot<T>(&self, repo: &Repo, take: impl Fn(&Snapshot<'_>) -> Result<T>) -> Result<T> {
        if self.settings.offline {
            return match self.cached(repo, None) {
                Some(cached) => take(&cached),
                None => Err(HubError::Offline {
                    file: "every file".to_owned(),
                    what: shown(repo),
                    cache: self.settings.cache_dir.clone(),
                }
                .into()),
            };
        }
        let error = match self.online(repo, &take) {
            Ok(taken) => return Ok(taken),
            Err(error) => error,
        };
        // Also when the hub denies access: the cache may have been filled by someone with a token.
        let cause = error.downcast_ref::<HubError>().filter(|error| error.allows_cache());
        let Some(cause) = cause.map(HubError::to_string) else { return Err(error) };
        let Some(cached) = self.cached(repo, Some(cause.clone())) else { return Err(error) };
        let taken = take(&cached)?;
        let commit = cached.commit().unwrap_or_default();
        self.progress.note(&format!("{cause}; using {} from the cache, commit {commit}", shown(repo)));
        Ok(taken)
    }

    fn online<T>(&self, repo: &Repo, take: impl Fn(&Snapshot<'_>) -> Result<T>) -> Result<T> {
        let info = self.ask(repo)?;
        let taken = take(&Snapshot::Hub(HubSnapshot {
            settings: self.settings,
            progress: self.progress,
            repo,
            commit: info.sha.clone(),
            names: info.siblings.into_iter().map(|sibling| sibling.rfilename).collect(),
            http: HubHttp::new(self.settings),
            cache: self.cache.repo(repo.clone()),
        }))?;
        // The ref is not written again, because the cache may be read-only.
        if repo.revision() != info.sha && self.cached_ref(repo).is_none_or(|known| known != info.sha) {
            let written = self.cache.repo(repo.clone()).create_ref(&info.sha);
            written.map_err(|error| self.settings.disk(&error))?;
        }
        Ok(taken)
    }

    /// The commit of the revision and the names of its files.
    fn ask(&self, repo: &Repo) -> Result<RepoInfo, HubError> {
        let settings = self.settings;
        let mut response = self
            .api
            .repo(repo.clone())
            .info_request()
            .config()
            .http_status_as_error(false)
            .timeout_global(Some(settings.timeout))
            .build()
            .call()
            .map_err(|error| settings.unreachable(&error.to_string()))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(settings.refused(repo, None, status));
        }
        let info: RepoInfo = response
            .body_mut()
            .with_config()
            .limit(LONGEST_INFO)
            .read_json()
            .map_err(|error| settings.strange(&error.to_string()))?;
        // The commit becomes the name of a folder.
        if !is_commit(&info.sha) {
            return Err(settings.strange(&format!("it names no commit of {}", shown(repo))));
        }
        Ok(info)
    }

    /// The cached snapshot of a revision. `cause` is why the hub did not help, if it was asked.
    fn cached<'r>(&'r self, repo: &'r Repo, cause: Option<String>) -> Option<Snapshot<'r>> {
        let commit = if is_commit(repo.revision()) { repo.revision().to_owned() } else { self.cached_ref(repo)? };
        let folder = self.cache.repo(repo.clone()).pointer_path(&commit);
        let cache_dir = &self.settings.cache_dir;
        (is_commit(&commit) && folder.is_dir()).then_some(Snapshot::Cache(CachedSnapshot {
            repo,
            cache_dir,
            folder,
            commit,
            cause,
        }))
    }

    /// The commit that a branch or tag means in the cache.
    fn cached_ref(&self, repo: &Repo) -> Option<String> {
        let file = self.cache.path().join(repo.folder_name()).join("refs").join(repo.revision());
        Some(bounded_read::text(&file, LONGEST_REF).ok()?.trim().to_owned())
    }
}

//! The hub and its cache: which snapshot a request means, and whether the network is needed for it.
//!
//! The cache has the layout that all Hugging Face tools share (`blobs`, `refs`, `snapshots`), so downloads by
//! Python are found here and the reverse. All files of one result are of one commit; the ref of a branch moves
//! only when they are complete.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use hf_hub::api::RepoInfo;
use hf_hub::api::sync::{Api, ApiBuilder};
use hf_hub::{Cache, RepoType};

use super::cached::{CachedSnapshot, not_cached};
use super::checkpoint::{CheckpointFiles, Snapshot, gather};
use super::download::HubSnapshot;
use super::repo::{RepoId, check_inside, is_commit};
use super::repo_request::RepoRequest;
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
        let request = RepoRequest::new(repo, RepoType::Model, revision)?;
        // A commit never changes. But without a tokenizer in the cache, ask the hub whether there is one.
        if is_commit(revision)
            && let Some(cached) = self.cached(&request, None)
            && let Ok(files) = gather(&cached)
            && files.tokenizer.is_some()
        {
            return Ok(files);
        }
        self.online_or_cached(&request, |download| gather(download), |cached| gather(cached))
    }

    /// The files of a dataset repository whose names are `wanted`; none is an error.
    pub fn dataset_files(
        &self,
        repo: &RepoId,
        revision: Option<&str>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<DatasetFiles> {
        let request = RepoRequest::new(repo, RepoType::Dataset, revision.unwrap_or(DEFAULT_REVISION))?;
        self.online_or_cached(
            &request,
            |download| {
                let names: Vec<&String> = download.files().iter().filter(|name| wanted(name)).collect();
                names.iter().try_for_each(|name| check_inside(name))?;
                ensure!(
                    !names.is_empty(),
                    "{request} has none of the files wanted: it has {}",
                    some_of(download.files())
                );
                let files = names.iter().map(|name| Ok(download.fetch(name)?)).collect::<Result<_>>()?;
                Ok(DatasetFiles { files, commit: download.commit().unwrap_or_default() })
            },
            |cached| {
                let names = cached.names_wanted(&wanted)?;
                let files = names.iter().map(|name| cached.folder.join(name)).collect();
                Ok(DatasetFiles { files, commit: cached.commit.clone() })
            },
        )
    }

    /// Uses the hub, or if it cannot be asked the cache, with a note unless HF_HUB_OFFLINE is set.
    fn online_or_cached<T>(
        &self,
        request: &RepoRequest,
        online: impl FnOnce(&HubSnapshot) -> Result<T>,
        offline: impl FnOnce(&CachedSnapshot) -> Result<T>,
    ) -> Result<T> {
        if self.settings.offline {
            let Some(cached) = self.cached(request, None) else {
                return Err(not_cached(self.settings, request, "every file"));
            };
            return offline(&cached);
        }
        let error = match self.online(request, online) {
            Ok(taken) => return Ok(taken),
            Err(error) => error,
        };
        // Also when the hub denies access: the cache may have been filled by someone with a token.
        let Some(text) =
            error.downcast_ref::<HubError>().filter(|error| error.allows_cache()).map(HubError::to_string)
        else {
            return Err(error);
        };
        let Some(cached) = self.cached(request, Some(&text)) else { return Err(error) };
        let taken = offline(&cached)?;
        self.progress.note(&format!("{text}; using {request} from the cache, commit {}", cached.commit));
        Ok(taken)
    }

    fn online<T>(&self, request: &RepoRequest, take: impl FnOnce(&HubSnapshot) -> Result<T>) -> Result<T> {
        let info = self.ask(request)?;
        let files = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        let download = HubSnapshot::new(self.settings, self.progress, &self.api, request, &info.sha, files);
        let taken = take(&download)?;
        self.write_ref(request, &info.sha)?;
        Ok(taken)
    }

    /// The commit of the revision and the names of its files.
    fn ask(&self, request: &RepoRequest) -> Result<RepoInfo, HubError> {
        let settings = self.settings;
        let mut response = self
            .api
            .repo(request.repo.clone())
            .info_request()
            .config()
            .http_status_as_error(false)
            .timeout_global(Some(settings.timeout))
            .build()
            .call()
            .map_err(|error| settings.unreachable(&error.to_string()))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(request.denied(settings, None, status).unwrap_or_else(|| match status {
                429 | 500.. => settings.unreachable(&format!("status {status}")),
                _ => settings.strange(&format!("status {status}")),
            }));
        }
        let info: RepoInfo = response
            .body_mut()
            .with_config()
            .limit(LONGEST_INFO)
            .read_json()
            .map_err(|error| settings.strange(&error.to_string()))?;
        // The commit becomes the name of a folder.
        if !is_commit(&info.sha) {
            return Err(settings.strange(&format!("it names no commit of {request}")));
        }
        Ok(info)
    }

    /// The cached snapshot of a revision. `cause` is why the hub did not help, if it was asked.
    fn cached<'r>(&'r self, request: &'r RepoRequest, cause: Option<&'r str>) -> Option<CachedSnapshot<'r>> {
        let commit = if is_commit(&request.revision) {
            request.revision.clone()
        } else {
            let file = self.folder(request).join("refs").join(&request.revision);
            bounded_read::text(&file, LONGEST_REF).ok()?.trim().to_owned()
        };
        let folder = self.cache.repo(request.repo.clone()).pointer_path(&commit);
        let settings = self.settings;
        (is_commit(&commit) && folder.is_dir()).then_some(CachedSnapshot {
            settings,
            request,
            folder,
            commit,
            cause,
        })
    }

    /// Writes the commit a branch now means. Skipped if it is written already, because the cache may be read-only.
    fn write_ref(&self, request: &RepoRequest, commit: &str) -> Result<()> {
        let known = bounded_read::text(&self.folder(request).join("refs").join(&request.revision), LONGEST_REF);
        if request.revision == commit || known.is_ok_and(|known| known.trim() == commit) {
            return Ok(());
        }
        Ok(self.cache.repo(request.repo.clone()).create_ref(commit).map_err(|error| self.settings.disk(&error))?)
    }

    fn folder(&self, request: &RepoRequest) -> PathBuf {
        self.cache.path().join(request.repo.folder_name())
    }
}

fn some_of(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(6).map(String::as_str).collect();
    format!("{}{}", shown.join(", "), if names.len() > 6 { ", ..." } else { "" })
}

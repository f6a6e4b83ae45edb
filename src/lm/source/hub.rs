//! The hub and its cache: which snapshot of a repository is meant, and whether the network is needed for it.
//!
//! The cache has the layout every Hugging Face tool shares (`blobs`, `refs`, `snapshots`), so models fetched by Python
//! are found and those fetched here are found by Python. All files of one answer are of one commit; the ref of a branch
//! moves only when they are complete. How one file is fetched is the business of `download`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};
use hf_hub::api::RepoInfo;
use hf_hub::api::sync::{Api, ApiBuilder};
use hf_hub::{Cache, Repo, RepoType};

use super::checkpoint::{CheckpointFiles, Shelf, gather, names_in};
use super::download::{Download, DownloadProgress};
use super::repo::{RepoId, check_inside, check_revision, is_commit};
use super::{DEFAULT_REVISION, HubError, HubSettings};

/// The largest description of a repository that is read; a dataset may have very many files.
const LONGEST_INFO: u64 = 64 << 20;

/// The files of a dataset that were asked for, all of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetFiles {
    /// In the order of their names in the repository.
    pub files: Vec<PathBuf>,
    pub commit: String,
}

/// The hub as one machine sees it: the settings, the cache, and who is told about downloads.
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
        // Retries are ours: the client's own continue from a wrong place after a resumed download.
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
        let wish = Wish::new(repo, RepoType::Model, revision)?;
        // A commit never changes. Without a tokenizer in the cache the hub is asked whether there is one.
        if is_commit(revision)
            && let Some(cached) = self.cached(&wish, None)
            && let Ok(files) = gather(&cached)
            && files.tokenizer.is_some()
        {
            return Ok(files);
        }
        self.either(&wish, |download| gather(download), |cached| gather(cached))
    }

    /// The files of a dataset repository whose names in it are wanted; none is an error.
    pub fn dataset_files(
        &self,
        repo: &RepoId,
        revision: Option<&str>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<DatasetFiles> {
        let wish = Wish::new(repo, RepoType::Dataset, revision.unwrap_or(DEFAULT_REVISION))?;
        self.either(
            &wish,
            |download| {
                let names: Vec<&String> = download.files().iter().filter(|name| wanted(name)).collect();
                names.iter().try_for_each(|name| check_inside(name))?;
                ensure!(
                    !names.is_empty(),
                    "{wish} has none of the files wanted: it has {}",
                    some(download.files())
                );
                let files = names.iter().map(|name| Ok(download.fetch(name)?)).collect::<Result<_>>()?;
                Ok(DatasetFiles { files, commit: download.commit().to_owned() })
            },
            |cached| {
                let mut names = Vec::new();
                walk(&cached.snapshot, "", &mut names);
                names.retain(|name| wanted(name));
                // The cache does not say what is missing, but the parts of a table are counted in their names.
                match incomplete(&names) {
                    Some(part) => Err(cached.lacks(&part)),
                    None if names.is_empty() => Err(cached.lacks("every file wanted")),
                    None => Ok(DatasetFiles {
                        files: names.iter().map(|name| cached.snapshot.join(name)).collect(),
                        commit: cached.commit.clone(),
                    }),
                }
            },
        )
    }

    /// Asks the hub; where it cannot be asked, the cache, with a note unless offline was wished for.
    fn either<T>(
        &self,
        wish: &Wish,
        online: impl FnOnce(&Download) -> Result<T>,
        offline: impl FnOnce(&Cached) -> Result<T>,
    ) -> Result<T> {
        if self.settings.offline {
            let Some(cached) = self.cached(wish, None) else {
                return Err(self.not_cached(wish, "every file"));
            };
            return offline(&cached);
        }
        let info = match self.ask(wish) {
            Ok(info) => info,
            Err(error) if error.leaves_the_cache() => {
                let text = error.to_string();
                let Some(cached) = self.cached(wish, Some(&text)) else { return Err(error.into()) };
                let taken = offline(&cached)?;
                self.progress.note(&format!("{text}; using {wish} from the cache, commit {}", cached.commit));
                return Ok(taken);
            }
            Err(error) => return Err(error.into()),
        };
        let files = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        let download = Download::new(self.settings, self.progress, &self.api, wish, &info.sha, files);
        let taken = online(&download)?;
        self.remember(wish, &info.sha)?;
        Ok(taken)
    }

    /// What the hub says the revision is.
    fn ask(&self, wish: &Wish) -> Result<RepoInfo, HubError> {
        let unreachable =
            |cause: String| HubError::Unreachable { endpoint: self.settings.endpoint.clone(), cause };
        let strange = |cause: String| HubError::Strange { endpoint: self.settings.endpoint.clone(), cause };
        let mut response = self
            .api
            .repo(wish.repo.clone())
            .info_request()
            .config()
            .http_status_as_error(false)
            .timeout_global(Some(self.settings.timeout))
            .build()
            .call()
            .map_err(|error| unreachable(error.to_string()))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(wish.denied(self.settings, None, status).unwrap_or_else(|| match status {
                429 | 500.. => unreachable(format!("status {status}")),
                _ => strange(format!("status {status}")),
            }));
        }
        let info: RepoInfo = response
            .body_mut()
            .with_config()
            .limit(LONGEST_INFO)
            .read_json()
            .map_err(|error| strange(error.to_string()))?;
        // It becomes the name of a folder.
        if !is_commit(&info.sha) {
            return Err(strange(format!("it names no commit of {wish}")));
        }
        Ok(info)
    }

    /// The snapshot in the cache a revision stands for. `cause` is why the hub is not asked, if it was tried.
    fn cached<'w>(&'w self, wish: &'w Wish, cause: Option<&'w str>) -> Option<Cached<'w>> {
        let commit = if is_commit(&wish.revision) {
            wish.revision.clone()
        } else {
            let file = self.folder(wish).join("refs").join(&wish.revision);
            std::fs::read_to_string(file).ok()?.trim().to_owned()
        };
        let snapshot = self.cache.repo(wish.repo.clone()).pointer_path(&commit);
        (is_commit(&commit) && snapshot.is_dir()).then_some(Cached { hub: self, wish, snapshot, commit, cause })
    }

    /// The branch now stands for this commit. Skipped where it does already, for the cache may be read-only.
    fn remember(&self, wish: &Wish, commit: &str) -> Result<()> {
        let known = std::fs::read_to_string(self.folder(wish).join("refs").join(&wish.revision));
        if wish.revision == commit || known.is_ok_and(|known| known.trim() == commit) {
            return Ok(());
        }
        let disk =
            |error: std::io::Error| HubError::Disk { cache: self.cache.path().clone(), cause: error.to_string() };
        Ok(self.cache.repo(wish.repo.clone()).create_ref(commit).map_err(disk)?)
    }

    fn folder(&self, wish: &Wish) -> PathBuf {
        self.cache.path().join(wish.repo.folder_name())
    }

    fn not_cached(&self, wish: &Wish, file: &str) -> Error {
        HubError::Offline { file: file.to_owned(), what: wish.to_string(), cache: self.cache.path().clone() }
            .into()
    }
}

/// A repository at a revision.
pub(super) struct Wish {
    pub(super) id: RepoId,
    pub(super) kind: RepoType,
    pub(super) revision: String,
    repo: Repo,
}

impl Wish {
    fn new(id: &RepoId, kind: RepoType, revision: &str) -> Result<Self> {
        check_revision(revision).with_context(|| format!("`{id}@{revision}`"))?;
        let repo = Repo::with_revision(id.as_str().to_owned(), kind, revision.to_owned());
        Ok(Wish { id: id.clone(), kind, revision: revision.to_owned(), repo })
    }

    /// What 401, 403 and 404 mean for the repository, or for a file of it.
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

impl std::fmt::Display for Wish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dataset = if matches!(self.kind, RepoType::Dataset) { "datasets/" } else { "" };
        write!(f, "{dataset}{}@{}", self.id, self.revision)
    }
}

/// A snapshot in the cache, when the hub is not asked.
struct Cached<'a> {
    hub: &'a Hub<'a>,
    wish: &'a Wish,
    snapshot: PathBuf,
    commit: String,
    cause: Option<&'a str>,
}

impl Shelf for Cached<'_> {
    fn holds(&self, name: &str) -> bool {
        self.snapshot.join(name).is_file()
    }

    fn take(&self, name: &str) -> Result<PathBuf> {
        Ok(self.snapshot.join(name))
    }

    fn names(&self) -> Vec<String> {
        names_in(&self.snapshot)
    }

    fn place(&self) -> String {
        format!("the cache of {}", self.wish)
    }

    fn lacks(&self, name: &str) -> Error {
        match self.cause {
            Some(cause) => Error::msg(cause.to_owned()).context(format!("{name} of {} is not cached", self.wish)),
            None => self.hub.not_cached(self.wish, name),
        }
    }

    fn commit(&self) -> Option<String> {
        Some(self.commit.clone())
    }
}

/// Every file below a folder, by its name relative to the folder, sorted.
fn walk(folder: &Path, prefix: &str, names: &mut Vec<String>) {
    for name in names_in(folder) {
        let path = folder.join(&name);
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            walk(&path, &format!("{name}/"), names);
        } else if path.is_file() {
            names.push(name);
        }
    }
}

/// The first part that lacks, of files named `test-00000-of-00003.parquet`.
fn incomplete(names: &[String]) -> Option<String> {
    let mut tables: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    for name in names {
        let Some((start, rest)) = name.split_once("-of-") else { continue };
        let Some((table, part)) = start.rsplit_once('-') else { continue };
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if let (Ok(_), Ok(parts)) = (part.parse::<usize>(), digits.parse()) {
            *tables.entry((table, parts)).or_default() += 1;
        }
    }
    let ((table, parts), have) = tables.into_iter().find(|((_, parts), have)| have < parts)?;
    Some(format!("{} of the {parts} parts of {table}", parts - have))
}

fn some(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(6).map(String::as_str).collect();
    format!("{}{}", shown.join(", "), if names.len() > 6 { ", ..." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_a_part_missing_is_noticed() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(incomplete(&names(&["data/test-00000-of-00001-29a5.parquet", "README.md", "a-of-b"])), None);
        assert_eq!(incomplete(&names(&["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"])), None);
        assert_eq!(
            incomplete(&names(&["data/test-00000-of-00003.parquet"])).unwrap(),
            "2 of the 3 parts of data/test"
        );
    }
}

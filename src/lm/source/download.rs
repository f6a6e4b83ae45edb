//! One file from the hub into the cache, whole or not at all.
//!
//! A blob already there is not fetched again, a broken transfer is taken up where it stopped, size and checksum are
//! compared before the file counts, and two processes that want the same file wait for each other. `hf-hub` knows the
//! cache's layout; its own transfer asks for names a second time and believes them, so it is not used.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Error, Result};
use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiRepo};
use hf_hub::{Cache, CacheRepo, Repo};

use super::blob::{damage, link};
use super::checkpoint::Snapshot;
use super::hub_http::{HttpError, HubHttp, RemoteFile};
use super::progress::Meter;
use super::repo::{check_askable, is_plain_etag};
use super::repo_request::RepoRequest;
use super::{DownloadProgress, HubError, HubSettings};

/// How often the lock of another process is tried while its file does not grow, and how long a try takes.
const QUIET_TRIES: u32 = 24;
const LOCK_SECONDS: u32 = 5;

/// One snapshot on the hub: what it holds, and how to get it.
pub(super) struct HubSnapshot<'a> {
    settings: &'a HubSettings,
    progress: &'a dyn DownloadProgress,
    request: &'a RepoRequest,
    commit: String,
    files: Vec<String>,
    http: HubHttp,
    remote: ApiRepo,
    cache: CacheRepo,
}

/// How an attempt failed.
enum Failure {
    Final(HubError),
    /// Worth another attempt.
    Passing(HubError),
    /// Another process downloads this blob.
    Busy {
        part: PathBuf,
    },
}

impl<'a> HubSnapshot<'a> {
    pub(super) fn new(
        settings: &'a HubSettings,
        progress: &'a dyn DownloadProgress,
        api: &'a Api,
        request: &'a RepoRequest,
        commit: &str,
        files: Vec<String>,
    ) -> Self {
        let repo = Repo::with_revision(request.id.as_str().to_owned(), request.kind, commit.to_owned());
        HubSnapshot {
            settings,
            progress,
            request,
            commit: commit.to_owned(),
            files,
            http: HubHttp::new(settings),
            remote: api.repo(repo.clone()),
            cache: Cache::new(settings.cache_dir.clone()).repo(repo),
        }
    }

    pub(super) fn files(&self) -> &[String] {
        &self.files
    }

    pub(super) fn commit(&self) -> &str {
        &self.commit
    }

    /// The path of a file in the snapshot; it is there and whole.
    pub(super) fn fetch(&self, name: &str) -> Result<PathBuf, HubError> {
        check_askable(name).map_err(|error| HubError::Name(format!("{}: {error}", self.request)))?;
        let pointer = self.cache.pointer_path(&self.commit).join(name);
        let (mut failures, mut quiet, mut seen) = (0, 0, None);
        while !pointer.exists() {
            match self.attempt(name, &pointer) {
                Ok(()) => {}
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(error)) => {
                    failures += 1;
                    if failures >= self.settings.attempts {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(200 << failures.min(6)));
                }
                Err(Failure::Busy { part }) => {
                    if seen.is_none() {
                        self.progress
                            .note(&format!("waiting for another process that downloads {}", self.what(name)));
                    }
                    let size = fs::metadata(part).map_or(0, |meta| meta.len());
                    quiet = if seen == Some(size) { quiet + 1 } else { 0 };
                    seen = Some(size);
                    if quiet >= QUIET_TRIES {
                        return Err(HubError::Busy { what: self.what(name) });
                    }
                }
            }
        }
        Ok(pointer)
    }

    /// One try; afterwards the pointer exists, or nothing that looks complete does.
    fn attempt(&self, name: &str, pointer: &Path) -> Result<(), Failure> {
        let url = self.remote.url(name);
        let described = self.http.describe(&url).map_err(|error| self.explain(name, error))?;
        if !is_plain_etag(&described.etag) || described.commit != self.commit {
            let cause = format!("{} has another commit or no usable etag", self.what(name));
            return Err(Failure::Final(HubError::Strange { endpoint: self.settings.endpoint.clone(), cause }));
        }
        let blob = self.cache.blob_path(&described.etag);
        if !fs::metadata(&blob).is_ok_and(|meta| meta.len() == described.size) {
            self.transfer(name, &url, &described, &blob)?;
        }
        link(&blob, pointer).map_err(|error| self.disk(error))
    }

    /// Fetches a blob. Until it is whole and what the hub named, it is called otherwise.
    fn transfer(&self, name: &str, url: &str, described: &RemoteFile, blob: &Path) -> Result<(), Failure> {
        let part = blob.with_extension("part");
        fs::create_dir_all(blob.parent().unwrap_or(blob)).map_err(|error| self.disk(error))?;
        let lock = File::create(blob.with_extension("lock")).map_err(|error| self.disk(error))?;
        let mut seconds = 0;
        while lock.try_lock().is_err() {
            if seconds == LOCK_SECONDS {
                return Err(Failure::Busy { part });
            }
            seconds += 1;
            std::thread::sleep(Duration::from_secs(1));
        }
        // Whoever held the lock may have fetched it.
        if fs::metadata(blob).is_ok_and(|meta| meta.len() == described.size) {
            return Ok(());
        }
        let mut file =
            OpenOptions::new().append(true).create(true).open(&part).map_err(|error| self.disk(error))?;
        let start = file.metadata().map_err(|error| self.disk(error))?.len();
        if start > 0 && start >= described.size {
            return Err(self.discard(name, &part, "what an earlier run left of it did not fit"));
        }
        let Some(mut body) = self.http.bytes(url, start).map_err(|error| self.explain(name, error))? else {
            return Err(self.discard(name, &part, "the server does not continue where an earlier run stopped"));
        };
        let mut meter = Meter::new(self.progress);
        meter.init(usize::try_from(described.size).unwrap_or(usize::MAX), name);
        meter.update(usize::try_from(start).unwrap_or(usize::MAX));
        let (mut left, mut buffer) = (described.size - start, vec![0; 1 << 16]);
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.explain(name, HttpError::Truncated(error.to_string()))),
            };
            // A hub that sends without end would fill the disk.
            let Some(rest) = left.checked_sub(read as u64) else {
                return Err(self.discard(name, &part, "more bytes than the hub announced"));
            };
            left = rest;
            file.write_all(&buffer[..read]).map_err(|error| self.disk(error))?;
            meter.update(read);
        }
        drop(file);
        if let Some(cause) = damage(&part, described).map_err(|error| self.disk(error))? {
            return Err(self.discard(name, &part, &cause));
        }
        fs::rename(&part, blob).map_err(|error| self.disk(error))
    }

    /// What an error means, and whether to try again.
    fn explain(&self, name: &str, error: HttpError) -> Failure {
        let endpoint = self.settings.endpoint.clone();
        let shown = |cause: String| self.settings.redact(&cause);
        match error {
            HttpError::Status(status @ (429 | 500..)) => {
                Failure::Passing(HubError::Unreachable { endpoint, cause: format!("status {status}") })
            }
            HttpError::Status(status) => {
                let cause = format!("status {status}");
                let denied = self.request.denied(self.settings, Some(name), status);
                Failure::Final(denied.unwrap_or(HubError::Strange { endpoint, cause }))
            }
            HttpError::Unreachable(cause) => {
                Failure::Passing(HubError::Unreachable { endpoint, cause: shown(cause) })
            }
            HttpError::Truncated(cause) => {
                Failure::Passing(HubError::Truncated { what: self.what(name), cause: shown(cause) })
            }
            HttpError::Strange(cause) => Failure::Final(HubError::Strange { endpoint, cause: shown(cause) }),
        }
    }

    /// What arrived is not what was named, so that nothing can continue it.
    fn discard(&self, name: &str, part: &Path, cause: &str) -> Failure {
        match fs::remove_file(part) {
            Err(error) if error.kind() != ErrorKind::NotFound => self.disk(error),
            _ => Failure::Passing(HubError::Damaged { what: self.what(name), cause: cause.to_owned() }),
        }
    }

    fn disk(&self, error: std::io::Error) -> Failure {
        Failure::Final(HubError::Disk { cache: self.settings.cache_dir.clone(), cause: error.to_string() })
    }

    fn what(&self, name: &str) -> String {
        format!("{name} of {}", self.request)
    }
}

impl Snapshot for HubSnapshot<'_> {
    fn holds(&self, name: &str) -> bool {
        self.files.iter().any(|file| file == name)
    }

    fn take(&self, name: &str) -> Result<PathBuf> {
        Ok(self.fetch(name)?)
    }

    fn names(&self) -> Vec<String> {
        self.files.clone()
    }

    fn place(&self) -> String {
        self.request.to_string()
    }

    fn lacks(&self, name: &str) -> Error {
        Error::msg(format!(
            "{} has no {name}, so it is no checkpoint as transformers writes it: choose another repository or revision",
            self.request
        ))
    }

    fn commit(&self) -> Option<String> {
        Some(self.commit.clone())
    }
}

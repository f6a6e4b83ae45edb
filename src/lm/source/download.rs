//! Downloads files of one commit into the cache, each whole or not at all.
//!
//! A blob that is already there is not fetched again, a broken transfer continues where it stopped, size and checksum are
//! compared before the file counts, and processes that want the same file wait for each other. `hf-hub` supplies the layout of
//! the cache; its own transfer asks for the etag twice and trusts the answer, so it is not used.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Error, Result};
use hf_hub::api::sync::{Api, ApiRepo};
use hf_hub::{Cache, CacheRepo, Repo};

use super::blob::{damage, link};
use super::checkpoint::Snapshot;
use super::hub_http::{HttpError, HubHttp, RemoteFile};
use super::repo::{check_url_safe, is_plain_etag};
use super::repo_request::RepoRequest;
use super::{DownloadProgress, HubError, HubSettings};

/// How often the lock of another process is tried while its file does not grow, and how long each try takes.
const STALLED_TRIES: u32 = 24;
const LOCK_SECONDS: u32 = 5;

/// One snapshot on the hub: the names of its files, and how to get them.
pub(super) struct HubSnapshot<'a> {
    settings: &'a HubSettings,
    progress: &'a dyn DownloadProgress,
    request: &'a RepoRequest,
    commit: String,
    files: Vec<String>,
    http: HubHttp,
    api: ApiRepo,
    cache: CacheRepo,
}

/// How an attempt failed.
enum Failure {
    Final(HubError),
    /// Worth another attempt.
    Retry(HubError),
    /// Another process downloads this blob into `part`.
    Locked {
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
            api: api.repo(repo.clone()),
            cache: Cache::new(settings.cache_dir.clone()).repo(repo),
        }
    }

    pub(super) fn files(&self) -> &[String] {
        &self.files
    }

    /// The path of a file of the snapshot, which is downloaded first if needed.
    pub(super) fn fetch(&self, name: &str) -> Result<PathBuf, HubError> {
        check_url_safe(name).map_err(|error| HubError::Name(format!("{}: {error}", self.request)))?;
        let pointer = self.cache.pointer_path(&self.commit).join(name);
        let (mut failures, mut stalled, mut last_size) = (0, 0, None);
        while !pointer.exists() {
            match self.attempt(name, &pointer) {
                Ok(()) => {}
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Retry(error)) => {
                    failures += 1;
                    if failures >= self.settings.attempts {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(200 << failures.min(6)));
                }
                Err(Failure::Locked { part }) => {
                    if last_size.is_none() {
                        self.progress
                            .note(&format!("waiting for another process that downloads {}", self.what(name)));
                    }
                    let size = fs::metadata(part).map_or(0, |meta| meta.len());
                    stalled = if last_size == Some(size) { stalled + 1 } else { 0 };
                    last_size = Some(size);
                    if stalled >= STALLED_TRIES {
                        return Err(HubError::Busy { what: self.what(name) });
                    }
                }
            }
        }
        Ok(pointer)
    }

    /// One try. Afterwards either the pointer exists, or nothing that looks complete does.
    fn attempt(&self, name: &str, pointer: &Path) -> Result<(), Failure> {
        let url = self.api.url(name);
        let remote = self.http.describe(&url).map_err(|error| self.explain(name, error))?;
        if !is_plain_etag(&remote.etag) || remote.commit != self.commit {
            let cause = format!("{} has another commit or no usable etag", self.what(name));
            return Err(Failure::Final(self.settings.strange(&cause)));
        }
        let blob = self.cache.blob_path(&remote.etag);
        if !fs::metadata(&blob).is_ok_and(|meta| meta.len() == remote.size) {
            self.transfer(name, &url, &remote, &blob)?;
        }
        link(&blob, pointer).map_err(|error| self.disk(error))
    }

    /// Downloads a blob. It gets its name only when it is whole and what the hub described.
    fn transfer(&self, name: &str, url: &str, remote: &RemoteFile, blob: &Path) -> Result<(), Failure> {
        let part = blob.with_extension("part");
        fs::create_dir_all(blob.parent().unwrap_or(blob)).map_err(|error| self.disk(error))?;
        let lock = File::create(blob.with_extension("lock")).map_err(|error| self.disk(error))?;
        let mut seconds = 0;
        while lock.try_lock().is_err() {
            if seconds == LOCK_SECONDS {
                return Err(Failure::Locked { part });
            }
            seconds += 1;
            std::thread::sleep(Duration::from_secs(1));
        }
        // The process that held the lock may have fetched it.
        if fs::metadata(blob).is_ok_and(|meta| meta.len() == remote.size) {
            return Ok(());
        }
        let mut file =
            OpenOptions::new().append(true).create(true).open(&part).map_err(|error| self.disk(error))?;
        let start = file.metadata().map_err(|error| self.disk(error))?.len();
        if start > 0 && start >= remote.size {
            return Err(self.discard(name, &part, "what an earlier run left of it did not fit"));
        }
        let Some(mut body) = self.http.bytes(url, start).map_err(|error| self.explain(name, error))? else {
            return Err(self.discard(name, &part, "the server does not continue where an earlier run stopped"));
        };
        let progress = StartedProgress::new(self.progress, name, remote.size);
        progress.0.advance(start);
        let (mut left, mut buffer) = (remote.size - start, vec![0; 1 << 16]);
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.explain(name, HttpError::Truncated(error.to_string()))),
            };
            // A server that sends without end must not fill the disk.
            let Some(rest) = left.checked_sub(read as u64) else {
                return Err(self.discard(name, &part, "more bytes than the hub announced"));
            };
            left = rest;
            file.write_all(&buffer[..read]).map_err(|error| self.disk(error))?;
            progress.0.advance(read as u64);
        }
        drop(file);
        if let Some(cause) = damage(&part, remote).map_err(|error| self.disk(error))? {
            return Err(self.discard(name, &part, &cause));
        }
        fs::rename(&part, blob).map_err(|error| self.disk(error))
    }

    /// What an error means, and whether to try again.
    fn explain(&self, name: &str, error: HttpError) -> Failure {
        let settings = self.settings;
        match error {
            HttpError::Status(status @ (429 | 500..)) => {
                Failure::Retry(settings.unreachable(&format!("status {status}")))
            }
            HttpError::Status(status) => {
                let denied = self.request.denied(settings, Some(name), status);
                Failure::Final(denied.unwrap_or_else(|| settings.strange(&format!("status {status}"))))
            }
            HttpError::Unreachable(cause) => Failure::Retry(settings.unreachable(&cause)),
            HttpError::Truncated(cause) => {
                Failure::Retry(HubError::Truncated { what: self.what(name), cause: settings.redact(&cause) })
            }
            HttpError::Strange(cause) => Failure::Final(settings.strange(&cause)),
        }
    }

    /// Deletes a part that cannot become the file.
    fn discard(&self, name: &str, part: &Path, cause: &str) -> Failure {
        match fs::remove_file(part) {
            Err(error) if error.kind() != ErrorKind::NotFound => self.disk(error),
            _ => Failure::Retry(HubError::Damaged { what: self.what(name), cause: cause.to_owned() }),
        }
    }

    fn disk(&self, error: std::io::Error) -> Failure {
        Failure::Final(self.settings.disk(&error))
    }

    fn what(&self, name: &str) -> String {
        format!("{name} of {}", self.request)
    }
}

/// A progress report that is finished when it is dropped.
struct StartedProgress<'a>(&'a dyn DownloadProgress);

impl<'a> StartedProgress<'a> {
    fn new(progress: &'a dyn DownloadProgress, name: &str, bytes: u64) -> Self {
        progress.start(name, bytes);
        StartedProgress(progress)
    }
}

impl Drop for StartedProgress<'_> {
    fn drop(&mut self) {
        self.0.finish();
    }
}

impl Snapshot for HubSnapshot<'_> {
    fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file == name)
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        Ok(self.fetch(name)?)
    }

    fn names(&self) -> Vec<String> {
        self.files.clone()
    }

    fn describe(&self) -> String {
        self.request.to_string()
    }

    fn missing(&self, name: &str) -> Error {
        Error::msg(format!(
            "{} has no {name}, so it is no checkpoint as transformers writes it: choose another repository or revision",
            self.request
        ))
    }

    fn commit(&self) -> Option<String> {
        Some(self.commit.clone())
    }
}

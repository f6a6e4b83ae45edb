//! One file from the hub into the cache, whole or not at all.
//!
//! The transfer is `hf-hub`'s. Around it stands what that client leaves out: a blob already there is not fetched again,
//! a broken transfer is taken up where it stopped, size and checksum are compared before the file counts, and two
//! processes that want the same file wait for each other.

use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Error, Result};
use hf_hub::api::sync::{Api, ApiError, ApiRepo};
use hf_hub::{Cache, CacheRepo, Repo};

use super::blob::{clear_dangling, damage, link};
use super::checkpoint::Shelf;
use super::progress::Meter;
use super::repo::{check_askable, is_plain_etag};
use super::wish::Wish;
use super::{DownloadProgress, HubError, HubSettings};

/// How often the lock of another process is tried while its file does not grow; each try takes about five seconds.
const QUIET_TRIES: u32 = 24;

/// One snapshot on the hub: what it holds, and how to get it.
pub(super) struct Download<'a> {
    settings: &'a HubSettings,
    progress: &'a dyn DownloadProgress,
    wish: &'a Wish,
    commit: String,
    files: Vec<String>,
    api: &'a Api,
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

impl<'a> Download<'a> {
    pub(super) fn new(
        settings: &'a HubSettings,
        progress: &'a dyn DownloadProgress,
        api: &'a Api,
        wish: &'a Wish,
        commit: &str,
        files: Vec<String>,
    ) -> Self {
        let repo = Repo::with_revision(wish.id.as_str().to_owned(), wish.kind, commit.to_owned());
        Download {
            settings,
            progress,
            wish,
            commit: commit.to_owned(),
            files,
            api,
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
        check_askable(name).map_err(|error| HubError::Name(format!("{}: {error}", self.wish)))?;
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
        let metadata = guarded(|| self.api.metadata(&self.remote.url(name)))
            .map_err(|error| self.explain(name, error, None))?;
        if !is_plain_etag(metadata.etag()) || metadata.commit_hash() != self.commit {
            let cause = format!("{} has another commit or no usable etag", self.what(name));
            return Err(Failure::Final(HubError::Strange { endpoint: self.settings.endpoint.clone(), cause }));
        }
        let blob = self.cache.blob_path(metadata.etag());
        if fs::metadata(&blob).is_ok_and(|meta| meta.len() == metadata.size() as u64)
            && link(&blob, pointer).is_ok()
        {
            return Ok(());
        }
        clear_dangling(pointer).map_err(|error| self.disk(error))?;
        let meter = Meter::new(self.progress);
        guarded(|| self.remote.download_with_progress(name, meter))
            .map_err(|error| self.explain(name, error, Some(&blob)))?;
        if let Some(cause) = damage(&blob, &metadata).map_err(|error| self.disk(error))? {
            // The pointer first: without it the blob counts for nobody.
            fs::remove_file(pointer).and_then(|()| fs::remove_file(&blob)).map_err(|error| self.disk(error))?;
            return Err(Failure::Passing(HubError::Damaged { what: self.what(name), cause }));
        }
        Ok(())
    }

    /// What an error of the client means, and whether to try again. `blob` is known once the transfer began.
    fn explain(&self, name: &str, error: ApiError, blob: Option<&Path>) -> Failure {
        let endpoint = self.settings.endpoint.clone();
        let truncated = |cause: String| Failure::Passing(HubError::Truncated { what: self.what(name), cause });
        match error {
            ApiError::RequestError(error) => {
                let cause = error.to_string();
                // The client's error type is not reachable from here, its text is.
                let status = cause.strip_prefix("http status: ").and_then(|status| status.parse().ok());
                match status {
                    Some(416) => self.discard_part(name, blob),
                    Some(429 | 500..) => Failure::Passing(HubError::Unreachable { endpoint, cause }),
                    Some(status) => Failure::Final(
                        self.wish
                            .denied(self.settings, Some(name), status)
                            .unwrap_or(HubError::Strange { endpoint, cause }),
                    ),
                    None => match error.into_io().kind() {
                        ErrorKind::UnexpectedEof => truncated(cause),
                        _ => Failure::Passing(HubError::Unreachable { endpoint, cause }),
                    },
                }
            }
            ApiError::IoError(error) => match error.kind() {
                ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::TimedOut
                | ErrorKind::WouldBlock
                | ErrorKind::InvalidData
                | ErrorKind::Other => truncated(error.to_string()),
                // Another process made the pointer a moment ago.
                ErrorKind::AlreadyExists => truncated(error.to_string()),
                _ => self.disk(error),
            },
            ApiError::InvalidResume => self.discard_part(name, blob),
            ApiError::LockAcquisition(lock) => Failure::Busy { part: lock.with_extension("part") },
            error => Failure::Final(HubError::Strange { endpoint, cause: error.to_string() }),
        }
    }

    /// What an earlier run left does not go with the file: too long, or as long but never renamed.
    fn discard_part(&self, name: &str, blob: Option<&Path>) -> Failure {
        if let Some(Err(error)) = blob.map(|blob| fs::remove_file(blob.with_extension("part")))
            && error.kind() != ErrorKind::NotFound
        {
            return self.disk(error);
        }
        let cause = "what an earlier run left of it did not fit".to_owned();
        Failure::Passing(HubError::Damaged { what: self.what(name), cause })
    }

    fn disk(&self, error: std::io::Error) -> Failure {
        Failure::Final(HubError::Disk { cache: self.settings.cache_dir.clone(), cause: error.to_string() })
    }

    fn what(&self, name: &str) -> String {
        format!("{name} of {}", self.wish)
    }
}

impl Shelf for Download<'_> {
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
        self.wish.to_string()
    }

    fn lacks(&self, name: &str) -> Error {
        Error::msg(format!(
            "{} has no {name}, so it is no checkpoint as transformers writes it: choose another repository or revision",
            self.wish
        ))
    }

    fn commit(&self) -> Option<String> {
        Some(self.commit.clone())
    }
}

/// The client asserts and unwraps on answers no hub gives; to the user that is a strange answer, not a crash.
fn guarded<T>(call: impl FnOnce() -> Result<T, ApiError>) -> Result<T, ApiError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(ApiError::InvalidHeader("of the answer")))
}

//! Downloads files of one commit into the cache, each whole or not at all.
//!
//! A blob that is already there is not fetched again, a broken transfer continues where it stopped, size and checksum are
//! compared before the file counts, and processes that want the same file wait for each other. `hf-hub` supplies the layout of
//! the cache; its own transfer asks for the etag twice and trusts the answer, so it is not used.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::{CacheRepo, Repo};

use super::blob::{damage, link};
use super::hub_http::{HubFile, HubHttp, RemoteFile};
use super::repo::{check_url_safe, is_plain_etag, shown};
use super::{DownloadProgress, HubError, HubSettings};

/// One snapshot on the hub: the names of its files, and how to get them.
pub(super) struct HubSnapshot<'a> {
    pub(super) settings: &'a HubSettings,
    pub(super) progress: &'a dyn DownloadProgress,
    pub(super) repo: &'a Repo,
    pub(super) commit: String,
    pub(super) names: Vec<String>,
    pub(super) http: HubHttp<'a>,
    pub(super) cache: CacheRepo,
}

impl HubSnapshot<'_> {
    /// The path of a file of the snapshot, which is downloaded first if needed.
    pub(super) fn fetch(&self, name: &str) -> Result<PathBuf, HubError> {
        check_url_safe(name).map_err(|error| HubError::Name(format!("{}: {error}", shown(self.repo))))?;
        let pointer = self.cache.pointer_path(&self.commit).join(name);
        let mut failures = 0;
        while !pointer.exists() {
            let Err(error) = self.attempt(name, &pointer) else { continue };
            failures += 1;
            if !error.is_transient() || failures >= self.settings.attempts {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(200 << failures.min(6)));
        }
        Ok(pointer)
    }

    /// One try. Afterwards either the pointer exists, or nothing that looks complete does.
    fn attempt(&self, name: &str, pointer: &Path) -> Result<(), HubError> {
        let url = format!("{}/{}/resolve/{}/{name}", self.settings.endpoint, self.repo.url(), self.commit);
        let file = HubFile { repo: self.repo, name, url };
        let remote = self.http.describe(&file)?;
        if !is_plain_etag(&remote.etag) || remote.commit != self.commit {
            let cause = format!("{} has another commit or no usable etag", file.shown());
            return Err(self.settings.strange(&cause));
        }
        let blob = self.cache.blob_path(&remote.etag);
        if !fs::metadata(&blob).is_ok_and(|meta| meta.len() == remote.size) {
            self.transfer(&file, &remote, &blob)?;
        }
        link(&blob, name, pointer).map_err(|error| self.disk(error))
    }

    /// Downloads a blob. It gets its name only when it is whole and what the hub described.
    fn transfer(&self, file: &HubFile<'_>, remote: &RemoteFile, blob: &Path) -> Result<(), HubError> {
        let part = blob.with_extension("part");
        fs::create_dir_all(blob.parent().unwrap_or(blob)).map_err(|error| self.disk(error))?;
        let lock = File::create(blob.with_extension("lock")).map_err(|error| self.disk(error))?;
        if lock.try_lock().is_err() {
            self.progress.note(&format!("waiting for another process that downloads {}", file.shown()));
            lock.lock().map_err(|error| self.disk(error))?;
        }
        // The process that held the lock may have fetched it.
        if fs::metadata(blob).is_ok_and(|meta| meta.len() == remote.size) {
            return Ok(());
        }
        let mut onto =
            OpenOptions::new().append(true).create(true).open(&part).map_err(|error| self.disk(error))?;
        let start = onto.metadata().map_err(|error| self.disk(error))?.len();
        if start > 0 && start >= remote.size {
            return Err(self.discard(file, &part, "what an earlier run left of it did not fit"));
        }
        let Some(body) = self.http.bytes(file, start)? else {
            return Err(self.discard(file, &part, "the server does not continue where an earlier run stopped"));
        };
        self.progress.start(file.name, remote.size);
        self.progress.advance(start);
        let received = self.receive(file, body, remote.size - start, &mut onto);
        self.progress.finish();
        if !received? {
            return Err(self.discard(file, &part, "more bytes than the hub announced"));
        }
        drop(onto);
        if let Some(cause) = damage(&part, remote).map_err(|error| self.disk(error))? {
            return Err(self.discard(file, &part, &cause));
        }
        fs::rename(&part, blob).map_err(|error| self.disk(error))
    }

    /// Writes what the server sends. Returns whether it sent no more than `left` bytes: a server that sends without
    /// end must not fill the disk.
    fn receive(
        &self,
        file: &HubFile<'_>,
        mut body: impl Read,
        mut left: u64,
        onto: &mut File,
    ) -> Result<bool, HubError> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.settings.truncated(file.shown(), &error.to_string())),
            };
            let Some(rest) = left.checked_sub(read as u64) else { return Ok(false) };
            left = rest;
            onto.write_all(&buffer[..read]).map_err(|error| self.disk(error))?;
            self.progress.advance(read as u64);
        }
    }

    /// Deletes a part that cannot become the file.
    fn discard(&self, file: &HubFile<'_>, part: &Path, cause: &str) -> HubError {
        match fs::remove_file(part) {
            Err(error) if error.kind() != ErrorKind::NotFound => self.disk(error),
            _ => HubError::Damaged { what: file.shown(), cause: cause.to_owned() },
        }
    }

    fn disk(&self, error: std::io::Error) -> HubError {
        self.settings.disk(&error)
    }
}

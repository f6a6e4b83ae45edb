//! Downloads files of one commit into the cache, each whole or not at all.
//!
//! The cache has the layout of `huggingface_hub`: a blob is named by its etag and shared by all commits that have
//! it, and a snapshot consists of relative links to blobs. A blob that is already there is not fetched again, a
//! broken transfer continues where it stopped, size and checksum are compared before the file counts, and processes
//! that want the same file wait for each other.

use std::cmp::Ordering;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::hub_http::{Content, HubFile, HubHttp};
use super::repo::{HubRepo, check_url_safe};
use super::{HubError, HubSettings};

/// Receives the progress of downloads, one file at a time: `start`, any number of `advance`, then `finish`, also
/// after a failure.
pub trait DownloadProgress {
    fn start(&self, name: &str, bytes: u64);
    fn advance(&self, bytes: u64);
    fn finish(&self);
    /// Something the user should know that is no error: the cache is used instead of the hub, another process
    /// downloads.
    fn note(&self, _message: &str) {}
}

/// Ignores everything.
impl DownloadProgress for () {
    fn start(&self, _name: &str, _bytes: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn finish(&self) {}
}

/// Downloads the files of a repository at one commit.
pub(super) struct Downloader<'a> {
    pub(super) settings: &'a HubSettings,
    pub(super) progress: &'a dyn DownloadProgress,
    pub(super) http: &'a HubHttp<'a>,
    pub(super) repo: &'a HubRepo,
    pub(super) commit: &'a str,
}

impl Downloader<'_> {
    /// Makes sure that the file is at `link`, its place in the snapshot.
    pub(super) fn fetch(&self, name: &str, link: &Path) -> Result<(), HubError> {
        check_url_safe(name).map_err(|error| HubError::Final(format!("{}: {error}", self.repo)))?;
        let file = HubFile { repo: self.repo, commit: self.commit, name };
        let mut failures = 0;
        while !link.exists() {
            let Err(error) = self.attempt(&file, link) else { continue };
            failures += 1;
            if !error.is_transient() || failures >= self.settings.attempts {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(200 << failures.min(6)));
        }
        Ok(())
    }

    /// One try. Afterwards either the link exists, or nothing that looks complete does.
    fn attempt(&self, file: &HubFile<'_>, link: &Path) -> Result<(), HubError> {
        let disk = |error| self.settings.disk(error);
        let content = self.http.describe_file(file)?;
        let blob = self.repo.in_cache.blob_path(&content.etag);
        let is_complete = || fs::metadata(&blob).is_ok_and(|meta| meta.len() == content.size);
        if !is_complete() {
            blob.parent().map_or(Ok(()), fs::create_dir_all).map_err(disk)?;
            let lock = File::create(blob.with_extension("lock")).map_err(disk)?;
            if lock.try_lock().is_err() {
                self.progress.note(&format!("waiting for another process that downloads {file}"));
                lock.lock().map_err(disk)?;
            }
            // The process that held the lock may have fetched it.
            if !is_complete() {
                let part = blob.with_extension("part");
                if let Some(damage) = self.transfer(file, &content, &part)? {
                    fs::remove_file(&part).map_err(disk)?;
                    return Err(HubError::Transfer(format!(
                        "{file} arrived damaged ({damage}) and was deleted: run again; if it stays, a proxy or \
                         mirror changes files, check HF_ENDPOINT"
                    )));
                }
                fs::rename(&part, &blob).map_err(disk)?;
            }
        }
        make_link(&blob, file.name, link).map_err(disk)
    }

    /// Downloads what is missing of the file `part`. Returns what is wrong with it then, if anything.
    fn transfer(&self, file: &HubFile<'_>, content: &Content, part: &Path) -> Result<Option<String>, HubError> {
        let disk = |error| self.settings.disk(error);
        let mut onto = OpenOptions::new().append(true).create(true).open(part).map_err(disk)?;
        let start = onto.metadata().map_err(disk)?.len();
        if start < content.size {
            let Some(body) = self.http.bytes(file, start)? else {
                return Ok(Some("the server does not continue where an earlier run stopped".to_owned()));
            };
            self.progress.start(file.name, content.size);
            self.progress.advance(start);
            // A byte too many shows; a server that sends without end must not fill the disk.
            let received = self.receive(file, body.take(content.size - start + 1), &mut onto);
            self.progress.finish();
            received?;
        }
        damage(part, content).map_err(disk)
    }

    fn receive(&self, file: &HubFile<'_>, mut body: impl Read, onto: &mut File) -> Result<(), HubError> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.settings.broken_off(file, error)),
            };
            onto.write_all(&buffer[..read]).map_err(|error| self.settings.disk(error))?;
            self.progress.advance(read as u64);
        }
    }
}

/// What is wrong with a file: its length, or its content if the etag is a SHA-256, as it is for large files.
fn damage(path: &Path, content: &Content) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    match length.cmp(&content.size) {
        Ordering::Less => return Ok(Some(format!("{length} bytes instead of {}", content.size))),
        Ordering::Greater => return Ok(Some("more bytes than the hub announced".to_owned())),
        Ordering::Equal => {}
    }
    let etag = &content.etag;
    if etag.len() == 64 && etag.bytes().all(|b| b.is_ascii_hexdigit()) {
        let mut hash = Sha256::new();
        io::copy(&mut file, &mut hash)?;
        let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if !found.eq_ignore_ascii_case(etag) {
            return Ok(Some("its SHA-256 is not the one the hub names".to_owned()));
        }
    }
    Ok(None)
}

/// Links the file `name` of a snapshot to its blob, relatively, so that the cache can be moved.
fn make_link(blob: &Path, name: &str, link: &Path) -> io::Result<()> {
    link.parent().map_or(Ok(()), fs::create_dir_all)?;
    // A link to a deleted blob would be in the way; if it cannot be removed, the next step fails.
    if link.is_symlink() && !link.exists() {
        let _ = fs::remove_file(link);
    }
    let up = PathBuf::from("../".repeat(name.split('/').count() + 1));
    let made = symlink(up.join("blobs").join(blob.file_name().unwrap_or_default()), link);
    // Another process may have been faster.
    made.or_else(|error| if link.exists() { Ok(()) } else { Err(error) })
}

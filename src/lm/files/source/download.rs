//! Downloads files of one commit into the cache, each whole or not at all.
//!
//! The cache has the layout of `huggingface_hub`: a blob is named by its etag and shared by all commits that have
//! it, and a snapshot consists of relative links to blobs. A blob that is already there is not fetched again, a
//! broken transfer continues where it stopped, size and checksum are compared before the file counts, and processes
//! that want the same file wait for each other.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::http::HeaderMap;

use super::HubError;
use super::hub_http::{HubHttp, Request};
use super::repo::{HubRepo, check_url_safe, is_plain};
use crate::bounded_read;

/// Receives the progress of downloads, one file at a time: `start`, any number of `advance`, then `finish`, also
/// after a failure.
pub trait DownloadProgress {
    fn start(&self, _name: &str, _bytes: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn finish(&self) {}
    /// Notes something that the user should know and that is not an error: the cache is used instead of the hub, another process
    /// downloads.
    fn note(&self, _message: &str) {}
}

/// Receiver that ignores all progress.
impl DownloadProgress for () {}

/// Downloader of the files of a repository at one commit.
pub(super) struct Downloader<'a> {
    pub(super) http: HubHttp<'a>,
    pub(super) progress: &'a dyn DownloadProgress,
    pub(super) repo: &'a HubRepo,
    pub(super) commit: String,
}

/// Content of a file as the hub describes it.
struct Content {
    /// Name of the blob in the cache; the SHA-256 if the file is large.
    etag: String,
    size: u64,
}

impl Downloader<'_> {
    /// Makes sure that the file is at `link`, its place in the snapshot.
    pub(super) fn fetch(&self, name: &str, link: &Path) -> Result<(), HubError> {
        check_url_safe(name).map_err(|error| HubError::Final(format!("{}: {error}", self.repo)))?;
        let mut failures = 0;
        while !link.exists() {
            let Err(error) = self.attempt(name, link) else { continue };
            failures += 1;
            let is_transient = matches!(error, HubError::Unreachable(_) | HubError::Transfer(_));
            if !is_transient || failures >= self.http.settings.attempts {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(200 << failures.min(6)));
        }
        Ok(())
    }

    /// Tries once to fetch a file. Afterwards either the link exists, or nothing that looks complete does.
    fn attempt(&self, name: &str, link: &Path) -> Result<(), HubError> {
        let content = self.describe(name)?;
        let blob = self.repo.in_cache.blob_path(&content.etag);
        let is_complete = || fs::metadata(&blob).is_ok_and(|meta| meta.len() == content.size);
        if !is_complete() {
            blob.parent().map_or(Ok(()), fs::create_dir_all).map_err(|error| self.disk(error))?;
            let lock = bounded_read::ordinary(
                OpenOptions::new().write(true).create(true).truncate(false),
                &blob.with_extension("lock"),
            )
            .map_err(|error| self.disk(error))?;
            if lock.try_lock().is_err() {
                self.progress.note(&format!("waiting for another process that downloads {}", self.shown(name)));
                lock.lock().map_err(|error| self.disk(error))?;
            }
            // The process that held the lock may have fetched it.
            if !is_complete() {
                let part = blob.with_extension("part");
                if self.transfer(name, &content, &part)? {
                    fs::remove_file(&part).map_err(|error| self.disk(error))?;
                    return Err(HubError::Transfer(format!(
                        "{} arrived damaged and was deleted: run again; if it stays, a proxy or mirror \
                         changes files, check HF_ENDPOINT",
                        self.shown(name)
                    )));
                }
                fs::rename(&part, &blob).map_err(|error| self.disk(error))?;
            }
        }
        make_link(&blob, name, link).map_err(|error| self.disk(error))
    }

    /// Asks for etag and size of a file. The hub states those of a large file in its redirect to wherever the bytes are, so only
    /// the hub itself is asked.
    fn describe(&self, name: &str) -> Result<Content, HubError> {
        let (shown, http) = (self.shown(name), &self.http);
        let send = |request: Request| request.header("range", "bytes=0-0").call();
        let is_answer = |to: &str, headers: &HeaderMap| !http.is_own(to) || headers.contains_key("x-linked-size");
        let response = http.follow(&self.url(name), send, is_answer).map_err(|error| http.error(&shown, error))?;
        let (status, headers) = (response.status(), response.headers());
        if !status.is_success() && !status.is_redirection() {
            return Err(http.settings.status(self.repo, shown, status.as_u16()));
        }
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let size = match status.as_u16() {
            206 => header("content-range").rsplit('/').next().unwrap_or_default(),
            // A server without ranges sends the whole file, of which nothing is read here.
            200 => header("content-length"),
            _ => header("x-linked-size"),
        };
        let linked_etag = header("x-linked-etag");
        let etag = if linked_etag.is_empty() { header("etag") } else { linked_etag };
        let etag = etag.trim_start_matches("W/").trim_matches('"').to_owned();
        let sound = is_plain(&etag, b"-_") && header("x-repo-commit") == self.commit;
        match size.parse() {
            Ok(size) if sound => Ok(Content { etag, size }),
            _ => Err(http.settings.unexpected(format!("{shown} has another commit, no length or no usable etag"))),
        }
    }

    /// Downloads the missing bytes of the file `part`. Returns whether the file is damaged then.
    fn transfer(&self, name: &str, content: &Content, part: &Path) -> Result<bool, HubError> {
        let mut onto = bounded_read::ordinary(OpenOptions::new().append(true).create(true), part)
            .map_err(|error| self.disk(error))?;
        let start = onto.metadata().map_err(|error| self.disk(error))?.len();
        if start < content.size {
            let send = |request: Request| request.header("range", format!("bytes={start}-")).call();
            let response = self.http.follow(&self.url(name), send, |_, _| false);
            let response = response.map_err(|error| self.http.error(&self.shown(name), error))?;
            match response.status().as_u16() {
                206 => {}
                200 if start == 0 => {}
                // The server does not continue where an earlier run stopped.
                200 | 416 => return Ok(true),
                status => return Err(self.http.settings.status(self.repo, self.shown(name), status)),
            }
            self.progress.start(name, content.size);
            self.progress.advance(start);
            // A byte too many shows; a server that sends without end must not fill the disk.
            let body = response.into_body().into_reader().take((content.size - start).saturating_add(1));
            let received = self.receive(name, body, &mut onto);
            self.progress.finish();
            received?;
        }
        is_damaged(part, content).map_err(|error| self.disk(error))
    }

    fn receive(&self, name: &str, mut body: impl Read, onto: &mut File) -> Result<(), HubError> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_idle(&error) => {
                    let cause = format!("for {} s no byte came", self.http.settings.idle.as_secs_f64());
                    return Err(self.http.settings.broken_off(self.shown(name), cause));
                }
                Err(error) => return Err(self.http.settings.broken_off(self.shown(name), error)),
            };
            onto.write_all(&buffer[..read]).map_err(|error| self.disk(error))?;
            self.progress.advance(read as u64);
        }
    }

    fn url(&self, name: &str) -> String {
        let (endpoint, repo) = (&self.http.settings.endpoint, self.repo.on_hub.url());
        format!("{endpoint}/{repo}/resolve/{}/{name}", self.commit)
    }

    /// Name of the file in messages.
    fn shown(&self, name: &str) -> String {
        format!("{name} of {}", self.repo)
    }

    fn disk(&self, error: io::Error) -> HubError {
        self.http.settings.disk(error)
    }
}

/// Whether a server sent nothing for longer than the download waits.
fn is_idle(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(ureq::Error::Timeout(_)))
}

/// Whether a file lacks the announced length or content: the etag of a large file is its SHA-256, that of others git's name of the
/// content.
fn is_damaged(path: &Path, content: &Content) -> io::Result<bool> {
    let mut file = bounded_read::open(path)?;
    let etag = &content.etag;
    if file.metadata()?.len() != content.size {
        return Ok(true);
    }
    let found = match etag.len() {
        _ if !etag.bytes().all(|b| b.is_ascii_hexdigit()) => return Ok(false),
        64 => vec![digest(Sha256::new(), &mut file)?],
        40 => {
            let of_git = digest(Sha1::new_with_prefix(format!("blob {}\0", content.size)), &mut file)?;
            // Some mirrors take the SHA-1 of the content alone.
            file.rewind()?;
            vec![of_git, digest(Sha1::new(), &mut file)?]
        }
        _ => return Ok(false),
    };
    Ok(!found.iter().any(|found| found.eq_ignore_ascii_case(etag)))
}

/// Continues a hash with a file, and returns it in hex digits.
fn digest(mut hash: impl Digest + io::Write, file: &mut File) -> io::Result<String> {
    io::copy(file, &mut hash)?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests that `git hash-object`, `sha1sum` and `sha256sum` print.
    #[test]
    fn an_etag_that_is_a_digest_of_the_content_is_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let digests =
            ["ce013625030ba8dba906f756967f9e9ca394464a", "f572d396fae9206628714fb2ce00f72e94f2258f", sha256];
        for (bytes, damaged) in [("hello\n", false), ("hellO\n", true), ("hello", true)] {
            fs::write(&path, bytes).unwrap();
            for etag in digests {
                let content = Content { etag: etag.to_owned(), size: 6 };
                assert_eq!(is_damaged(&path, &content).unwrap(), damaged, "{etag}");
            }
        }
        // Others are of whatever a server likes.
        fs::write(&path, "hellO\n").unwrap();
        for etag in ["1234-5678", "0123456789abcdef"] {
            assert!(!is_damaged(&path, &Content { etag: etag.to_owned(), size: 6 }).unwrap());
        }
    }
}

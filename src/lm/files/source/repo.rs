//! Names on the hub: of a repository, of a revision, of a file in it.
//!
//! They become parts of URLs and of paths in the cache, and some come from the network, so each is checked first.
//! Nothing here touches the disk.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Result, ensure};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};

/// Largest length of an owner or name that the hub takes.
const LONGEST: usize = 96;

/// Whether a text is not empty and has only ASCII letters, digits and `others`.
pub(super) fn is_plain(text: &str, others: &[u8]) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || others.contains(&b))
}

/// Name of a repository, `owner/name`, by the hub's rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepoId(String);

impl FromStr for RepoId {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let sound = |part: &str| {
            is_plain(part, b"-_.")
                && part.len() <= LONGEST
                && !part.starts_with(['-', '.'])
                && !part.ends_with(['-', '.'])
                && !["--", ".."].iter().any(|pair| part.contains(pair))
                && !part.ends_with(".git")
        };
        ensure!(
            text.split_once('/').is_some_and(|(owner, name)| sound(owner) && sound(name)),
            "`{text}` is not a repository of the hub: it takes the form `owner/name`, each of 1 to {LONGEST} letters, digits, \
             `-`, `_` and `.`, without `-` or `.` at an end, `--`, `..` or a final `.git`"
        );
        Ok(RepoId(text.to_owned()))
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Repository at a revision, on the hub and in the cache.
pub(super) struct HubRepo {
    pub(super) on_hub: Repo,
    pub(super) in_cache: CacheRepo,
}

impl HubRepo {
    /// Repository `id` at a revision that [`check_revision`] accepts.
    pub(super) fn new(cache_dir: &Path, kind: RepoType, id: &RepoId, revision: &str) -> HubRepo {
        let on_hub = Repo::with_revision(id.to_string(), kind, revision.to_owned());
        HubRepo { in_cache: Cache::new(cache_dir.to_owned()).repo(on_hub.clone()), on_hub }
    }
}

/// Name of the repository in messages.
impl fmt::Display for HubRepo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.on_hub.url(), self.on_hub.revision())
    }
}

/// Checks that a text is a branch, a tag, a commit or `refs/pr/N`.
pub(super) fn check_revision(text: &str) -> Result<()> {
    let sound = |part: &str| {
        is_plain(part, b"-_.+")
            && !part.starts_with(['-', '.'])
            && !part.ends_with('.')
            && !part.ends_with(".lock")
            && !part.contains("..")
    };
    ensure!(text.split('/').all(sound), "{text:?} is not a revision: name a branch, a tag or a commit");
    Ok(())
}

/// Whether a text is a full commit, which always names the same files.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Checks that a file name stays inside the folder it is joined to, on any system.
pub(super) fn check_inside(name: &str) -> Result<()> {
    let inside = !name.contains(['\\', ':'])
        && !name.chars().any(char::is_control)
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."));
    ensure!(inside, "the file name {name:?} leads outside its folder: do not use this checkpoint");
    Ok(())
}

/// Checks that a file name can be part of a URL as it is.
pub(super) fn check_url_safe(name: &str) -> Result<()> {
    check_inside(name)?;
    ensure!(
        is_plain(name, b"/-_.+=,@~()!"),
        "the file name {name:?} cannot be part of a URL: download it by hand and name the folder"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_stay_in_their_folder_and_in_their_place_in_a_url() {
        for name in ["a", "a/b.safetensors", "..a", "data/test-00000-of-00001-29a571947c0b5ccc.parquet"] {
            assert!(check_url_safe(name).is_ok(), "{name:?}");
        }
        for name in ["a b", "a?b", "a#b", "a%2e", "ä"] {
            assert!(check_inside(name).is_ok() && check_url_safe(name).is_err(), "{name:?}");
        }
        for name in ["", "/a", "../a", "a/../b", "a//b", "./a", "a/", "..", "a\\b", "C:a", "a\0b", "a\nb"] {
            assert!(check_inside(name).is_err() && check_url_safe(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_commit_is_forty_hex_digits() {
        assert!(is_commit(&"0a".repeat(20)));
        assert!(!is_commit("main") && !is_commit(&"0A".repeat(20)) && !is_commit(&"0a".repeat(21)));
    }
}

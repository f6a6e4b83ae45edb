//! Names on the hub: of a repository, of a revision, of a file in it.
//!
//! They become parts of URLs and of paths in the cache, and some come from the network, so each is checked first.
//! Nothing here touches the disk.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use hf_hub::{Repo, RepoType};

/// The longest owner or name the hub takes.
const LONGEST: usize = 96;

/// `owner/name`, by the hub's rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepoId(String);

impl FromStr for RepoId {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let sound = |part: &str| {
            (1..=LONGEST).contains(&part.len())
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
                && !part.starts_with(['-', '.'])
                && !part.ends_with(['-', '.'])
                && !part.contains("--")
                && !part.contains("..")
                && !part.ends_with(".git")
        };
        ensure!(
            text.split_once('/').is_some_and(|(owner, name)| sound(owner) && sound(name)),
            "`{text}` is no repository of the hub: it takes the form `owner/name`, each of 1 to {LONGEST} letters, digits, \
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

/// A repository at a revision, which is checked.
pub(super) fn repo_at(id: &RepoId, kind: RepoType, revision: &str) -> Result<Repo> {
    check_revision(revision).with_context(|| format!("`{id}@{revision}`"))?;
    Ok(Repo::with_revision(id.to_string(), kind, revision.to_owned()))
}

/// A repository at a revision as messages show it.
pub(super) fn shown(repo: &Repo) -> String {
    format!("{}@{}", repo.url(), repo.revision())
}

/// A branch, tag, commit or `refs/pr/N`.
pub(super) fn check_revision(text: &str) -> Result<()> {
    ensure!(
        !text.is_empty(),
        "the revision after `@` is empty: leave out the `@` or name a branch, tag or commit"
    );
    for part in text.split('/') {
        ensure!(
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.+".contains(&b))
                && !part.starts_with(['-', '.'])
                && !part.ends_with('.')
                && !part.ends_with(".lock")
                && !part.contains(".."),
            "{text:?} is no revision: name a branch, a tag or a commit"
        );
    }
    Ok(())
}

/// A full commit, which always names the same files.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// A file name that stays inside the folder it is joined to, on any system.
pub(super) fn check_inside(name: &str) -> Result<()> {
    let inside = !name.contains(['\\', ':'])
        && !name.chars().any(char::is_control)
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."));
    ensure!(inside, "the file name {name:?} leads outside its folder: do not use this checkpoint");
    Ok(())
}

/// A file name that can be part of a URL as it is: hf-hub does not escape it.
pub(super) fn check_url_safe(name: &str) -> Result<()> {
    check_inside(name)?;
    ensure!(
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-_.+=,@~()!".contains(&b)),
        "the file name {name:?} cannot be part of a URL: download it by hand and name the folder"
    );
    Ok(())
}

/// An entity tag, which names the blob in the cache.
pub(super) fn is_plain_etag(etag: &str) -> bool {
    let tag = etag.strip_prefix("W/").unwrap_or(etag);
    !tag.is_empty()
        && !tag.starts_with('.')
        && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_cannot_leave_its_folder() {
        for name in ["a", "a/b.safetensors", "model-00001-of-00002.safetensors", "..a", "a b"] {
            assert!(check_inside(name).is_ok(), "{name:?}");
        }
        for name in ["", "/a", "../a", "a/../b", "a//b", "./a", "a/", "..", "a\\b", "C:a", "a\0b", "a\nb"] {
            assert!(check_inside(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn names_that_would_change_the_url_are_refused() {
        assert!(check_url_safe("data/test-00000-of-00001-29a571947c0b5ccc.parquet").is_ok());
        for name in ["a b", "a?b", "a#b", "a%2e", "ä", "../a"] {
            assert!(check_url_safe(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn etags_are_single_plain_words() {
        for (etag, plain) in
            [("0aF-_", true), ("W/abc", true), ("", false), ("../x", false), ("/x", false), ("a.part", false)]
        {
            assert_eq!(is_plain_etag(etag), plain, "{etag:?}");
        }
    }

    #[test]
    fn a_commit_is_forty_hex_digits() {
        assert!(is_commit(&"0a".repeat(20)));
        assert!(!is_commit("main") && !is_commit(&"0A".repeat(20)) && !is_commit(&"0a".repeat(21)));
    }
}

//! Reading whole files up to a size limit.
//!
//! A path may name a device or a growing file, so the reported size is only a hint: reading stops at the limit, and no memory
//! beyond it is allocated.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

use anyhow::Context;
use serde::de::DeserializeOwned;

/// The bytes of a file of at most `most` bytes.
///
/// # Errors
/// A file that cannot be read, or is longer.
pub fn bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = File::open(path)?;
    let reported = file.metadata()?.len();
    let mut bytes = Vec::new();
    if reported <= most {
        bytes.try_reserve_exact(usize::try_from(reported).unwrap_or(usize::MAX))?;
        file.take(most + 1).read_to_end(&mut bytes)?;
    }
    if reported.max(bytes.len() as u64) > most {
        let message = format!("it has more than {most} bytes, too many for such a file; is it the right one?");
        return Err(Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// The same for a text file.
///
/// # Errors
/// As [`bytes`], and a file that is not UTF-8.
pub fn text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(bytes(path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("it is not UTF-8 at byte {at}"))
    })
}

/// The contents of a JSON file.
///
/// # Errors
/// As [`bytes`], and a file that is no JSON of this type; the message names the file.
pub fn json<T: DeserializeOwned>(path: &Path, most: u64) -> anyhow::Result<T> {
    let bytes = bytes(path, most).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{} is no valid JSON", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ends_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "größe").unwrap();
        assert_eq!(bytes(&path, 7).unwrap(), "größe".as_bytes());
        assert_eq!(text(&path, 100).unwrap(), "größe");
        assert_eq!(bytes(&path, 6).unwrap_err().kind(), ErrorKind::FileTooLarge);
        std::fs::write(&path, b"a\xff").unwrap();
        assert!(text(&path, 100).unwrap_err().to_string().contains("byte 1"));
        assert_eq!(bytes(&folder.path().join("b"), 1).unwrap_err().kind(), ErrorKind::NotFound);
        // A sparse file of a terabyte.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(bytes(&path, 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }

    /// Its reported size is 0, and it never ends.
    #[cfg(unix)]
    #[test]
    fn devices_are_bounded_too() {
        assert_eq!(bytes(Path::new("/dev/zero"), 1 << 16).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}

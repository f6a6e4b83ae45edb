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

/// The contents of a JSON file, as Python writes it too.
///
/// # Errors
/// As [`bytes`], and a file that is no JSON of this type; the message names the file.
pub fn json<T: DeserializeOwned>(path: &Path, most: u64) -> anyhow::Result<T> {
    let bytes = bytes(path, most).with_context(|| format!("cannot read {}", path.display()))?;
    let read = serde_json::from_slice(&bytes);
    read.or_else(|error| serde_json::from_slice(&quoted(&bytes)).map_err(|_| error))
        .with_context(|| format!("{} is no valid JSON", path.display()))
}

/// The same JSON with the numbers that only Python's has as texts, which are refused where a number is read.
fn quoted(json: &[u8]) -> Vec<u8> {
    const NUMBERS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    let (mut quoted, mut rest, mut in_text) = (Vec::with_capacity(json.len()), json, false);
    while let Some(first) = rest.first() {
        let number = NUMBERS.into_iter().find(|number| !in_text && rest.starts_with(number));
        let taken = number.map_or(if in_text && *first == b'\\' { 2 } else { 1 }, <[u8]>::len);
        let (own, after) = rest.split_at(taken.min(rest.len()));
        in_text ^= *first == b'"';
        match number {
            Some(number) => quoted.extend([b"\"", number, b"\""].concat()),
            None => quoted.extend(own),
        }
        rest = after;
    }
    quoted
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

    /// `json.dumps({"a": [inf, -inf, nan, "NaN", '"\\NaN'], "NaN": 1.5})` in Python.
    #[test]
    fn numbers_of_python_are_texts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let written = r#"{"a": [Infinity, -Infinity, NaN, "NaN", "\"\\NaN"], "NaN": 1.5}"#;
        std::fs::write(&path, written).unwrap();
        let read: serde_json::Value = json(&path, 100).unwrap();
        let expected = serde_json::json!({"a": ["Infinity", "-Infinity", "NaN", "NaN", "\"\\NaN"], "NaN": 1.5});
        assert_eq!(read, expected);
        std::fs::write(&path, "{\"a\": Inf}").unwrap();
        assert!(format!("{:#}", json::<serde_json::Value>(&path, 100).unwrap_err()).contains("line 1 column 7"));
    }

    /// Its reported size is 0, and it never ends.
    #[cfg(unix)]
    #[test]
    fn devices_are_bounded_too() {
        assert_eq!(bytes(Path::new("/dev/zero"), 1 << 16).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}

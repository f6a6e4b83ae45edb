//! Opening ordinary files, and reading whole ones up to a size limit.
//!
//! A path may name anything: reading a pipe waits for whoever writes into it, and a device may never end. So [`ordinary`] is the only
//! function of the program that opens a path. A file may grow, so its reported size is only a hint: reading stops at the limit, and no
//! memory beyond it is allocated.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use serde::de::DeserializeOwned;

/// Opens an ordinary file for reading.
///
/// # Errors
///
/// A path that [`ordinary`] refuses.
pub fn open(path: &Path) -> Result<File> {
    ordinary(OpenOptions::new().read(true), path)
}

/// Opens an ordinary file with `options`. The opened file is looked at, not the path, so that nothing can take the path's place
/// between the look and the opening.
///
/// # Errors
///
/// A file that cannot be opened, a folder, or a pipe, socket or device.
pub fn ordinary(options: &mut OpenOptions, path: &Path) -> Result<File> {
    // A pipe then opens at once, and no terminal becomes the program's own. It means nothing to ordinary files.
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        let message = "it is a pipe, a socket or a device, and only ordinary files are read and written: put what it gives into a \
                       file, and name that";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(file)
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
///
/// A file that cannot be read, or is longer.
pub fn bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
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

/// Reads a text file of at most `most` bytes.
///
/// # Errors
///
/// A file that cannot be read, is longer, or is not UTF-8.
pub fn text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(bytes(path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("it is not UTF-8 at byte {at}"))
    })
}

/// Reads a JSON file of at most `most` bytes; numbers may be written as Python writes them.
///
/// # Errors
///
/// A file that cannot be read, is longer, or is not JSON of this type; the message names the file.
pub fn json<T: DeserializeOwned>(path: &Path, most: u64) -> anyhow::Result<T> {
    let bytes = bytes(path, most).with_context(|| format!("cannot read {}", path.display()))?;
    let read = serde_json::from_slice(&bytes);
    read.or_else(|error| serde_json::from_slice(&quoted(&bytes)).map_err(|_| error))
        .with_context(|| format!("{} is not valid JSON", path.display()))
}

/// Puts the numbers that only Python's JSON has (`NaN`, `Infinity`) in quotes, so that they are refused where a number is read.
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

    /// Bytes of `json.dumps({"a": [inf, -inf, nan, "NaN", '"\\NaN'], "NaN": 1.5})` in Python.
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

    /// A pipe would wait for a writer, and the device never ends.
    #[test]
    fn only_ordinary_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for path in [&pipe, &link, Path::new("/dev/zero"), Path::new("/dev/null")] {
            let error = bytes(path, 1 << 16).unwrap_err();
            assert!(error.to_string().contains("only ordinary files"), "{}: {error}", path.display());
            let error = ordinary(OpenOptions::new().append(true), path).unwrap_err();
            assert!(
                error.kind() == ErrorKind::InvalidInput || error.raw_os_error() == Some(libc::ENXIO),
                "{error}"
            );
        }
        assert!(open(&socket).is_err());
        assert_eq!(open(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, folder.path().join("to-file")).unwrap();
        assert_eq!(text(&folder.path().join("to-file"), 9).unwrap(), "text");
    }
}

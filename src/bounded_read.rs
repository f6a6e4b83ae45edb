//! Files of strangers, read no further than a limit.
//!
//! Knows files and sizes, and nothing of what is in them. A file may be endless, or a link to a device that is, so what its
//! folder says of its size is not believed: reading itself ends at the limit, and before any memory beyond it is taken.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// The bytes of a file, of which there are at most `most`.
///
/// # Errors
/// A file that cannot be read, or is longer.
pub fn bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = File::open(path)?;
    let told = file.metadata()?.len();
    let mut bytes = Vec::new();
    if told <= most {
        bytes.try_reserve_exact(usize::try_from(told).unwrap_or(usize::MAX))?;
        file.take(most + 1).read_to_end(&mut bytes)?;
    }
    if told.max(bytes.len() as u64) > most {
        let message =
            format!("it has more than {most} bytes, far beyond what such a file has; is it the one meant?");
        return Err(Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// The same of a file of text.
///
/// # Errors
/// As [`bytes`]; a file that is not UTF-8.
pub fn text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(bytes(path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("it is not UTF-8: byte {at} belongs to no character"))
    })
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
        // A terabyte that takes no place on the disk.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(bytes(&path, 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }

    /// Its folder says that it is empty, and it never ends.
    #[cfg(unix)]
    #[test]
    fn a_device_is_no_way_around() {
        assert_eq!(bytes(Path::new("/dev/zero"), 1 << 16).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}

//! The text of a file, or of one file of a zip archive, which is unpacked in memory; within a limit.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{utf8, without_mark};
use crate::bounded_read;

/// The most bytes of a file, packed or unpacked: twenty times the largest benchmark here.
const MOST_BYTES: u64 = 1 << 31;

/// The text of a file, or of the first file of these names in an archive, without a byte order mark; and what errors call it.
///
/// # Errors
/// A file that cannot be read, has too many bytes or is not UTF-8, or an archive without such a file.
pub fn text_of(path: &Path, members: &[String]) -> Result<(String, String)> {
    let name = path.display().to_string();
    let (bytes, name) = if is_archive(path) {
        let (member, bytes) = unpack(path, members, MOST_BYTES)?;
        (bytes, format!("{name}:{member}"))
    } else {
        (bounded_read::bytes(path, MOST_BYTES).with_context(|| format!("cannot read {name}"))?, name)
    };
    Ok((without_mark(utf8(bytes, &name)?), name))
}

/// Whether a path names an archive.
pub fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zip")
}

/// The first file of these names in an archive: its name and its contents. Nothing is written to disk.
///
/// # Errors
/// An archive that is damaged, has none of the files, or whose file is larger than `most` bytes.
fn unpack(archive: &Path, wanted: &[String], most: u64) -> Result<(String, Vec<u8>)> {
    let cannot = || format!("cannot read the archive {}", archive.display());
    let mut zip = open(archive)?;
    let Some(name) = wanted.iter().find(|name| zip.index_for_name(name).is_some()) else {
        let names: Vec<String> =
            zip.file_names().take(10).filter_map(|name| Some(name.ok()?.into_owned())).collect();
        bail!("{} holds neither {}, but {}", archive.display(), wanted.join(" nor "), names.join(", "));
    };
    let member = zip.by_name(name).with_context(cannot)?;
    let (mut bytes, said) = (Vec::new(), member.size());
    // The size that the archive says may be wrong, so the reading is limited too.
    if said <= most {
        member.take(most + 1).read_to_end(&mut bytes).with_context(|| format!("{}: {name}", cannot()))?;
    }
    ensure!(
        said.max(bytes.len() as u64) <= most,
        "{name} in {} unpacks to more than {most} bytes; is it the file you meant?",
        archive.display()
    );
    Ok((name.clone(), bytes))
}

/// The names of the files in an archive.
///
/// # Errors
/// An archive that is damaged.
pub fn names(archive: &Path) -> Result<Vec<String>> {
    Ok(open(archive)?.file_names().filter_map(|name| Some(name.ok()?.into_owned())).collect())
}

fn open(archive: &Path) -> Result<zip::ZipArchive<BufReader<File>>> {
    let cannot = || format!("cannot read the archive {}", archive.display());
    let file = BufReader::new(bounded_read::open(archive).with_context(cannot)?);
    zip::ZipArchive::new(file).with_context(cannot)
}

#[cfg(test)]
pub mod tests {
    use std::io::{Cursor, Write};

    use zip::write::SimpleFileOptions;

    use super::*;

    /// An archive with one file.
    pub(in crate::task) fn archive(member: &str, text: &str) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let deflated = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        writer.start_file(member, deflated).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn a_file_is_unpacked_within_the_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "An owl saw a fox. ".repeat(50);
        let packed = archive("b/c.txt", &text);
        assert!(packed.len() < text.len() / 2);
        let unpacked = |archive: &[u8], name: &str, most: usize| {
            std::fs::write(file.path(), archive).unwrap();
            unpack(file.path(), &["a".into(), name.into()], most as u64)
        };
        let found = unpacked(&packed, "b/c.txt", text.len()).unwrap();
        assert_eq!(found, ("b/c.txt".to_string(), text.clone().into_bytes()));
        let mistakes = [
            (&packed[..], "b/c.txt", text.len() - 1, "unpacks to more than"),
            (&packed, "c.txt", text.len(), "neither a nor c.txt, but b/c.txt"),
            (&packed[..packed.len() - 30], "b/c.txt", text.len(), "cannot read the archive"),
            (b"no archive", "b/c.txt", text.len(), "cannot read the archive"),
        ];
        for (archive, name, most, expected) in mistakes {
            let message = format!("{:#}", unpacked(archive, name, most).unwrap_err());
            assert!(message.contains(expected), "{message}");
            assert!(message.contains(file.path().to_str().unwrap()), "{message}");
        }
    }
}

//! Unpacks one file of a zip archive in memory, within a limit.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// The most bytes of a file of questions: twenty times the size of SQuALITY's and QASPER's.
pub const MOST_UNPACKED: u64 = 1 << 29;

/// The first file of these names in an archive: its name and its contents. Nothing is written to disk.
///
/// # Errors
/// An archive that is damaged, has none of the files, or whose file is larger than `most` bytes.
pub fn unpack(archive: &Path, wanted: &[String], most: u64) -> Result<(String, Vec<u8>)> {
    let cannot = || format!("cannot read the archive {}", archive.display());
    let file = BufReader::new(File::open(archive).with_context(cannot)?);
    let mut zip = zip::ZipArchive::new(file).with_context(cannot)?;
    let Some(name) = wanted.iter().find(|name| zip.index_for_name(name).is_some()) else {
        let names: Vec<String> =
            zip.file_names().take(10).filter_map(|name| Some(name.ok()?.into_owned())).collect();
        bail!("{} holds neither {}, but {}", archive.display(), wanted.join(" nor "), names.join(", "));
    };
    let member = zip.by_name(name).with_context(cannot)?;
    let mut bytes = Vec::new();
    // The size in the archive may be wrong, so it is the reading that is limited.
    member.take(most + 1).read_to_end(&mut bytes).with_context(|| format!("{}: {name}", cannot()))?;
    ensure!(
        bytes.len() as u64 <= most,
        "{name} in {} unpacks to more than {most} bytes; is it the file you meant?",
        archive.display()
    );
    Ok((name.clone(), bytes))
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
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.zip");
        let text = "An owl saw a fox. ".repeat(50);
        let packed = archive("b/c.txt", &text);
        assert!(packed.len() < text.len() / 2);
        std::fs::write(&file, &packed).unwrap();
        let unpacked = |name: &str, most: usize| unpack(&file, &["a".into(), name.into()], most as u64);
        let (name, bytes) = unpacked("b/c.txt", text.len()).unwrap();
        assert_eq!((name.as_str(), bytes.as_slice()), ("b/c.txt", text.as_bytes()));
        let message = unpacked("b/c.txt", text.len() - 1).unwrap_err().to_string();
        assert!(message.contains("unpacks to more than") && message.contains("x.zip"), "{message}");
        let message = unpacked("c.txt", text.len()).unwrap_err().to_string();
        assert!(message.contains("neither a nor c.txt, but b/c.txt"), "{message}");
    }

    #[test]
    fn a_damaged_archive_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.zip");
        let text = "An owl saw a fox. ".repeat(50);
        let packed = archive("c.txt", &text);
        std::fs::write(&file, &packed[..packed.len() - 30]).unwrap();
        let message = |most| format!("{:#}", unpack(&file, &["c.txt".into()], most).unwrap_err());
        assert!(message(1000).contains("cannot read the archive"));
        std::fs::write(&file, "no archive").unwrap();
        assert!(message(1000).contains("cannot read the archive"));
    }
}

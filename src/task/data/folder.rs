//! Reads texts from files: one, or all of a folder.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};

use super::books::Books;
use crate::bounded_read;
use crate::task::embedded::Book;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The most bytes of a text: a thousand times the longest of PG-19.
const MOST_BYTES: u64 = 4 << 30;

/// A text without a byte order mark at its start and with line ends of one byte, however an editor saved it.
pub fn clean(text: String) -> String {
    let text = without_mark(text);
    if text.contains("\r\n") { text.replace("\r\n", "\n") } else { text }
}

/// A text without a byte order mark at its start.
pub fn without_mark(mut text: String) -> String {
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    text
}

/// The bytes of a file as text.
///
/// # Errors
/// Bytes that are not UTF-8; the message names the file.
pub fn utf8(bytes: Vec<u8>, file: impl Display) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("{file} is not UTF-8: byte {at} belongs to no character; convert the file to UTF-8")
    })
}

/// A text file, [cleaned](clean).
///
/// # Errors
/// A file that cannot be read, is empty, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = bounded_read::bytes(path, MOST_BYTES)
        .with_context(|| format!("cannot read the text {}", path.display()))?;
    let text = clean(utf8(bytes, path.display())?);
    ensure!(!text.trim().is_empty(), "{} is an empty text; remove it from the folder or fill it", path.display());
    Ok(text)
}

/// The files of a folder and its folders, in the order of their names.
pub fn files_below(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir()? {
            let entry = entry?;
            // Links are not followed, so that a circle of them ends.
            let is_folder = entry.file_type()?.is_dir();
            if is_folder { &mut folders } else { &mut found }.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Texts of a folder, which are in the order of their names.
pub fn books_of_folder(path: &Path, books: &Books) -> Result<Vec<Book>> {
    ensure!(
        !path.is_file(),
        "{} is neither a folder nor a .parquet file\nhint: texts are the .txt files of a folder; name the folder",
        path.display()
    );
    let cannot = || format!("cannot read the folder of texts {}", path.display());
    let files = std::fs::read_dir(path).with_context(cannot)?.map(|entry| Ok(entry?.path()));
    let mut files: Vec<PathBuf> = files.collect::<Result<_>>().with_context(cannot)?;
    files.retain(|file| is_book(file));
    files.sort();
    ensure!(!files.is_empty(), "{} holds no .txt file; a data set is a folder of texts", path.display());
    let book = |file: &PathBuf| Ok(Book { name: file_name(file), text: read_text(file)?, ..Book::default() });
    let names: Vec<String> = files.iter().map(|file| file_name(file)).collect();
    books.among(&names)?.into_iter().map(|at| book(&files[at])).collect()
}

/// Whether a file of a folder is one of its texts. Files that begin with a dot are the system's or an editor's.
fn is_book(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "txt")
        && !file_name(file).starts_with('.')
        && file.is_file()
}

fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lm::Tokenizer;
    use crate::task::data::digest;

    fn read(folder: &Path) -> Result<Vec<Book>> {
        books_of_folder(folder, &Books::All)
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_names() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("b.txt", "two"), ("a.txt", "one"), ("notes.md", "no")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let names: Vec<String> = read(folder.path()).unwrap().into_iter().map(|book| book.name).collect();
        assert_eq!(names, ["a.txt", "b.txt"]);
    }

    #[test]
    fn hidden_and_other_files_are_no_books() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".a.txt", "b.txt", "c.md", "d.TXT"] {
            std::fs::write(folder.path().join(name), "text").unwrap();
        }
        std::fs::create_dir(folder.path().join("e.txt")).unwrap();
        let books = read(folder.path()).unwrap();
        assert_eq!(books.iter().map(|book| book.name.as_str()).collect::<Vec<_>>(), ["b.txt"]);
        std::fs::remove_file(folder.path().join("b.txt")).unwrap();
        let message = read(folder.path()).unwrap_err().to_string();
        assert!(message.contains("no .txt file"), "{message}");
        let message = read(&folder.path().join("c.md")).unwrap_err().to_string();
        assert!(message.contains("c.md is neither a folder"), "{message}");
    }

    /// Latin-1 names: both show as a question mark in place of the letter that tells them apart.
    #[cfg(target_os = "linux")]
    #[test]
    fn two_texts_of_one_name_are_refused() {
        use std::os::unix::ffi::OsStrExt;

        let folder = tempfile::tempdir().unwrap();
        for name in [b"\xe9.txt", b"\xe8.txt"] {
            std::fs::write(folder.path().join(std::ffi::OsStr::from_bytes(name)), "It ran.").unwrap();
        }
        let dataset = crate::task::DataSource::Path(folder.path().display().to_string());
        let hub = crate::lm::source::HubSettings::with_cache_dir("nowhere");
        let read = |books: Books| super::super::read_books(&dataset, &books, &hub, &());
        assert!(read(Books::All).unwrap_err().to_string().contains("two texts of"));
        assert_eq!(read(Books::First(1)).unwrap().len(), 1);
    }

    #[test]
    fn how_an_editor_saved_a_text_changes_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let plain = "A fox ran.\n\n\u{feff}It sat\rdown.\n";
        let saved = format!("\u{feff}{}", plain.replace('\n', "\r\n"));
        let tokenizer = Tokenizer::bytes().unwrap();
        let read = |text: &str| {
            std::fs::write(folder.path().join("a.txt"), text).unwrap();
            let books = read(folder.path()).unwrap();
            (digest(&books), tokenizer.encode(&books[0].text).unwrap().ids)
        };
        assert_ne!(saved.len(), plain.len());
        let expected: Vec<u32> = tokenizer.encode(plain).unwrap().ids;
        assert_eq!(read(plain).1, expected);
        assert_eq!(read(&saved), read(plain));
    }

    #[test]
    fn errors_name_the_bad_text() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("no .txt"));
        std::fs::write(folder.path().join("x.txt"), b"abc\xff").unwrap();
        let message = read(folder.path()).unwrap_err().to_string();
        assert!(message.contains("x.txt") && message.contains("byte 3"), "{message}");
        std::fs::write(folder.path().join("x.txt"), "  \n").unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("empty"));
    }
}

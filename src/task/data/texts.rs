//! Reads texts from a folder of files, a Parquet column, a data set of the hub, or the program itself.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::books::Books;
use super::folder::{books_of_folder, clean};
use super::source::DataSource;
use crate::lm::source::{DownloadProgress, Hub, HubSettings, expand_home};
use crate::parquet;
use crate::task::embedded::{self, Book, Recall};

/// Books of a data set, which are in the order of their names or rows unless they are asked for by name.
///
/// # Errors
/// A data set that is missing, empty or unreadable, and a name that is not in it; the message names the file.
pub fn read_books(
    dataset: &DataSource,
    asked: &Books,
    hub: &HubSettings,
    progress: &dyn DownloadProgress,
) -> Result<Vec<Book>> {
    // Of the texts in the program a number of usual ones, if none are asked for.
    let most = match asked {
        Books::All => EMBEDDED_BOOKS,
        Books::First(count) => *count,
        Books::Named(_) => usize::MAX,
    };
    let books: Vec<Book> = match dataset {
        DataSource::Embedded => those(asked, embedded::books(most).collect())?,
        DataSource::EmbeddedQuestions => those(asked, embedded::quizzes(most).collect())?,
        DataSource::RandomWords => those(asked, (0..RANDOM_BOOKS).map(random_book).collect())?,
        DataSource::Hub(repo) => {
            // The other splits are training data.
            let test = |name: &str| name.ends_with(".parquet") && name.contains("test");
            books_of_tables(&Hub { settings: hub, progress }.dataset_files(repo, test)?, asked)?
        }
        DataSource::Path(path) => {
            let path = expand_home(path)?;
            if path.extension().is_some_and(|extension| extension == "parquet") {
                books_of_tables(&[path], asked)?
            } else {
                books_of_folder(&path, asked)?
            }
        }
    };
    // Names of files that are not UTF-8 lose what tells them apart.
    let mut names = HashSet::new();
    match books.iter().find(|book| !names.insert(&book.name)) {
        Some(Book { name, .. }) => {
            bail!(
                "two texts of {dataset} are named {name:?}, and results could not tell them apart; rename one of them"
            )
        }
        None => Ok(books),
    }
}

/// Says that a data set has fewer books, texts or documents (`what`) than the sweep asks for; all of them are used.
pub fn note_fewer(
    progress: &dyn DownloadProgress,
    dataset: &dyn std::fmt::Display,
    what: &str,
    asked: usize,
    there: usize,
) {
    if there < asked {
        progress.note(&format!("{dataset} has only {there} of the {asked} {what} asked for"));
    }
}

/// The books that are asked for, of all that there are.
fn those(asked: &Books, books: Vec<Book>) -> Result<Vec<Book>> {
    let names: Vec<&str> = books.iter().map(|book| book.name.as_str()).collect();
    let places = asked.among(&names)?;
    let mut books: Vec<Option<Book>> = books.into_iter().map(Some).collect();
    Ok(places.into_iter().filter_map(|at| books[at].take()).collect())
}

/// The texts of Parquet files, named as the files of Project Gutenberg that their column `url` says, or else by their rows.
fn books_of_tables(files: &[PathBuf], asked: &Books) -> Result<Vec<Book>> {
    let mut books = Vec::new();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let ids = parquet::read_text_column(file, "url").ok();
        let ids: Option<Vec<String>> = ids.and_then(|urls| urls.iter().map(|url| gutenberg_name(url)).collect());
        let ids = ids.filter(|ids| ids.iter().collect::<HashSet<_>>().len() == ids.len());
        for (row, text) in parquet::read_text_column(file, "text")?.into_iter().enumerate() {
            let numbered = if files.len() == 1 { format!("row {row:05}") } else { format!("{stem} row {row:05}") };
            let name = ids.as_ref().map_or(numbered, |ids| ids[row].clone());
            books.push(Book { name, text: clean(text), ..Book::default() });
        }
    }
    let books = those(asked, books)?;
    ensure!(!books.is_empty(), "the data set holds no text");
    match books.iter().find(|book| book.text.trim().is_empty()) {
        Some(Book { name, .. }) => bail!("{name} is an empty text; remove its row, or list other `books`"),
        None => Ok(books),
    }
}

/// The name of a book's file in PG-19, such as `10146.txt`, of its address `http://www.gutenberg.org/ebooks/10146`.
fn gutenberg_name(url: &str) -> Option<String> {
    let (_, id) = url.trim_end_matches('/').split_once("gutenberg.org/ebooks/")?;
    (!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())).then(|| format!("{id}.txt"))
}

/// The digest of names, texts and their recalls.
pub fn digest(books: &[Book]) -> String {
    let parts = books.iter().flat_map(|Book { name, text, recalls }| {
        let recalls = recalls.iter().map(|Recall { kind, told, answer: [start, end], choices }| {
            format!("{kind} {told} {start}..{end} {choices}").into()
        });
        [Cow::from(name), Cow::from(text)].into_iter().chain(recalls)
    });
    digest_of(parts)
}

/// The digest of a data set's parts, which enters cell ids: `sha256:` and 16 hex digits. Each part is hashed with its
/// length, so that moving a border between two parts changes the digest.
pub fn digest_of<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let hex: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Texts of `embedded` and `embedded-questions` unless the sweep asks for another number.
const EMBEDDED_BOOKS: usize = 16;

const RANDOM_BOOKS: usize = 4;
const RANDOM_BOOK_WORDS: usize = 4000;

/// Sentences of made-up words, some far commoner than others.
fn random_book(index: usize) -> Book {
    let mut rng = fastrand::Rng::with_seed(index as u64 + 1);
    let syllables = ["ta", "re", "mi", "lo", "sun", "ka", "vel", "or", "den", "shi", "pra", "un"];
    let word = |number: usize| -> String {
        let (a, b, c) = (number % 12, number / 12 % 12, number / 144 % 12);
        [a, b, c].iter().take(1 + number % 3).map(|i| syllables[*i]).collect()
    };
    let mut text = String::new();
    for position in 0..RANDOM_BOOK_WORDS {
        // The square makes low numbers common, as words of a language are.
        let number = (rng.f64() * rng.f64() * 1728.0) as usize;
        text.push_str(&word(number));
        text.push_str(if position % 11 == 10 { ".\n" } else { " " });
    }
    Book { name: format!("random-{index}"), text, ..Book::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What a reader was told.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl DownloadProgress for Notes {
        fn note(&self, message: &str) {
            self.0.lock().unwrap().push(message.to_owned());
        }
    }

    #[test]
    fn too_few_texts_are_said() {
        let notes = Notes::default();
        let say = |asked, there| note_fewer(&notes, &DataSource::RandomWords, "books", asked, there);
        [(10, 4), (4, 4), (3, 4)].into_iter().for_each(|(asked, there)| say(asked, there));
        let notes = notes.0.lock().unwrap();
        assert!(notes.len() == 1 && notes[0].contains("only 4 of the 10 books"), "{notes:?}");
    }

    #[test]
    fn the_digest_depends_on_names_texts_and_their_borders() {
        let book = |name: &str, text: &str| Book { name: name.into(), text: text.into(), ..Book::default() };
        let one = digest(&[book("a", "bc")]);
        assert_ne!(one, digest(&[book("ab", "c")]));
        assert_ne!(one, digest(&[book("a", "bd")]));
        assert_eq!(one, digest(&[book("a", "bc")]));
        let recall = |choices| Recall { kind: "home", told: 0, answer: [1, 2], choices };
        let recalling = |choices| digest(&[Book { recalls: vec![recall(choices)], ..book("a", "bc") }]);
        assert!(recalling(2) != one && recalling(2) != recalling(3));
    }

    #[test]
    fn embedded_books_do_not_depend_on_how_many_are_read() {
        let hub = HubSettings::with_cache_dir("nowhere");
        let books = |asked| read_books(&DataSource::Embedded, &asked, &hub, &());
        let (two, all) = (books(Books::First(2)).unwrap(), books(Books::All).unwrap());
        assert_eq!((two.len(), all.len()), (2, EMBEDDED_BOOKS));
        assert_eq!(two, all[..2]);
        for book in &all {
            assert!(!book.recalls.is_empty(), "{}", book.name);
            // The answer is a part of the text, after the statement of the fact.
            for Recall { told, answer: [start, end], choices, .. } in &book.recalls {
                assert!(told <= start && *choices > 0, "{}: {start}", book.name);
                assert!(!book.text[*start..*end].trim().is_empty(), "{}: {start}", book.name);
            }
        }
    }
}

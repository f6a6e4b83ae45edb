//! Texts that tasks read: where they come from, and how they are cut into samples.

mod archive;
mod books;
mod folder;
mod recall;
mod rows;
mod samples;
mod settings;
mod source;
mod start;
mod texts;

#[cfg(test)]
pub(super) use archive::tests::archive;
pub(super) use archive::{is_archive, names, text_of};
pub use books::Books;
pub(super) use books::BooksYaml;
pub use folder::{clean, read_text};
pub(super) use folder::{files_below, utf8, without_mark};
pub use recall::LocatedRecall;
pub(super) use recall::{octave, recall_sums};
pub(super) use rows::{check_length, json_files, json_lines, path_of};
pub(super) use samples::CutBooks;
pub(super) use samples::cut_with;
pub use samples::{TextSample, cut, resolve_bos};
pub use settings::Texts;
pub(super) use settings::{Bos, Tail, length};
pub use source::DataSource;
pub(super) use source::{EMBEDDED, RANDOM_TOKENS, check_source, check_texts};
pub(super) use start::Start;
pub(super) use texts::note_fewer;
pub use texts::{digest, digest_of, read_books};

pub use super::embedded::Book;

//! Sweep files and folders of texts.

use std::fs;
use std::path::Path;

/// The parts of a sweep file, as YAML.
pub struct Sweep<'a> {
    pub models: &'a str,
    pub policies: &'a str,
    pub cache_sizes: &'a str,
    /// One inline mapping per task.
    pub tasks: &'a [&'a str],
    /// Further lines.
    pub more: &'a str,
}

/// A random model, random words, and two cells: done in a moment.
pub const SMALL: Sweep<'static> = Sweep {
    models: "[random-tiny]",
    policies: "[full, tova]",
    cache_sizes: "[8]",
    tasks: &["dataset: random-words, length: 64, books: 1, chunks_per_book: 1"],
    more: "",
};

impl Sweep<'_> {
    pub fn text(&self) -> String {
        let tasks: String = self.tasks.iter().map(|task| format!("  - perplexity: {{{task}}}\n")).collect();
        let Sweep { models, policies, cache_sizes, more, .. } = self;
        format!("models: {models}\npolicies: {policies}\ncache_sizes: {cache_sizes}\n{more}tasks:\n{tasks}")
    }

    /// Writes `sweep.yaml` into a folder.
    pub fn write(&self, folder: &Path) {
        fs::write(folder.join("sweep.yaml"), self.text()).unwrap();
    }
}

/// Writes a folder `texts` of books with this many words each; the random words are the same every time.
pub fn write_texts(folder: &Path, books: usize, words: usize) {
    let texts = folder.join("texts");
    fs::create_dir_all(&texts).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    for book in 0..books {
        let mut text = String::new();
        for place in 0..words {
            let length = random.usize(1..8);
            text.extend((0..length).map(|_| random.lowercase()));
            // Some characters of three bytes, since tokens here are bytes.
            text.push_str(if place % 17 == 16 { " \u{2014} " } else { " " });
        }
        fs::write(texts.join(format!("book-{book}.txt")), text).unwrap();
    }
}

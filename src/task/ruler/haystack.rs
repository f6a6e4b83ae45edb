//! Long texts to hide sentences in, read up to a number of words.

use crate::task::data::Book;

/// Running text in words, as RULER has Paul Graham's essays.
#[derive(Default)]
pub struct Essay {
    words: Vec<String>,
}

impl Essay {
    /// The words of books, one after the other.
    pub fn new(books: &[Book]) -> Essay {
        let words = books.iter().flat_map(|book| book.text.split_whitespace());
        Essay { words: words.map(str::to_owned).collect() }
    }

    /// Whether there is no word.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The first sentences in so many words; the last may be cut. The text is repeated where it is too short.
    pub fn sentences(&self, words: usize) -> Vec<String> {
        let mut sentences = Vec::new();
        let mut open: Vec<&str> = Vec::new();
        for word in self.words.iter().cycle().take(words) {
            open.push(word);
            // Quotes and brackets may follow the mark.
            if word.trim_end_matches(['"', '\'', ')', ']', '”', '’']).ends_with(['.', '!', '?']) {
                sentences.push(open.join(" "));
                open.clear();
            }
        }
        if !open.is_empty() {
            sentences.push(open.join(" "));
        }
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_marks_and_the_text_repeats() {
        let book = |text: &str| Book { text: text.into(), ..Book::default() };
        let essay = Essay::new(&[book("Go  on.\nWhy? \"No!\" It"), book("is 3.5 so.")]);
        assert_eq!(essay.sentences(7), ["Go on.", "Why?", "\"No!\"", "It is 3.5"]);
        assert_eq!(essay.sentences(11)[3..], ["It is 3.5 so.", "Go on.", "Why?"]);
    }
}

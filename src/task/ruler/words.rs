//! Plain English words, for keys such as `calm-river` and for lists of words; and running text to hide sentences in.
//!
//! RULER takes them from the Python package wonderwords and from a file of its own. Here they are a list of about 2,100 words;
//! where a list needs more, it is made of pairs of an adjective and a noun.

use std::collections::BTreeSet;

use fastrand::Rng;

use crate::task::data::Book;
use crate::task::embedded::section;

/// The words of `words.txt`.
pub struct Words {
    adjectives: Vec<&'static str>,
    nouns: Vec<&'static str>,
    verbs: Vec<&'static str>,
}

impl Words {
    /// The words in the program.
    pub fn read() -> Words {
        let [adjectives, nouns, verbs] =
            ["adjectives", "nouns", "verbs"].map(|name| section(include_str!("words.txt"), name));
        Words { adjectives, nouns, verbs }
    }

    /// A key: an adjective and a noun.
    pub fn pair(&self, rng: &mut Rng) -> String {
        let (adjective, noun) = (rng.usize(..self.adjectives.len()), rng.usize(..self.nouns.len()));
        format!("{}-{}", self.adjectives[adjective], self.nouns[noun])
    }

    /// Different words in random order; pairs, if there are not as many words.
    pub fn different(&self, count: usize, rng: &mut Rng) -> Vec<String> {
        let all = || [&self.adjectives, &self.nouns, &self.verbs].into_iter().flatten();
        let mut found: Vec<String> = if count <= all().count() {
            rng.choose_multiple(all(), count).into_iter().map(|word| (*word).to_owned()).collect()
        } else {
            let mut pairs = BTreeSet::new();
            while pairs.len() < count.min(self.adjectives.len() * self.nouns.len() / 2) {
                pairs.insert(self.pair(rng));
            }
            pairs.into_iter().collect()
        };
        rng.shuffle(&mut found);
        found
    }
}

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
    fn no_word_is_there_twice_and_lists_have_different_words() {
        let words = Words::read();
        let counts = [&words.adjectives, &words.nouns, &words.verbs].map(|list| list.len());
        assert!(counts[0] >= 300 && counts[1] >= 900 && counts[2] >= 300, "{counts:?}");
        let all: BTreeSet<&str> =
            [&words.adjectives, &words.nouns, &words.verbs].into_iter().flatten().copied().collect();
        assert_eq!(all.len(), counts.iter().sum::<usize>());
        assert!(all.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_lowercase())));
        let mut rng = Rng::with_seed(1);
        for count in [1, 50, all.len(), all.len() + 1, 9000] {
            let found = words.different(count, &mut rng);
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), count);
            assert_eq!(found.iter().all(|word| word.contains('-')), count > all.len());
        }
    }

    #[test]
    fn sentences_end_at_marks_and_the_text_repeats() {
        let book = |text: &str| Book { text: text.into(), ..Book::default() };
        let essay = Essay::new(&[book("Go  on.\nWhy? \"No!\" It"), book("is 3.5 so.")]);
        assert_eq!(essay.sentences(7), ["Go on.", "Why?", "\"No!\"", "It is 3.5"]);
        assert_eq!(essay.sentences(11)[3..], ["It is 3.5 so.", "Go on.", "Why?"]);
    }
}

//! The ten commonest words of a list, in which ten words appear often and the others seldom (RULER's
//! `common_words_extraction.py`). An example with its answer comes before the list.

use fastrand::Rng;

use super::example::{Example, Generator};
use super::words::Words;

/// Makes the prompts of `cwe`.
pub struct CommonWordGenerator<'a> {
    pub words: &'a Words,
    /// Tokens of prompt and answer together.
    pub length: usize,
}

/// Words that appear often.
const COMMON: usize = 10;

impl Generator for CommonWordGenerator<'_> {
    fn step(&self) -> usize {
        10
    }

    fn least(&self, _: usize) -> usize {
        COMMON
    }

    fn probe(&self) -> usize {
        4096
    }

    fn make(&self, size: usize, _sample: usize, rng: &mut Rng) -> Example {
        // Different words, and how often a common and another one appears: of the answered example and of the list.
        let (shown, list) =
            if self.length < 4096 { ((20, 3, 1), (size, 6, 1)) } else { ((40, 10, 3), (size, 30, 3)) };
        let (shown, list) = (self.list(shown, rng), self.list(list, rng));
        let before = format!("{} {}\n{}", shown.text(), numbered(&shown.references), list.before);
        Example { before, ..list }
    }
}

impl CommonWordGenerator<'_> {
    fn list(&self, (words, common, other): (usize, usize, usize), rng: &mut Rng) -> Example {
        let words = self.words.different(words, rng);
        let (often, seldom) = words.split_at(COMMON.min(words.len()));
        let times = |words: &[String], times: usize| vec![words; times].concat();
        let mut list = [times(often, common), times(seldom, other)].concat();
        rng.shuffle(&mut list);
        Example {
            before: "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones \
                     that appear most often.\n"
                .to_owned(),
            document: numbered(&list),
            question: "\nQuestion: What are the 10 most common words in the above list?".to_owned(),
            prefix: " Answer: The top 10 words that appear most often in the list are:".to_owned(),
            references: often.to_vec(),
        }
    }
}

/// `1. river 2. calm`
fn numbered(words: &[String]) -> String {
    let words: Vec<String> =
        words.iter().enumerate().map(|(index, word)| format!("{}. {word}", index + 1)).collect();
    words.join(" ")
}

//! How varied a written text is, without a reference.
//!
//! distinct-n (Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models", 2016) and
//! rep-n (seq-rep-n in Welleck et al., "Neural Text Generation with Unlikelihood Training", 2020; rep-n in Su et
//! al., "A Contrastive Framework for Neural Text Generation", 2022), of a single text. They depend on its length:
//! compare texts of similar length. Words are separated by white space, in lower case, with their punctuation.

use std::collections::HashSet;

use super::overlap::words;

/// The variety of a text's words. A share is `None` where the text is too short for a run of that length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Diversity {
    pub words: usize,
    /// Share of distinct ones among all single words, pairs, and runs of three.
    pub distinct: [Option<f64>; 3],
    /// Share of the runs of four words that occurred before in the text: 1 minus the share of distinct ones.
    pub repetition_4: Option<f64>,
}

/// Counts the runs of words of a text.
pub fn diversity(text: &str) -> Diversity {
    let lower = text.to_lowercase();
    let words: Vec<&str> = words(&lower).collect();
    let distinct = |length: usize| {
        let runs = words.windows(length);
        let all = runs.len();
        let different = runs.collect::<HashSet<_>>().len();
        (all > 0).then(|| different as f64 / all as f64)
    };
    Diversity {
        words: words.len(),
        distinct: [distinct(1), distinct(2), distinct(3)],
        repetition_4: distinct(4).map(|share| 1.0 - share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Runs of four: abca bcab cabc abca bcab; the last two occurred before.
        let found = diversity("a b c A\nB  c a b");
        assert_eq!(found.words, 8);
        assert_eq!(found.distinct, [Some(3.0 / 8.0), Some(3.0 / 7.0), Some(3.0 / 6.0)]);
        assert!((found.repetition_4.unwrap() - 0.4).abs() < 1e-15);
        // Punctuation belongs to its word.
        assert_eq!(diversity("no, no no.").distinct, [Some(1.0), Some(1.0), Some(1.0)]);
    }

    #[test]
    fn short_texts_have_no_shares() {
        assert_eq!(diversity(" \n"), Diversity { words: 0, distinct: [None; 3], repetition_4: None });
        assert_eq!(
            diversity("two words"),
            Diversity { words: 2, distinct: [Some(1.0), Some(1.0), None], repetition_4: None }
        );
    }
}

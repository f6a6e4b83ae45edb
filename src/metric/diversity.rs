//! How varied a written text is, without a reference.
//!
//! distinct-n (Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models", 2016) and
//! rep-n (seq-rep-n in Welleck et al., "Neural Text Generation with Unlikelihood Training", 2020; rep-n in Su et
//! al., "A Contrastive Framework for Neural Text Generation", 2022), of a single text. They depend on its length:
//! compare texts of similar length. Words are separated by white space, in lower case, with their punctuation.

use std::collections::HashSet;

use super::overlap::words;

/// Variety of a text's words, by metric: the shares of distinct ones among all single words, pairs and triples, and the share of
/// quadruples that occurred before in the text. A share that a text is too short for is left out.
pub fn diversity(text: &str) -> Vec<(&'static str, f64)> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = words(&lower).collect();
    let distinct = |length: usize| {
        let runs = words.windows(length);
        let all = runs.len();
        let different = runs.collect::<HashSet<_>>().len();
        (all > 0).then(|| different as f64 / all as f64)
    };
    let shares = [
        ("distinct_1", distinct(1)),
        ("distinct_2", distinct(2)),
        ("distinct_3", distinct(3)),
        ("repetition_4", distinct(4).map(|share| 1.0 - share)),
    ];
    shares.into_iter().filter_map(|(metric, share)| Some((metric, share?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let shares = [3.0 / 8.0, 3.0 / 7.0, 3.0 / 6.0, 1.0 - 3.0 / 5.0];
        // Runs of four: abca bcab cabc abca bcab; the last two occurred before.
        let names = ["distinct_1", "distinct_2", "distinct_3", "repetition_4"];
        assert_eq!(diversity("a b c A\nB  c a b"), std::iter::zip(names, shares).collect::<Vec<_>>());
        // Punctuation belongs to its word. There are no four words.
        assert_eq!(diversity("no, no no."), names[..3].iter().map(|name| (*name, 1.0)).collect::<Vec<_>>());
        assert_eq!(diversity(" \n"), []);
    }
}

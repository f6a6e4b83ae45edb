//! Words, and how much two texts share: the arithmetic that ROUGE and SQuAD's F1 have in common.

use std::collections::HashMap;
use std::hash::Hash;

/// The words of a text as Python's `str.split()` finds them, which also splits at four separators of ASCII that
/// are not white space to Unicode.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_space = |c: char| c.is_whitespace() || matches!(c, '\x1c'..='\x1f');
    text.split(is_space).filter(|word| !word.is_empty())
}

/// How many items (words or runs of words) two texts share, each as often as both have it.
pub(super) fn shared<T: Eq + Hash>(a: impl Iterator<Item = T>, b: impl Iterator<Item = T>) -> usize {
    let mut left: HashMap<T, usize> = HashMap::new();
    a.for_each(|item| *left.entry(item).or_default() += 1);
    let mut shared = 0;
    for item in b {
        if let Some(left) = left.get_mut(&item).filter(|left| **left > 0) {
            *left -= 1;
            shared += 1;
        }
    }
    shared
}

/// Harmonic mean of the shares of both texts, 0 if nothing is shared. The order of operations is that of the Python
/// packages, so that results are equal to the last bit.
pub(super) fn f_measure(shared: usize, of_prediction: usize, of_reference: usize) -> f64 {
    if shared == 0 {
        return 0.0;
    }
    let precision = shared as f64 / of_prediction as f64;
    let recall = shared as f64 / of_reference as f64;
    2.0 * precision * recall / (precision + recall)
}

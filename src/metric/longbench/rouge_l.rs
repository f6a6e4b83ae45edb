//! ROUGE-L as the Python package `rouge` 1.0.1 has it, which LongBench's summaries are scored with.
//!
//! It differs from `rouge-score` in everything: words are what stands between spaces, in their case and with their
//! punctuation; sentences end at full stops; and each word counts once. Every sentence of the reference is compared with
//! every sentence of the answer; the words of all their longest common subsequences together are what both texts share.

use std::collections::{HashMap, HashSet};

use crate::metric::overlap::words;

/// Added to the sum of precision and recall, so that the divisor is never 0.
const TINY: f64 = 1e-8;

/// F-measure from 0 to 1; 0 if one of the texts has no sentence, where the package fails.
///
/// The package also fails, and LongBench gives 0, where two sentences of together about a thousand words are compared, because its
/// recursion is too deep. Here they are compared.
pub fn f_measure(answer: &str, reference: &str) -> f64 {
    let mut known = HashMap::new();
    let (answer, reference) = (sentences(answer, &mut known), sentences(reference, &mut known));
    if answer.is_empty() || reference.is_empty() {
        return 0.0;
    }
    let mut shared = HashSet::new();
    for of_reference in &reference {
        for of_answer in &answer {
            shared.extend(longest_common_subsequence(of_reference, of_answer));
        }
    }
    let different = |sentences: &[Vec<usize>]| sentences.iter().flatten().collect::<HashSet<_>>().len();
    let recall = shared.len() as f64 / different(&reference) as f64;
    let precision = shared.len() as f64 / different(&answer) as f64;
    2.0 * ((precision * recall) / (precision + recall + TINY))
}

/// Splits a text into sentences, each a list of words by number. A sentence of white space only is one empty word.
fn sentences<'a>(text: &'a str, known: &mut HashMap<&'a str, usize>) -> Vec<Vec<usize>> {
    let mut number = |word: &'a str| {
        let next = known.len();
        *known.entry(word).or_insert(next)
    };
    let of_sentence = |sentence: &'a str| {
        let numbers: Vec<usize> = words(sentence).map(&mut number).collect();
        if numbers.is_empty() { vec![number("")] } else { numbers }
    };
    text.split('.').filter(|sentence| !sentence.is_empty()).map(of_sentence).collect()
}

/// Finds a longest common subsequence; among several, the one that the package finds from the end, giving up a word of `b` before
/// one of `a`.
fn longest_common_subsequence(a: &[usize], b: &[usize]) -> Vec<usize> {
    // `lengths[i][j]`: of the first i of `a` and the first j of `b`.
    let mut lengths = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            let longer = lengths[i][j + 1].max(lengths[i + 1][j]);
            lengths[i + 1][j + 1] = if x == y { lengths[i][j] + 1 } else { longer };
        }
    }
    let (mut i, mut j) = (a.len(), b.len());
    let mut common = Vec::new();
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            common.push(a[i - 1]);
            (i, j) = (i - 1, j - 1);
        } else if lengths[i - 1][j] > lengths[i][j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    common
}

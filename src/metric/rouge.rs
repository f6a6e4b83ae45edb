//! ROUGE: how much of a reference a written text has, and how much of the text is in the reference.
//!
//! The F-measures of the Python package `rouge_score` 0.1.2 without its stemmer (Lin, "ROUGE: A Package for
//! Automatic Evaluation of Summaries", 2004), as SCROLLS and ZeroSCROLLS score summaries.

use std::collections::HashMap;

use super::overlap::{f_measure, shared};

/// F-measures from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rouge {
    /// F-measure of the words both texts have, each counted as often as both have it.
    pub one: f64,
    /// F-measure of pairs of neighbouring words.
    pub two: f64,
    /// F-measure of the longest common subsequence of words, over the whole text as in `rougeL`.
    pub l: f64,
}

impl Rouge {
    /// Geometric mean of the three numbers of a single sample. The published score takes the means over all samples first.
    pub fn geometric_mean(self) -> f64 {
        (self.one * self.two * self.l).cbrt()
    }
}

/// ROUGE of a text: the largest of each kind over the references, of which different ones may win. Without any, all are 0.
pub fn best_rouge<R: AsRef<str>>(prediction: &str, references: &[R]) -> Rouge {
    // Numbers for words, since a common subsequence of long texts takes millions of comparisons.
    let mut numbers = HashMap::new();
    let mut numbered = |text: &str| -> Vec<usize> {
        // Letters beyond ASCII may be lower-cased into it, such as the Kelvin sign, so this comes first.
        let lower = text.to_lowercase();
        // Words are runs of ASCII letters and digits.
        let words = lower.split(|c: char| !matches!(c, 'a'..='z' | '0'..='9')).filter(|word| !word.is_empty());
        let number = |word: &str| {
            let next = numbers.len();
            *numbers.entry(word.to_owned()).or_insert(next)
        };
        words.map(number).collect()
    };
    let prediction = numbered(prediction);
    references.iter().fold(Rouge::default(), |best, reference| {
        let reference = numbered(reference.as_ref());
        let common = longest_common_subsequence(&prediction, &reference);
        Rouge {
            one: best.one.max(of_runs(&prediction, &reference, 1)),
            two: best.two.max(of_runs(&prediction, &reference, 2)),
            l: best.l.max(f_measure(common, prediction.len(), reference.len())),
        }
    })
}

fn of_runs(prediction: &[usize], reference: &[usize], length: usize) -> f64 {
    let shared = shared(prediction.windows(length), reference.windows(length));
    let runs = |words: &[usize]| (words.len() + 1).saturating_sub(length);
    f_measure(shared, runs(prediction), runs(reference))
}

fn longest_common_subsequence(a: &[usize], b: &[usize]) -> usize {
    // `row[j]`: of what came of `a` so far and the first j of `b`.
    let mut row = vec![0; b.len() + 1];
    for x in a {
        let mut diagonal = 0;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if x == y { diagonal + 1 } else { above.max(row[j]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

//! How alike two lines are: `fuzz.ratio` of the Python package `fuzzywuzzy` 0.18 over Python's `difflib.SequenceMatcher`.
//!
//! LongBench's requirements do not list `python-Levenshtein`, with which `fuzzywuzzy` computes something else.

use std::collections::HashMap;
use std::ops::Range;

/// Twice the number of characters in matching blocks over the characters of both texts, in whole percent; halves go to the even
/// number.
pub fn percent(a: &str, b: &str) -> u8 {
    if a == b {
        return 100;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.is_empty() || b.is_empty() {
        return 0;
    }
    let places = places_of(&b);
    let mut matches = 0;
    let mut parts = vec![(0..a.len(), 0..b.len())];
    while let Some((of_a, of_b)) = parts.pop() {
        let (i, j, size) = longest_match(&a, &b, &places, of_a.clone(), of_b.clone());
        if size == 0 {
            continue;
        }
        matches += size;
        parts.push((of_a.start..i, of_b.start..j));
        parts.push((i + size..of_a.end, j + size..of_b.end));
    }
    (100.0 * (2.0 * matches as f64 / (a.len() + b.len()) as f64)).round_ties_even() as u8
}

/// Places of each character. In a text of 200 or more characters, those that make up more than a hundredth of it are left out, as
/// in `SequenceMatcher`; a match may still extend over them.
fn places_of(text: &[char]) -> HashMap<char, Vec<usize>> {
    let mut places: HashMap<char, Vec<usize>> = HashMap::new();
    for (at, c) in text.iter().enumerate() {
        places.entry(*c).or_default().push(at);
    }
    if text.len() >= 200 {
        places.retain(|_, at| at.len() <= text.len() / 100 + 1);
    }
    places
}

/// Longest run that both parts have, the earliest in `a` and then in `b`: its places in both and its length.
fn longest_match(
    a: &[char],
    b: &[char],
    places: &HashMap<char, Vec<usize>>,
    of_a: Range<usize>,
    of_b: Range<usize>,
) -> (usize, usize, usize) {
    let (mut i, mut j, mut size) = (of_a.start, of_b.start, 0);
    // The lengths of the runs that end at the character of `a` before, by the place after their end in `b`.
    let mut runs: HashMap<usize, usize> = HashMap::new();
    for at in of_a.clone() {
        let mut longer = HashMap::new();
        let here = places.get(&a[at]).map_or(&[][..], Vec::as_slice);
        for &place in here.iter().filter(|place| of_b.contains(place)) {
            let run = runs.get(&place).copied().unwrap_or(0) + 1;
            longer.insert(place + 1, run);
            if run > size {
                (i, j, size) = (at + 1 - run, place + 1 - run, run);
            }
        }
        runs = longer;
    }
    while i > of_a.start && j > of_b.start && a[i - 1] == b[j - 1] {
        (i, j, size) = (i - 1, j - 1, size + 1);
    }
    while i + size < of_a.end && j + size < of_b.end && a[i + size] == b[j + size] {
        size += 1;
    }
    (i, j, size)
}

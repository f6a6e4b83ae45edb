//! The letter that answers a question of LongBench v2, as `pred.py` of THUDM/LongBench reads it.

const LETTERS: [&str; 4] = ["A", "B", "C", "D"];

/// Beginning of an answer in the asked format.
const OPENING: &str = "The correct answer is (";

/// Letter that an answer names after the words of the format: the first in brackets, or else the first without.
pub fn chosen_letter(answer: &str) -> Option<String> {
    // They make letters bold.
    let answer = answer.replace('*', "");
    let named = |words: &str, closing: &str| {
        let rests = answer.match_indices(words).map(|(at, _)| &answer[at + words.len()..]);
        let letter = |rest: &str| {
            let letter = rest.get(..1).filter(|letter| LETTERS.contains(letter))?;
            rest[1..].starts_with(closing).then(|| letter.to_owned())
        };
        rests.into_iter().find_map(letter)
    };
    named(OPENING, ")").or_else(|| named("The correct answer is ", ""))
}

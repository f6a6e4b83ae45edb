//! Whether the answer of a mathematical problem is right.

mod answer;
mod latex;
mod number;

/// Whether the answer in a text's box is one of the targets, and whether there is a box at all. No box is no answer.
pub fn right(text: &str, targets: &[String]) -> (bool, bool) {
    let answer = answer::boxed(text);
    let is_right = answer.is_some_and(|answer| targets.iter().any(|target| answer::equal(answer, target)));
    (is_right, answer.is_some())
}

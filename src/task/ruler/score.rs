//! Scores of answers, as `scripts/eval/evaluate.py` and `scripts/eval/synthetic/constants.py` compute them.

use crate::task::generation::Request;

/// The share of references that an answer contains, in any case of letters (`string_match_all`); for questions about
/// documents, whether it contains one of them (`string_match_part`).
pub fn score(text: &str, request: &Request) -> Vec<(&'static str, f64)> {
    // Control characters become line ends first.
    let text: String = text.trim().chars().map(|c| if c < ' ' { '\n' } else { c }).collect();
    let text = text.trim().to_lowercase();
    let contained = request.references.iter().filter(|answer| text.contains(&answer.to_lowercase())).count();
    let score = if request.name.starts_with("qa_") {
        f64::from(u8::from(contained > 0))
    } else {
        contained as f64 / request.references.len() as f64
    };
    vec![("ruler", score)]
}

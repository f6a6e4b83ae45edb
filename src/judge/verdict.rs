//! Verdicts on a story, read in the judge's answers, and the result of a pair, from the verdicts in both orders.
//!
//! Pure text and logic. Brackets, case, quotes and common words around a choice do not matter (`(A)`, `a.`, `**Response
//! (B)** is better`). Two choices, none, or a sentence that would have to be understood (`not (A)`, `(A) is worse`) are
//! unreadable.

/// An answer's verdict on the bounded cache's story: 1 if it is preferred, 0.5 if both are equal, 0 if it is not; `None` if the
/// answer cannot be read.
pub(super) type Verdict = Option<f64>;

/// The verdict in an answer to a question that shows the bounded cache's story first (0) or second (1).
pub(super) fn verdict_in(answer: &str, place: usize) -> Verdict {
    Some(match (choice_in(answer)?, place) {
        ('c', _) => 0.5,
        ('a', 0) | ('b', 1) => 1.0,
        _ => 0.0,
    })
}

/// The result of a pair for the bounded cache's story, as wins, ties and losses; `None` if an answer could not be read. Only a
/// story that is preferred in both orders wins.
pub(super) fn result_of(one: Verdict, other: Verdict) -> Option<[f64; 3]> {
    Some(match (one?, other?) {
        (1.0, 1.0) => [1.0, 0.0, 0.0],
        (0.0, 0.0) => [0.0, 0.0, 1.0],
        _ => [0.0, 1.0, 0.0],
    })
}

/// Words around a choice that do not change it.
const FILLERS: &str = "the response responses answer option choice verdict preference winner story i would \
                       choose pick prefer say select my final is are be better best good both equal equally of in \
                       quality one";

/// The choice in an answer; `None` if there is none, or more than one.
pub(super) fn choice_in(answer: &str) -> Option<char> {
    let clauses = answer.split(['\n', '.', ',', ';', ':', '!', '\u{2013}', '\u{2014}']);
    let mut read = clauses.map(choices_of).filter(|clause| clause.as_ref().is_none_or(|found| !found.is_empty()));
    // The first clause must be a choice; an explanation may follow, but no other choice.
    let mut chosen = read.next()??;
    chosen.extend(read.flatten().flatten());
    chosen.sort_unstable();
    chosen.dedup();
    match chosen[..] {
        [choice] => Some(choice),
        _ => None,
    }
}

/// The choices in a clause; `None` if it has any word that is neither a choice nor a filler.
fn choices_of(clause: &str) -> Option<Vec<char>> {
    let clause: String = clause.to_lowercase().replace(['[', '{', '<'], "(").replace([']', '}', '>'], ")");
    let clause = clause.replace(['*', '_', '"', '\'', '`', '#', '\u{201c}', '\u{201d}'], "");
    // `Response(A)` has two words.
    let clause = clause.replace('(', " (").replace(')', ") ");
    let bracketed = |word: &str| word.starts_with('(') && word.ends_with(')');
    let words = clause.split_whitespace().map(|word| (word.trim_matches(['(', ')']), bracketed(word)));
    let has_brackets = words.clone().any(|(word, bracketed)| bracketed && matches!(word, "a" | "b" | "c"));
    let mut found = Vec::new();
    for (word, bracketed) in words {
        match word {
            // Beside a bracketed choice, a bare `a` is an article.
            "a" if has_brackets && !bracketed => {}
            "a" | "b" | "c" => found.extend(word.chars()),
            _ if word.is_empty() || FILLERS.split_whitespace().any(|filler| filler == word) => {}
            _ => return None,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_in_many_forms() {
        for (answers, choice) in [
            ("(A)|A|a| (a).\n|[A]|Response (A)|response a|**(A)**|\"A\"|A)|Answer: (A)|Response(A)", 'a'),
            ("My final answer is (A)!|Response (A) is better.|(A) is a better response", 'a'),
            ("(A)\n\nThe first story has more twists than Response (B) does.", 'a'),
            ("(A): it has more characters, and (B) repeats itself", 'a'),
            ("(B)|b|Option B.|I would choose (B).|(B) is a better response|{B}", 'b'),
            ("(C)|c|(C) equal quality|Both are of equal quality: (C)|C, equally good", 'c'),
        ] {
            for answer in answers.split('|') {
                assert_eq!(choice_in(answer), Some(choice), "{answer:?}");
            }
        }
    }

    #[test]
    fn ambiguous_answers_are_unreadable() {
        for answers in [
            "| \n|...|(D)|AB|equal|(A) and (B)|(A), (B)|A or B|(A). No: (B).|not (A)|(A) is worse",
            "Neither (A) nor (B)|The first one.|A better response is B|I cannot judge these stories. (A)",
            "Because it has more twists, (A)|\u{0}(A\u{0})",
        ] {
            for answer in answers.split('|') {
                assert_eq!(choice_in(answer), None, "{answer:?}");
            }
        }
    }

    #[test]
    fn verdicts_follow_the_story_not_its_position() {
        let of = |answer| [0, 1].map(|place| verdict_in(answer, place));
        assert_eq!(of("(A)"), [Some(1.0), Some(0.0)]);
        assert_eq!(of("(B)"), [Some(0.0), Some(1.0)]);
        assert_eq!(of("(C)"), [Some(0.5), Some(0.5)]);
        assert_eq!(of("?"), [None, None]);
    }

    #[test]
    fn only_the_same_preference_in_both_orders_decides() {
        let (preferred, equal, not_preferred, unreadable) = (Some(1.0), Some(0.5), Some(0.0), None);
        let [win, tie, loss] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]].map(Some);
        for (one, other, result) in [
            (preferred, preferred, win),
            (not_preferred, not_preferred, loss),
            (preferred, not_preferred, tie),
            (preferred, equal, tie),
            (not_preferred, equal, tie),
            (equal, equal, tie),
            (unreadable, preferred, None),
            (unreadable, unreadable, None),
        ] {
            assert_eq!((result_of(one, other), result_of(other, one)), (result, result));
        }
    }
}

//! From a judge's words to a verdict on a story, and from the verdicts of both orders to the result of a pair.
//!
//! Pure text and logic. Reading is tolerant of form and strict in substance: brackets, case, quotes, and words
//! around the choice don't matter (`(A)`, `a.`, `**Response (B)** is better`); two choices, none, or a sentence
//! that would have to be understood (`not (A)`, `(A) is worse`) are no answer.

/// One option of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Choice {
    A,
    B,
    /// Both are of equal quality.
    C,
}

/// Words that may stand around a choice without changing it.
const FILLERS: &str = "the response responses answer option choice verdict preference winner story i would \
                       choose pick prefer say select my final is are be better best good both equal equally of in \
                       quality one";

/// The choice an answer makes; `None` where it makes none, or more than one.
pub(super) fn choice_in(answer: &str) -> Option<Choice> {
    let clauses = answer.split(['\n', '.', ',', ';', ':', '!', '\u{2013}', '\u{2014}']);
    let mut read = clauses.map(choices_of).filter(|clause| clause.as_ref().is_none_or(|found| !found.is_empty()));
    // What is said first must be a choice; an explanation may follow, another choice may not.
    let mut chosen = read.next()??;
    chosen.extend(read.flatten().flatten());
    chosen.sort_unstable();
    chosen.dedup();
    match chosen[..] {
        [choice] => Some(choice),
        _ => None,
    }
}

/// The choices that a clause of fillers and choices names, if it is one: else `None`.
fn choices_of(clause: &str) -> Option<Vec<Choice>> {
    let clause: String = clause.to_lowercase().replace(['[', '{', '<'], "(").replace([']', '}', '>'], ")");
    let clause = clause.replace(['*', '_', '"', '\'', '`', '#', '\u{201c}', '\u{201d}'], "");
    // A word in brackets stands for itself even where it touches its neighbour.
    let clause = clause.replace('(', " (").replace(')', ") ");
    let bracketed = |word: &str| word.starts_with('(') && word.ends_with(')');
    let letter = |word: &str| match word.trim_matches(['(', ')']) {
        "a" => Some(Choice::A),
        "b" => Some(Choice::B),
        "c" => Some(Choice::C),
        _ => None,
    };
    let is_filler = |word: &str| {
        let word = word.trim_matches(['(', ')']);
        word.is_empty() || FILLERS.split_whitespace().any(|filler| filler == word)
    };
    let has_brackets = clause.split_whitespace().any(|word| bracketed(word) && letter(word).is_some());
    let mut found = Vec::new();
    for word in clause.split_whitespace() {
        match letter(word) {
            // Beside a bracketed choice, a bare `a` is an article.
            Some(Choice::A) if has_brackets && !bracketed(word) => {}
            Some(choice) => found.push(choice),
            None if is_filler(word) => {}
            None => return None,
        }
    }
    Some(found)
}

/// The place of the judged story in a question; the full cache's has the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    First,
    Second,
}

impl Shown {
    pub(super) const BOTH: [Shown; 2] = [Shown::First, Shown::Second];

    /// The group of the rows of this call.
    pub(super) fn group(self) -> &'static str {
        match self {
            Shown::First => "shown:first",
            Shown::Second => "shown:second",
        }
    }
}

/// What one call says of the judged story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opinion {
    Preferred,
    Equal,
    /// The full cache's story is preferred.
    Refused,
    Unreadable,
}

impl Opinion {
    pub(super) fn of(choice: Choice, shown: Shown) -> Opinion {
        match (choice, shown) {
            (Choice::C, _) => Opinion::Equal,
            (Choice::A, Shown::First) | (Choice::B, Shown::Second) => Opinion::Preferred,
            (Choice::A, Shown::Second) | (Choice::B, Shown::First) => Opinion::Refused,
        }
    }

    /// Value and weight of its row. What could not be read weighs nothing, so that it moves no mean.
    pub(super) fn mark(self) -> (f64, f64) {
        match self {
            Opinion::Preferred => (1.0, 1.0),
            Opinion::Equal => (0.5, 1.0),
            Opinion::Refused => (0.0, 1.0),
            Opinion::Unreadable => (0.0, 0.0),
        }
    }

    /// The opinion that a row holds.
    pub(super) fn of_mark(value: f64, weight: f64) -> Option<Opinion> {
        let all = [Opinion::Preferred, Opinion::Equal, Opinion::Refused, Opinion::Unreadable];
        all.into_iter().find(|opinion| opinion.mark() == (value, weight))
    }
}

/// How a pair ends, seen from the judged story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Win,
    Tie,
    Loss,
    /// One of the two answers could not be read, so nobody knows.
    Unreadable,
}

impl Ending {
    /// A story wins only if it is preferred in both orders.
    pub(super) fn of(one: Opinion, other: Opinion) -> Ending {
        match (one, other) {
            (Opinion::Unreadable, _) | (_, Opinion::Unreadable) => Ending::Unreadable,
            (Opinion::Preferred, Opinion::Preferred) => Ending::Win,
            (Opinion::Refused, Opinion::Refused) => Ending::Loss,
            _ => Ending::Tie,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_in_many_forms() {
        for (answers, choice) in [
            (
                &[
                    "(A)",
                    "A",
                    "a",
                    " (a).\n",
                    "[A]",
                    "Response (A)",
                    "response a",
                    "**(A)**",
                    "\"A\"",
                    "A)",
                    "Answer: (A)",
                    "My final answer is (A)!",
                    "Response (A) is better.",
                    "(A)\n\nThe first story has more twists than Response (B) does.",
                    "(A) is a better response",
                    "(A): it has more characters, and (B) repeats itself",
                    "Response(A)",
                ][..],
                Choice::A,
            ),
            (&["(B)", "b", "Option B.", "I would choose (B).", "(B) is a better response", "{B}"][..], Choice::B),
            (
                &["(C)", "c", "(C) equal quality", "Both are of equal quality: (C)", "C, equally good"][..],
                Choice::C,
            ),
        ] {
            for answer in answers {
                assert_eq!(choice_in(answer), Some(choice), "{answer:?}");
            }
        }
    }

    #[test]
    fn what_would_have_to_be_understood_is_no_answer() {
        for answer in [
            "",
            " \n",
            "...",
            "(D)",
            "AB",
            "(A) and (B)",
            "(A), (B)",
            "A or B",
            "(A). No: (B).",
            "not (A)",
            "(A) is worse",
            "Neither (A) nor (B)",
            "The first one.",
            "A better response is B",
            "I cannot judge these stories. (A)",
            "Because it has more twists, (A)",
            "equal",
            "\u{0}(A\u{0})",
        ] {
            assert_eq!(choice_in(answer), None, "{answer:?}");
        }
    }

    #[test]
    fn an_opinion_follows_the_story_and_not_its_place() {
        let opinions =
            [Choice::A, Choice::B, Choice::C].map(|choice| Shown::BOTH.map(|at| Opinion::of(choice, at)));
        let [preferred, equal, refused] = [Opinion::Preferred, Opinion::Equal, Opinion::Refused];
        assert_eq!(opinions, [[preferred, refused], [refused, preferred], [equal, equal]]);
        for opinion in [preferred, equal, refused, Opinion::Unreadable] {
            let (value, weight) = opinion.mark();
            assert_eq!(Opinion::of_mark(value, weight), Some(opinion));
        }
        assert_eq!(Opinion::of_mark(0.25, 1.0), None);
    }

    #[test]
    fn only_the_same_preference_twice_decides() {
        use Opinion::{Equal, Preferred, Refused, Unreadable};
        for (one, other, ending) in [
            (Preferred, Preferred, Ending::Win),
            (Refused, Refused, Ending::Loss),
            (Preferred, Refused, Ending::Tie),
            (Preferred, Equal, Ending::Tie),
            (Refused, Equal, Ending::Tie),
            (Equal, Equal, Ending::Tie),
            (Unreadable, Preferred, Ending::Unreadable),
            (Unreadable, Equal, Ending::Unreadable),
            (Unreadable, Unreadable, Ending::Unreadable),
        ] {
            assert_eq!(Ending::of(one, other), ending);
            assert_eq!(Ending::of(other, one), ending);
        }
    }
}

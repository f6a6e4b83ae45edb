//! From the judge's answer to a verdict on a story, and from the verdicts in both orders to the result of a pair.
//!
//! Pure text and logic. Brackets, case, quotes and common words around a choice do not matter (`(A)`, `a.`, `**Response
//! (B)** is better`). Two choices, none, or a sentence that would have to be understood (`not (A)`, `(A) is worse`) are
//! unreadable.

/// One option of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Choice {
    A,
    B,
    /// Both are of equal quality.
    C,
}

/// Words around a choice that do not change it.
const FILLERS: &str = "the response responses answer option choice verdict preference winner story i would \
                       choose pick prefer say select my final is are be better best good both equal equally of in \
                       quality one";

/// The choice in an answer; `None` if there is none, or more than one.
pub(super) fn choice_in(answer: &str) -> Option<Choice> {
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
fn choices_of(clause: &str) -> Option<Vec<Choice>> {
    let clause: String = clause.to_lowercase().replace(['[', '{', '<'], "(").replace([']', '}', '>'], ")");
    let clause = clause.replace(['*', '_', '"', '\'', '`', '#', '\u{201c}', '\u{201d}'], "");
    // `Response(A)` has two words.
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

/// Where the bounded cache's story is shown in a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    First,
    Second,
}

impl Order {
    pub(super) const BOTH: [Order; 2] = [Order::First, Order::Second];

    pub(super) fn slice(self) -> &'static str {
        match self {
            Order::First => "shown:first",
            Order::Second => "shown:second",
        }
    }
}

/// What one call says of the bounded cache's story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Preferred,
    Equal,
    NotPreferred,
    Unreadable,
}

impl Verdict {
    pub(super) fn of(choice: Choice, order: Order) -> Verdict {
        match (choice, order) {
            (Choice::C, _) => Verdict::Equal,
            (Choice::A, Order::First) | (Choice::B, Order::Second) => Verdict::Preferred,
            (Choice::A, Order::Second) | (Choice::B, Order::First) => Verdict::NotPreferred,
        }
    }

    /// Value and weight of its row; without weight, an unreadable verdict does not move the mean.
    pub(super) fn value_and_weight(self) -> (f64, f64) {
        match self {
            Verdict::Preferred => (1.0, 1.0),
            Verdict::Equal => (0.5, 1.0),
            Verdict::NotPreferred => (0.0, 1.0),
            Verdict::Unreadable => (0.0, 0.0),
        }
    }

    pub(super) fn from_value_and_weight(value: f64, weight: f64) -> Option<Verdict> {
        let all = [Verdict::Preferred, Verdict::Equal, Verdict::NotPreferred, Verdict::Unreadable];
        all.into_iter().find(|verdict| verdict.value_and_weight() == (value, weight))
    }
}

/// The result of a pair for the bounded cache's story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairResult {
    Win,
    Tie,
    Loss,
    /// One of the two answers could not be read.
    Unreadable,
}

impl PairResult {
    /// Only a story that is preferred in both orders wins.
    pub(super) fn of(one: Verdict, other: Verdict) -> PairResult {
        match (one, other) {
            (Verdict::Unreadable, _) | (_, Verdict::Unreadable) => PairResult::Unreadable,
            (Verdict::Preferred, Verdict::Preferred) => PairResult::Win,
            (Verdict::NotPreferred, Verdict::NotPreferred) => PairResult::Loss,
            _ => PairResult::Tie,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_in_many_forms() {
        for (answers, choice) in [
            ("(A)|A|a| (a).\n|[A]|Response (A)|response a|**(A)**|\"A\"|A)|Answer: (A)|Response(A)", Choice::A),
            ("My final answer is (A)!|Response (A) is better.|(A) is a better response", Choice::A),
            ("(A)\n\nThe first story has more twists than Response (B) does.", Choice::A),
            ("(A): it has more characters, and (B) repeats itself", Choice::A),
            ("(B)|b|Option B.|I would choose (B).|(B) is a better response|{B}", Choice::B),
            ("(C)|c|(C) equal quality|Both are of equal quality: (C)|C, equally good", Choice::C),
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
        let of = |choice| Order::BOTH.map(|order| Verdict::of(choice, order));
        let all = [Verdict::Preferred, Verdict::Equal, Verdict::NotPreferred, Verdict::Unreadable];
        let [preferred, equal, not_preferred, _] = all;
        assert_eq!(of(Choice::A), [preferred, not_preferred]);
        assert_eq!(of(Choice::B), [not_preferred, preferred]);
        assert_eq!(of(Choice::C), [equal, equal]);
        for verdict in all {
            let (value, weight) = verdict.value_and_weight();
            assert_eq!(Verdict::from_value_and_weight(value, weight), Some(verdict));
        }
        assert_eq!(Verdict::from_value_and_weight(0.25, 1.0), None);
    }

    #[test]
    fn only_the_same_preference_in_both_orders_decides() {
        use Verdict::{Equal, NotPreferred, Preferred, Unreadable};
        for (one, other, result) in [
            (Preferred, Preferred, PairResult::Win),
            (NotPreferred, NotPreferred, PairResult::Loss),
            (Preferred, NotPreferred, PairResult::Tie),
            (Preferred, Equal, PairResult::Tie),
            (NotPreferred, Equal, PairResult::Tie),
            (Equal, Equal, PairResult::Tie),
            (Unreadable, Preferred, PairResult::Unreadable),
            (Unreadable, Equal, PairResult::Unreadable),
            (Unreadable, Unreadable, PairResult::Unreadable),
        ] {
            assert_eq!(PairResult::of(one, other), result);
            assert_eq!(PairResult::of(other, one), result);
        }
    }
}

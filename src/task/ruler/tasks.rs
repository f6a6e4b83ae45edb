//! RULER's thirteen tasks and their numbers (`synthetic.yaml`, `constants.py`).

use super::needles::{Haystack, Kind, Needles};

/// One of the thirteen.
#[derive(Debug)]
pub struct Subtask {
    /// RULER's name.
    pub name: &'static str,
    pub family: Family,
    /// The most tokens of an answer: RULER's `tokens_to_generate`.
    pub answer: usize,
}

/// What makes its prompts.
#[derive(Clone, Copy, Debug)]
pub enum Family {
    Needles(Needles),
    Variables,
    CommonWords,
    CodedWords,
    Squad,
    HotpotQa,
}

use Haystack::{Essay, Noise};
use Kind::{Numbers, Uuids, Words};

/// In RULER's order.
pub static SUBTASKS: [Subtask; 13] = [
    niah("niah_single_1", Noise, [Words, Numbers], [1, 1, 1]),
    niah("niah_single_2", Essay, [Words, Numbers], [1, 1, 1]),
    niah("niah_single_3", Essay, [Words, Uuids], [1, 1, 1]),
    niah("niah_multikey_1", Essay, [Words, Numbers], [4, 1, 1]),
    niah("niah_multikey_2", Haystack::Needles, [Words, Numbers], [1, 1, 1]),
    niah("niah_multikey_3", Haystack::Needles, [Uuids, Uuids], [1, 1, 1]),
    niah("niah_multivalue", Essay, [Words, Numbers], [1, 4, 1]),
    // As many keys as are asked for.
    niah("niah_multiquery", Essay, [Words, Numbers], [4, 1, 4]),
    Subtask { name: "vt", family: Family::Variables, answer: 30 },
    Subtask { name: "cwe", family: Family::CommonWords, answer: 120 },
    Subtask { name: "fwe", family: Family::CodedWords, answer: 50 },
    Subtask { name: "qa_1", family: Family::Squad, answer: 32 },
    Subtask { name: "qa_2", family: Family::HotpotQa, answer: 32 },
];

const fn niah(name: &'static str, haystack: Haystack, kinds: [Kind; 2], counts: [usize; 3]) -> Subtask {
    let ([key, value], [keys, values, queries]) = (kinds, counts);
    let needles = Needles { haystack, key, value, keys, values, queries };
    Subtask { name, family: Family::Needles(needles), answer: 128 }
}

impl Subtask {
    /// The task of a name.
    pub fn named(name: &str) -> Option<&'static Subtask> {
        SUBTASKS.iter().find(|task| task.name == name)
    }

    /// Whether it hides sentences in running text.
    pub fn needs_essay(&self) -> bool {
        matches!(self.family, Family::Needles(Needles { haystack: Essay, .. }))
    }

    /// The key of the file that it reads, if it reads one.
    pub fn file(&self) -> Option<&'static str> {
        match self.family {
            Family::Squad => Some("squad"),
            Family::HotpotQa => Some("hotpotqa"),
            _ => None,
        }
    }
}

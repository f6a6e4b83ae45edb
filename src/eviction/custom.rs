//! Scores that a program brings itself, such as a function in Python.

use std::fmt;
use std::hash::{Hash, Hasher};

/// What a score is computed from: the entries of a decision group, before one of them is evicted.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub layer: usize,
    /// 0, or the key-value head under scope `head`.
    pub group: usize,
    /// Positions of the entries' tokens, ascending. The last is that of the newest token, whose query attends.
    pub positions: &'a [u32],
    /// The attention that the newest query pays: (query heads of the group)(entries). Each head's sums to 1.
    pub attention: &'a [f32],
}

/// Gives every entry of a step a score. The lowest leaves, the oldest of equal ones. Without an answer of the right length the
/// oldest entry leaves, so a function that fails must also stop the read
/// ([`stop_on`](crate::lm::LanguageModel::stop_on)).
pub type ScoreFunction = dyn Fn(&Step<'_>) -> Option<Vec<f64>> + Send + Sync;

/// A score that is computed by a function. It lives as long as the program, as formulas do.
#[derive(Clone, Copy)]
pub struct CustomScore(&'static Named);

struct Named {
    id: String,
    function: Box<ScoreFunction>,
}

impl CustomScore {
    /// `id` says what the function computes, in cell ids too: functions with the same one count as the same score.
    pub fn new(id: String, function: Box<ScoreFunction>) -> CustomScore {
        CustomScore(Box::leak(Box::new(Named { id, function })))
    }

    pub fn id(self) -> &'static str {
        &self.0.id
    }

    pub(super) fn scores(self, step: &Step<'_>) -> Option<Vec<f64>> {
        (self.0.function)(step).filter(|scores| scores.len() == step.positions.len())
    }
}

impl PartialEq for CustomScore {
    fn eq(&self, other: &CustomScore) -> bool {
        self.id() == other.id()
    }
}

impl Eq for CustomScore {}

impl Hash for CustomScore {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl fmt::Debug for CustomScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomScore({})", self.id())
    }
}

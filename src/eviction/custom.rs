//! Scores that a program brings itself, such as a function in Python.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::block::{NewEntries, Vectors};

/// What a score is computed from: the entries of a decision group, before any of them is evicted.
pub struct Step<'a> {
    pub layer: usize,
    /// 0, or the key-value head under scope `head`.
    pub group: usize,
    /// Tokens of the text that have been read.
    pub seen: usize,
    /// Positions of the entries' tokens, ascending. The last is that of the newest token, whose query attends.
    pub positions: &'a [u32],
    /// The ids of these tokens.
    pub token_ids: Vec<u32>,
    /// The attention that the newest query pays: (query heads of the group)(entries). Each head's sums to 1.
    pub attention: &'a [f32],
    /// Queries of the tokens read since the function was last called for this group, the newest included, before rotation:
    /// (tokens, query heads of the group, dim)
    pub queries: Vec<f32>,
    /// Inputs of the layer's projections for the tokens of `queries`: (tokens, hidden)
    pub hidden: &'a [f32],
    /// The key-value heads of the group, and the columns of the entries, in `vectors`.
    pub kv_heads: Range<usize>,
    pub columns: &'a [usize],
    pub vectors: &'a dyn Vectors,
    /// What the function remembers for this layer and group of the text.
    pub state: &'a Mutex<State>,
}

impl Step<'_> {
    /// Keys as they are rotated now: (key-value heads of the group, entries, dim)
    pub fn keys(&self) -> Vec<f32> {
        let mut mask = vec![f32::NEG_INFINITY; self.columns.last().map_or(0, |last| last + 1)];
        self.columns.iter().for_each(|column| mask[*column] = 0.0);
        self.of_entries(|kv_head| self.vectors.keys(kv_head, &mask).into_owned())
    }

    /// (key-value heads of the group, entries, dim)
    pub fn values(&self) -> Vec<f32> {
        let columns = self.columns.last().map_or(0, |last| last + 1);
        self.of_entries(|kv_head| self.vectors.values(kv_head, columns).into_owned())
    }

    fn of_entries(&self, vectors: impl Fn(usize) -> Vec<f32>) -> Vec<f32> {
        let dim = self.vectors.dim();
        let of_head = |kv_head: usize| {
            let all = vectors(kv_head);
            let of_column = |column: &usize| all[column * dim..][..dim].to_vec();
            self.columns.iter().flat_map(of_column).collect::<Vec<_>>()
        };
        self.kv_heads.clone().flat_map(of_head).collect()
    }
}

/// Gives every entry of a step a score. The lowest leaves, the oldest of equal ones. Without an answer of the right length the
/// oldest entry leaves, so a function that fails must also stop the read
/// ([`stop_on`](crate::lm::LanguageModel::stop_on)).
pub type ScoreFunction = dyn Fn(&Step<'_>) -> Option<Vec<f64>> + Send + Sync;

/// Something that a function remembers. A cache that is copied, and read on in two ways, has it twice.
pub trait Remembered: Any + Send + Sync {
    fn copy(&self) -> Box<dyn Remembered>;
}

/// What a function remembers of a layer and group of a text; nothing before its first call.
#[derive(Default)]
pub struct State(pub Option<Box<dyn Remembered>>);

impl Clone for State {
    fn clone(&self) -> State {
        State(self.0.as_ref().map(|remembered| remembered.copy()))
    }
}

/// What a cache keeps for a function between two calls.
#[derive(Clone, Debug, Default)]
pub(super) struct FunctionInputs {
    /// Ids of all tokens of the text.
    pub token_ids: Vec<u32>,
    /// The position of the first token below.
    first: usize,
    /// (tokens, heads, dim) and (tokens, hidden)
    queries: Vec<f32>,
    hidden: Vec<f32>,
    groups: Vec<OfGroup>,
}

/// What a group has been given, and what the function remembers of it.
#[derive(Default)]
struct OfGroup {
    /// The position after the last token that a call was given.
    given: AtomicUsize,
    state: Mutex<State>,
}

impl Clone for OfGroup {
    fn clone(&self) -> OfGroup {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        OfGroup { given: self.given.load(Relaxed).into(), state: state.into() }
    }
}

impl fmt::Debug for OfGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OfGroup(given {:?})", self.given)
    }
}

impl FunctionInputs {
    pub fn new(groups: usize) -> FunctionInputs {
        FunctionInputs { groups: vec![OfGroup::default(); groups], ..FunctionInputs::default() }
    }

    /// Adds a block's tokens, and forgets those that every group was given.
    pub fn add(&mut self, new: &NewEntries<'_>) {
        let given = self.groups.iter().map(|group| group.given.load(Relaxed)).min().unwrap_or(0);
        let tokens = self.token_ids.len() - self.first;
        let dropped = given - self.first;
        if dropped > 0 {
            for rows in [&mut self.queries, &mut self.hidden] {
                let width = rows.len() / tokens;
                rows.drain(..dropped * width);
            }
            self.first = given;
        }
        self.token_ids.extend(new.token_ids);
        self.queries.extend(new.queries);
        self.hidden.extend(new.hidden);
    }

    /// What a call of a group after the first `seen` tokens is given: queries of its `heads` of `all`, and hidden states.
    pub fn give(&self, group: usize, seen: usize, heads: Range<usize>, all: usize) -> (Vec<f32>, &[f32]) {
        let tokens = (self.token_ids.len() - self.first).max(1);
        let rows = self.groups[group].given.swap(seen, Relaxed) - self.first..seen - self.first;
        let (dim, width) = (self.queries.len() / (tokens * all), self.hidden.len() / tokens);
        let of_row = |row: usize| &self.queries[(row * all + heads.start) * dim..(row * all + heads.end) * dim];
        (rows.clone().flat_map(of_row).copied().collect(), &self.hidden[rows.start * width..rows.end * width])
    }

    pub fn state(&self, group: usize) -> &Mutex<State> {
        &self.groups[group].state
    }
}

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

//! The attention of a text's queries under the full cache, for policies that know the future.

use std::ops::Range;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::block::Attention;
use super::settings::{Heads, Scope};

/// Numbers are stored times this: f16 then has 11 bits down to 2e-9.
const SCALE: f32 = 32768.0;

/// The longest text whose attention is kept.
pub const LONGEST_KNOWN: usize = 16_384;

/// The attention of every query of a text to the tokens up to its own, in one layer: the mean over the query heads of each
/// decision group, 2 bytes each.
#[derive(Clone, Debug)]
pub struct RecordedAttention {
    scope: Scope,
    /// (groups): row after row, of 1, 2, 3 ... numbers
    groups: Vec<Vec<f16>>,
    tokens: usize,
    row: Vec<f32>,
}

/// What a prompt's entries are paid while the model reads it again (arXiv 2505.23416): the largest attention to those of a chunk, from
/// a softmax over them, over what is read, and over the first entries of the prompt.
#[derive(Clone, Debug)]
pub(super) struct SecondReading {
    pub prompt: usize,
    pub chunk: Range<usize>,
    /// (kv_heads)(entries of the chunk)
    pub largest: Vec<Vec<f32>>,
}

/// The prompt's first entries that take part in every softmax (NVIDIA/kvpress `kvzip_press.py`).
const FIRST_ENTRIES: usize = 4;

impl SecondReading {
    pub fn new(heads: Heads, prompt: usize, chunk: Range<usize>) -> SecondReading {
        let largest = vec![vec![0.0; chunk.len()]; heads.kv_heads];
        SecondReading { prompt, chunk, largest }
    }

    /// Adds the row of the next query. Columns are positions: nothing has left.
    pub fn add(&mut self, attention: &Attention<'_>, heads: Heads) {
        for head in 0..heads.heads {
            let (weights, _) = attention.of_head(head);
            let sum =
                |columns: Range<usize>| weights[columns].iter().map(|weight| f64::from(*weight)).sum::<f64>();
            let first = FIRST_ENTRIES.min(self.chunk.start);
            let all = sum(0..first) + sum(self.chunk.clone()) + sum(self.prompt..weights.len());
            let own = weights[self.chunk.clone()].iter();
            for (most, weight) in self.largest[head / heads.per_kv_head()].iter_mut().zip(own) {
                *most = most.max((f64::from(*weight) / all) as f32);
            }
        }
    }
}

impl RecordedAttention {
    pub fn new(heads: Heads, scope: Scope) -> RecordedAttention {
        RecordedAttention { scope, groups: vec![Vec::new(); heads.groups(scope)], tokens: 0, row: Vec::new() }
    }

    /// Bytes for a text.
    pub fn bytes(tokens: usize, heads: Heads, scope: Scope) -> u64 {
        (heads.groups(scope) * tokens * (tokens + 1) / 2 * size_of::<f16>()) as u64
    }

    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Adds the row of the next query.
    pub(super) fn push(&mut self, attention: &Attention<'_>, heads: Heads) {
        self.tokens += 1;
        for (group, rows) in self.groups.iter_mut().enumerate() {
            self.row.clear();
            self.row.resize(self.tokens, 0.0);
            attention.add_to(&mut self.row, self.scope, group);
            let scale = SCALE / heads.of_group(self.scope, group).len() as f32;
            self.row.iter_mut().for_each(|share| *share *= scale);
            let start = rows.len();
            rows.resize(start + self.tokens, f16::ZERO);
            rows[start..].convert_from_f32_slice(&self.row);
        }
    }

    /// What the query at a position pays to the token at another. Sums over a text are exact in f64: these are multiples of
    /// 2^-39, and a text has at most 2^14 tokens.
    pub fn paid(&self, group: usize, query: usize, token: usize) -> f64 {
        self.groups[group][query * (query + 1) / 2 + token].to_f64() / f64::from(SCALE)
    }

    /// What all queries after a token pay to it, for every token: (tokens)
    pub(super) fn later(&self, group: usize) -> Vec<f64> {
        let mut later = vec![0.0; self.tokens];
        for query in 0..self.tokens {
            for (token, later) in later[..query].iter_mut().enumerate() {
                *later += self.paid(group, query, token);
            }
        }
        later
    }
}

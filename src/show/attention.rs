//! Attention of the full cache, and how much of it a bounded cache no longer has when it is needed.

use anyhow::Result;

use super::Side;
use crate::eviction::{RecordedAttention, Scope};
use crate::text::TextModel;

/// The most memory for attention while it is recorded.
const MOST_BYTES: u64 = 4 << 30;
/// The number of tokens that are named of those that a token attends to.
pub(super) const TOP: usize = 12;

/// Shares of attention under the full cache, means over layers and heads.
pub(super) struct Attention {
    /// The attention that later tokens pay to each token, summed over them.
    pub received: Vec<f32>,
    /// The tokens that each token attends to most, with their shares, largest first; itself is left out.
    pub top: Vec<Vec<(usize, f32)>>,
    pub sides: Vec<Gone>,
}

/// Attention to tokens that have left one cache: a token that left one layer, or one of its heads, counts there only.
pub(super) struct Gone {
    /// The part of `Attention::received`.
    pub received: Vec<f32>,
    /// The attention that each token pays.
    pub paid: Vec<f32>,
    /// The part of `Attention::top`.
    pub top: Vec<Vec<f32>>,
}

impl Attention {
    /// Reads a text with the full cache; nothing where that would take too much memory.
    pub fn read(model: &TextModel, tokens: &[u32], sides: &[Side]) -> Result<Option<Attention>> {
        let shape = model.model.shape();
        let by_layer =
            sides.iter().all(|side| (0..shape.cached_layers().len()).all(|at| side.lifetimes.left(at).len() == 1));
        let scope = if by_layer { Scope::Layer } else { Scope::Head };
        if shape.cached_layers().len() as u64 * RecordedAttention::bytes(tokens.len(), shape.heads, scope)
            > MOST_BYTES
        {
            return Ok(None);
        }
        let layers = model.model.record_attention(tokens, scope)?;
        let groups = |layer: usize| shape.heads_of(layer).groups(scope);
        let share = 1.0 / shape.cached_layers().map(groups).sum::<usize>() as f64;
        let (mut row, mut gone) = (Vec::new(), vec![Vec::new(); sides.len()]);
        let empty = || Gone { received: vec![0.0; tokens.len()], paid: Vec::new(), top: Vec::new() };
        let mut all = Attention {
            received: vec![0.0; tokens.len()],
            top: Vec::new(),
            sides: sides.iter().map(|_| empty()).collect(),
        };
        for query in 0..tokens.len() {
            for row in std::iter::once(&mut row).chain(&mut gone) {
                row.clear();
                row.resize(query, 0.0);
            }
            for (layer, recorded) in layers.iter().enumerate() {
                for group in 0..groups(layer) {
                    let left: Vec<&[u32]> = sides
                        .iter()
                        .map(|side| {
                            let groups = side.lifetimes.left(layer);
                            &groups[group.min(groups.len() - 1)][..query]
                        })
                        .collect();
                    for (token, sum) in row.iter_mut().enumerate() {
                        let paid = share * recorded.paid(group, query, token);
                        *sum += paid;
                        for (gone, left) in gone.iter_mut().zip(&left) {
                            gone[token] += if (left[token] as usize) < query { paid } else { 0.0 };
                        }
                    }
                }
            }
            all.add(&row, &gone);
        }
        Ok(Some(all))
    }

    /// Adds what the next query pays to the tokens before it (`row`), and of that to those that left each side (`gone`).
    fn add(&mut self, row: &[f64], gone: &[Vec<f64>]) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        order.truncate(TOP);
        self.top.push(order.iter().map(|token| (*token, row[*token] as f32)).collect());
        let add =
            |sums: &mut [f32], row: &[f64]| sums.iter_mut().zip(row).for_each(|(sum, paid)| *sum += *paid as f32);
        add(&mut self.received, row);
        for (side, gone) in self.sides.iter_mut().zip(gone) {
            add(&mut side.received, gone);
            side.paid.push(gone.iter().sum::<f64>() as f32);
            side.top.push(order.iter().map(|token| gone[*token] as f32).collect());
        }
    }
}

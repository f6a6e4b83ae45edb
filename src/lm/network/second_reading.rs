//! KVzip's second reading (arXiv 2505.23416): after a prompt the model is asked to repeat it and reads it again, a part at a time.
//! The attention that this pays to the prompt's entries is noted; then the second reading is forgotten.

use anyhow::{Context, Result};

use super::transformer::LanguageModel;
use crate::lm::cache::layer_cache::{HostTables, Keys, LayerCache, Tables};
use crate::lm::cache::memory::Memory;
use crate::lm::cache::plan::MemoryPlan;
use crate::lm::cache::store::Store;
use crate::lm::cache::table::Table;
use crate::lm::shape::config::ModelShape;
use crate::vector;

/// Tokens that ask the model to repeat a prompt.
#[derive(Clone, Debug)]
pub struct RepeatRequest {
    /// Tokens before the first part of the prompt.
    pub first: Vec<u32>,
    /// Tokens before each later part, followed by the last [`OVERLAP`] tokens of the part before.
    pub others: Vec<u32>,
    /// Tokens between the request and the part.
    pub between: Vec<u32>,
    /// Number of tokens of a part.
    pub part: usize,
}

/// Number of tokens of the part before that say where the next part begins.
const OVERLAP: usize = 8;

impl LanguageModel {
    /// Reads a prompt again before it is cut, if a policy of the memory asks for that. `memory` must have read all of the prompt
    /// and nothing else.
    ///
    /// # Errors
    ///
    /// A model without a tokenizer, and errors of the device.
    pub fn end_prompt(&self, memory: &mut Memory) -> Result<()> {
        if !memory.layers.iter().any(|layer| layer.entries.wants_second_reading()) {
            return Ok(());
        }
        let request = match &self.repeat_request {
            Some(request) => request.clone(),
            // The words and the length of NVIDIA/kvpress `kvzip_press.py`, without a chat template.
            None => {
                let encode = |text: &str| Ok::<_, anyhow::Error>(self.tokenizer()?.encode(text)?.ids);
                RepeatRequest {
                    first: encode("\n\nRepeat the previous context exactly.")?,
                    others: encode("\n\nRepeat the part of the previous context exactly, starting with")?,
                    between: encode("\n")?,
                    part: 2048,
                }
            }
        };
        let prompt = memory.tokens.clone();
        let mut second = memory.copy_to_read_again(self.shape())?;
        let none = vec![vec![0.0; prompt.len()]; self.shape().heads.kv_heads];
        let mut paid = vec![none; memory.layers.len()]; // (layers)(kv_heads)(tokens)
        for start in (0..prompt.len()).step_by(request.part) {
            let part = start..prompt.len().min(start + request.part);
            let mut text = if start == 0 { request.first.clone() } else { request.others.clone() };
            text.extend(&prompt[if start == 0 { 0..0 } else { start - OVERLAP.min(start)..start }]);
            text.extend(&request.between);
            text.extend(&prompt[part.clone()]);
            second.tokens.truncate(prompt.len());
            second.states.clone_from(&memory.states);
            second.layers.iter_mut().for_each(|layer| layer.entries.read_again(prompt.len(), part.clone()));
            self.read(&text, &mut second)?;
            for (LayerCache { entries, tables, .. }, paid) in second.layers.iter_mut().zip(&mut paid) {
                let own = match (tables, self.gpu()) {
                    (Tables::Gpu(cache), Some(gpu)) => {
                        let largest = cache.largest(&*gpu.gpu, part.end)?;
                        largest.chunks_exact(part.end).map(<[f32]>::to_vec).collect()
                    }
                    _ => entries.take_second_reading(),
                };
                for (paid, own) in paid.iter_mut().zip(own) {
                    paid[part.clone()].copy_from_slice(&own[own.len() - part.len()..]);
                }
            }
        }
        for (layer, paid) in memory.layers.iter_mut().zip(&paid) {
            layer.entries.end_prompt(paid);
        }
        Ok(())
    }
}

impl Memory {
    /// Unbounded memory that has read the same prompt.
    fn copy_to_read_again(&self, shape: &ModelShape) -> Result<Memory> {
        let len = self.seen();
        let layer = |own: &LayerCache| {
            let (entries, is_long) = (own.entries.to_read_again(), self.is_long);
            let (held, rooms) = (own.entries.len(0), [vector::padded(2 * len)]);
            let HostTables { keys, values, .. } = match &own.tables {
                Tables::Host(tables) => tables,
                Tables::Gpu(cache) => {
                    let tables = Tables::Gpu(cache.part(0..held, rooms[0], None, None));
                    return LayerCache { entries, tables, log: None, is_long };
                }
            };
            let keys = match keys {
                Keys::Absolute(keys) => keys.copy(&[held], &rooms),
                Keys::Rerotated(keys) => {
                    let mut table = Table::new(shape.heads.kv_heads, &rooms, shape.head_dim);
                    for kv_head in 0..shape.heads.kv_heads {
                        let vectors = keys.vectors(kv_head, held);
                        table.head_mut(kv_head)[..vectors.len()].copy_from_slice(&vectors);
                    }
                    Store::Floats(table)
                }
            };
            let tables =
                HostTables { keys: Keys::Absolute(keys), values: values.copy(&[held], &rooms), all_keys: None };
            LayerCache { entries, tables: Tables::Host(tables), log: None, is_long }
        };
        let layers = self.layers.iter().map(layer).collect();
        self.forked(layers, len, &MemoryPlan::unbounded()).context("the states after the prompt are known")
    }
}

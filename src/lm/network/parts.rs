//! A read by threads, which take parts of the tokens through all layers, one behind the other.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use candle_core::Tensor;

use super::delta::DeltaRows;
use super::transformer::{LanguageModel, Rows, SEGMENT, SEGMENT_ON_GPU};
use crate::lm::arithmetic::layers::Products;
use crate::lm::cache::delta_state::DeltaState;
use crate::lm::cache::layer_cache::LayerCache;
use crate::lm::cache::memory::Memory;
use crate::lm::cache::scratch::Scratch;
use crate::lm::machine::text_threads;
use crate::lm::shape::caches::BLOCK;

/// Tokens of a text that are taken through the layers, and the caches that they are read into.
pub(super) struct Part<'a> {
    /// Place of the first token among those that are taken together.
    pub first: usize,
    pub tokens: &'a [u32],
    /// Texts of the tokens, if the policy asks for them.
    pub token_texts: &'a [Arc<str>],
    /// Whether the read ends with these tokens.
    pub ends_read: bool,
    /// Attention that each token lost to eviction, summed over heads and added up over layers: (tokens)
    pub lost: Option<&'a mut [f32]>,
    /// Caches of the layers, each as soon as the part before has read into it.
    pub caches: Box<dyn Iterator<Item = &'a mut LayerCache> + Send + 'a>,
    /// States of layers that have a state of fixed size in place of a cache, each as soon as the part before has read into it.
    pub states: Box<dyn Iterator<Item = &'a mut DeltaState> + Send + 'a>,
    /// Cache of the layer that attends now, if it has one.
    pub cache: Option<&'a mut LayerCache>,
    /// Channels that hand caches and states to the next part, if there is one.
    pub next: Option<(Sender<&'a mut LayerCache>, Sender<&'a mut DeltaState>)>,
}

/// Part of a text, and the buffers of the thread that reads it.
pub(super) type Reading<'a, 'b> = (Part<'a>, &'b mut Scratch);

const FAILED: &str = "the part of the text before this one failed";

impl<'a> Part<'a> {
    /// Reads the part's own rows into the next layer's state.
    pub fn read(&mut self, rows: &DeltaRows<'_>) -> Result<Vec<f32>> {
        let state = self.states.next().context(FAILED)?;
        let out = rows.read(self.first, self.tokens.len(), state);
        // After the last part nobody receives it.
        let _ = self.next.as_ref().map(|(_, next)| next.send(state));
        Ok(out)
    }

    /// Takes the cache of the next layer that has one.
    pub fn take_cache(&mut self) -> Result<()> {
        self.cache = Some(self.caches.next().context(FAILED)?);
        Ok(())
    }

    /// Hands the current layer's cache to the thread that reads the next part of the text.
    pub fn pass_cache(&mut self) {
        let _ = self.cache.take().zip(self.next.as_ref()).map(|(cache, (next, _))| next.send(cache));
    }
}

impl LanguageModel {
    /// Reads tokens with several threads, which take parts of the tokens through all layers. At every layer a part needs the cache
    /// as the part before left it, and hands it on before it computes the rest of the layer: all threads are busy, in neighbouring
    /// layers.
    pub(super) fn read_parts(&self, tokens: &[u32], memory: &mut Memory) -> Result<Tensor> {
        let rows = tokens.len();
        let (compute_f64, waits) = (memory.compute_f64, memory.is_on_gpu());
        let compute = self.compute_type(compute_f64);
        // In a pool with other work, two threads could wait for each other for ever.
        let most = if text_threads::are_here() { self.threads() } else { 1 };
        let longest = if self.gpu().is_some() { SEGMENT_ON_GPU } else { SEGMENT };
        let part_rows = rows.div_ceil(most).next_multiple_of(BLOCK).min(longest);
        let at_once = rows.div_ceil(part_rows).min(most);
        let products = Products::Many { threads: self.threads() / at_once };
        let positions = memory.seen()..memory.seen() + rows;
        let angles = self.ropes.iter().map(|rope| {
            rope.frequencies(memory.is_long).angles(positions.clone().map(|position| position as f64))
        });
        let angles: Vec<_> = angles.collect();

        let token_texts = self.token_texts(memory, tokens)?;
        let mut lost = memory.lost.is_some().then(|| vec![0.0; rows]);
        let mut lost_of_parts = lost.as_deref_mut().map(|lost| lost.chunks_mut(part_rows));
        let mut caches: Box<dyn Iterator<Item = &mut LayerCache> + Send> = Box::new(memory.layers.iter_mut());
        let mut states: Box<dyn Iterator<Item = &mut DeltaState> + Send> = Box::new(memory.states.iter_mut());
        let parts = tokens.chunks(part_rows).enumerate().map(|(index, tokens)| {
            let (next, received) = mpsc::channel();
            let (next_state, received_states) = mpsc::channel();
            Part {
                first: 0,
                tokens,
                token_texts: token_texts.chunks(part_rows).nth(index).unwrap_or_default(),
                ends_read: index * part_rows + tokens.len() == rows,
                lost: lost_of_parts.as_mut().and_then(Iterator::next),
                caches: mem::replace(&mut caches, Box::new(received.into_iter())),
                states: mem::replace(&mut states, Box::new(received_states.into_iter())),
                cache: None,
                next: Some((next, next_state)),
            }
        });
        let queue = Mutex::new(parts.enumerate().collect::<VecDeque<_>>());
        drop((caches, states));
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let read = |index: usize, part: Part<'_>, scratch: &mut Scratch| -> Result<Tensor> {
            let tokens = part.tokens;
            let x = self.embed(tokens, compute)?; // (rows, hidden)
            let per_layer = self.per_layer_inputs(tokens, &x, products)?;
            let rows = Rows { x, per_layer, first: index * part_rows, angles: &angles, compute_f64, waits };
            self.through_layers(rows, products, vec![(part, scratch)])
        };
        let read_rest = |scratch: &mut Scratch| {
            let mut done = Vec::new();
            while let Some((index, part)) = next() {
                done.push((index, read(index, part, scratch)));
            }
            done
        };
        let done: BTreeMap<usize, Result<Tensor>> = if at_once == 1 {
            read_rest(&mut memory.scratch).into_iter().collect()
        } else {
            // A thread that came later could come in the middle of a piece of a part's work, and wait for that part.
            let all_here = Barrier::new(self.threads());
            let threads = rayon::broadcast(|_| {
                all_here.wait();
                let mut scratch = Scratch::default();
                (read_rest(&mut scratch), scratch.stats.scan)
            });
            let busy = threads.iter().filter(|(_, scan)| !scan.is_zero()).count().max(1) as u32;
            memory.scratch.stats.scan += threads.iter().map(|(_, scan)| *scan).sum::<Duration>() / busy;
            threads.into_iter().flat_map(|(done, _)| done).collect()
        };
        drop(queue);
        self.settle(memory)?;
        let states = done.into_values().collect::<Result<Vec<_>>>()?;
        memory.tokens.extend(tokens);
        if let (Some(all), Some(lost)) = (&mut memory.lost, lost) {
            let share = 1.0 / (self.shape().cached_layers().len() * self.shape().heads.heads) as f32;
            all.extend(lost.iter().map(|lost| lost * share));
        }
        joined(states)
    }
}

/// Joins parts of a text to one tensor: (rows, hidden)
pub(super) fn joined(mut parts: Vec<Tensor>) -> Result<Tensor> {
    Ok(if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(&parts, 0)? })
}

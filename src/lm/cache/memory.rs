//! The state of the recurrent network: the keys and values that survive in every layer, and the tokens they belong
//! to.
//!
//! A bounded memory is allocated at its bound and never grows with the text. While a block of tokens is read it
//! holds the block too, afterwards exactly as many entries per key-value head as the layer's size. Shrunk for
//! generation it has room for one entry more.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use anyhow::Result;

use super::attention_shape::AttentionShape;
use super::block_vectors::{BlockVectors, CachedKeys};
use super::delta_state::DeltaState;
use super::layer_cache::{HostTables, Keys, LayerCache, Tables, largest, shared};
use super::plan::{MemoryPlan, salt};
use super::scratch::{ReadStats, Scratch};
use super::store::{Store, values_of};
use crate::eviction::{
    BudgetPool, CacheEntries, Eviction, LayerEntries, PoolOver, RecordedAttention, ScoreCount, SizedPolicy,
    Vectors, evict_together,
};
use crate::lm::gpu::cache::CutTables;
use crate::lm::shape::caches::BLOCK;
use crate::lm::shape::config::ModelShape;
use crate::lm::shape::parts::LayerAttention;
use crate::vector;

/// The state of the network after reading some tokens. A clone is independent, so several questions can follow a
/// document that is read once.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Caches of the layers that own one, in order.
    pub(in crate::lm) layers: Vec<LayerCache>,
    /// Whether each layer of the model owns a cache: (layers)
    has_cache: Vec<bool>,
    /// States of the layers that have one of fixed size in place of a cache.
    pub(in crate::lm) states: Vec<DeltaState>,
    /// States by the number of tokens read, where forks will start.
    snapshots: BTreeMap<usize, Vec<DeltaState>>,
    state_points: Vec<usize>,
    /// The tokens read so far.
    pub(in crate::lm) tokens: Vec<u32>,
    pub(in crate::lm) scratch: Scratch,
    /// Products with weights are computed in f64.
    pub(in crate::lm) compute_f64: bool,
    /// Share of each token's attention, mean over layers and heads, that evicted entries would have received. Only
    /// if it was asked for.
    pub(in crate::lm) lost: Option<Vec<f32>>,
    /// The text is longer than the model's usual positions reach.
    pub(in crate::lm) is_long: bool,
    /// Tokens whose future the policy knows, if it needs that.
    pub(in crate::lm) known: Option<usize>,
    /// Whether it has no room for blocks ([`shrink_to_fit`](Self::shrink_to_fit)).
    pub(in crate::lm) is_shrunk: bool,
}

/// What policies that will cut a prompt know of it.
#[derive(Clone, Debug)]
pub struct PromptScores {
    /// What the host knows, and what a GPU keeps: (layers)(policies)
    layers: Vec<(Vec<CacheEntries>, Vec<CutTables>)>,
    /// With the scores that are computed where a prompt is cut, if it was. Caches of all sizes have the same.
    at_cut: OnceLock<Box<PromptScores>>,
}

impl PromptScores {
    fn new(layers: impl Iterator<Item = (Vec<CacheEntries>, Vec<CutTables>)>) -> PromptScores {
        PromptScores { layers: layers.collect(), at_cut: OnceLock::new() }
    }

    /// With the scores that `score` computes for the policies of each layer, once.
    pub(in crate::lm) fn at_cut(
        &self,
        score: impl Fn(usize, &mut [CacheEntries]) -> Result<()>,
    ) -> Result<&PromptScores> {
        if let Some(known) = self.at_cut.get() {
            return Ok(known);
        }
        let mut scored = self.clone();
        scored.layers.iter_mut().enumerate().try_for_each(|(index, (policies, _))| score(index, policies))?;
        Ok(self.at_cut.get_or_init(|| Box::new(scored)))
    }
}

impl Memory {
    /// With `on_gpu`, keys and values are on the device, as far as it can decide what the policy evicts.
    pub(in crate::lm) fn new(shape: &ModelShape, plan: &MemoryPlan<'_>, on_gpu: bool) -> Memory {
        let recurrent = shape.attention.iter().filter(|layer| layer.is_recurrent).count();
        let of_layers = |policy: SizedPolicy, options| policy.of_layers(shape.bounded_layers(options));
        let own = plan.policy.map(|policy| of_layers(policy, plan.options));
        let cuts = plan.cuts.iter().map(|(policy, options, seed)| (of_layers(*policy, *options), *seed));
        let cuts: Vec<(Vec<Option<SizedPolicy>>, u64)> = cuts.collect();
        let layer = |(at, index): (usize, usize)| {
            let own = own.as_ref().and_then(|own| own[at]);
            let cuts = cuts.iter().filter_map(|(policies, seed)| Some((policies[at]?, *seed))).collect();
            LayerCache::new(shape, plan, (at, index), (own, cuts), on_gpu)
        };
        Memory {
            layers: shape.cached_layers().enumerate().map(layer).collect(),
            has_cache: shape.attention.iter().map(LayerAttention::has_cache).collect(),
            states: shape.delta.iter().flat_map(|own| vec![DeltaState::new(own); recurrent]).collect(),
            state_points: plan.state_points.iter().copied().filter(|_| recurrent > 0).collect(),
            compute_f64: plan.policy.is_some_and(|policy| policy.score.compares_norms()),
            lost: plan.measure_loss.then(Vec::new),
            is_long: plan.is_long(shape),
            known: plan
                .policy
                .filter(|policy| policy.score.reads_future())
                .map(|_| plan.future.and_then(<[_]>::first).map_or(0, |layer| layer.tokens())),
            ..Memory::default()
        }
    }

    /// Memories of the same kind can read a token together: the type of products, and which layers have their caches on a device.
    pub(in crate::lm) fn kind(&self) -> (bool, Vec<bool>) {
        (self.compute_f64, self.layers.iter().map(|layer| matches!(layer.tables, Tables::Gpu(_))).collect())
    }

    /// Whether a device computes the attention of all layers, so that other texts need not wait for the host.
    pub(in crate::lm) fn is_on_gpu(&self) -> bool {
        self.layers.iter().all(|layer| matches!(layer.tables, Tables::Gpu(_)))
    }

    /// The attention of the tokens read, by layer, if it was recorded.
    pub fn into_attention(self) -> Vec<Arc<RecordedAttention>> {
        self.layers.into_iter().filter_map(|layer| layer.entries.into_recorded()).map(Arc::new).collect()
    }

    /// A bounded memory that has read the first `len` tokens of this unbounded one. Nothing is evicted by then, so it equals
    /// one that was made by `plan` from the start, if that has [`Positions::Absolute`](crate::eviction::Positions::Absolute); its
    /// log lacks only what windows of layers had passed. `None` as for [`CacheEntries::fork`], and for an unbounded plan.
    pub fn fork(&self, len: usize, plan: &MemoryPlan<'_>) -> Option<Memory> {
        self.fork_by(None, len, plan, &[])
    }

    /// A memory of these layers, which have read the first `len` tokens of this one; `None` where the states of others are not known.
    pub(in crate::lm) fn forked(
        &self,
        layers: Vec<LayerCache>,
        len: usize,
        plan: &MemoryPlan<'_>,
    ) -> Option<Memory> {
        Some(Memory {
            layers,
            has_cache: self.has_cache.clone(),
            states: self.states_at(len)?,
            tokens: self.tokens[..len].to_vec(),
            compute_f64: plan.policy.is_some_and(|policy| policy.score.compares_norms()),
            lost: plan.measure_loss.then(|| vec![0.0; len]),
            is_long: self.is_long,
            ..Memory::default()
        })
    }

    /// What each policy of [`MemoryPlan::cuts`] knows of the tokens read so far.
    pub fn cuts(&self) -> PromptScores {
        PromptScores::new(self.layers.iter().map(|layer| (layer.entries.cuts().to_vec(), layer.cut_tables())))
    }

    /// Ends a prompt that was read with [`MemoryPlan::cuts`]: what each policy knows of it.
    pub fn take_cuts(&mut self) -> PromptScores {
        let of_layer = |layer: &mut LayerCache| (layer.entries.take_cuts(), layer.cut_tables());
        PromptScores::new(self.layers.iter_mut().map(of_layer))
    }

    /// Forks the memory. A prompt that is cut at once needs the `shapes` of its layers.
    pub(in crate::lm) fn fork_by(
        &self,
        cut: Option<(&PromptScores, bool)>,
        len: usize,
        plan: &MemoryPlan<'_>,
        shapes: &[AttentionShape<'_>],
    ) -> Option<Memory> {
        let &MemoryPlan { policy, seed, measure_loss, options, expect, text, .. } = plan;
        let policy = policy?;
        let policies =
            policy.of_layers(options.local_layers.bounded(self.layers.iter().map(|layer| layer.entries.window)));
        let entries = self.layers.iter().zip(&policies).enumerate().map(|(index, (layer, own))| {
            let salt = salt(seed, index);
            let own = *own;
            match (own, cut) {
                (Some(own), Some((scores, _))) => {
                    layer.entries.fork_for_cut(&scores.layers.get(index)?.0, len, own, salt)
                }
                _ => layer.entries.fork(len, own, salt),
            }
        });
        let mut entries = entries.collect::<Option<Vec<_>>>()?;
        let mut logs = vec![plan.log.then(Vec::new); entries.len()];
        let kept = match cut {
            Some((_, true)) => {
                let logs = logs.iter_mut().map(Option::as_mut);
                // What a window has passed may be in the tables still.
                let vectors = self.layers.iter().zip(shapes).map(|(layer, shape)| {
                    let has_all = layer.entries.window.is_none();
                    vectors_of(&layer.tables, shape, layer.is_long).filter(|_| has_all)
                });
                let vectors: Vec<Option<BlockVectors<'_>>> = vectors.collect();
                let layers = entries.iter_mut().zip(logs).zip(&vectors).map(|((entries, log), vectors)| {
                    LayerEntries { entries, log, vectors: vectors.as_ref().map(|vectors| vectors as &dyn Vectors) }
                });
                evict_together(&mut layers.collect::<Vec<_>>(), true)
            }
            _ => entries.iter().map(|_| None).collect(),
        };
        let cut_tables = |index: usize| {
            let (cuts, tables) = cut?.0.layers.get(index)?;
            let at = CacheEntries::cut_of(cuts, len, policies[index]?, salt(seed, index))?;
            tables.get(at).cloned()
        };
        let layers = self.layers.iter().zip(entries).zip(logs).zip(kept).enumerate();
        let layers = layers.map(|(index, (((layer, mut entries), log), kept))| {
            let columns = layer.entries.columns_at(len)?;
            let rooms = match cut.is_some() && entries.awaits_cut() {
                true => vec![vector::padded(expect.max(columns.len()) + BLOCK)],
                false => rooms_for_blocks(&entries),
            };
            let tables = match &layer.tables {
                Tables::Host(HostTables { keys: Keys::Absolute(keys), values, .. }) => {
                    let kept = kept.unwrap_or_else(|| vec![(0..columns.len() as u32).collect()]);
                    let all_keys = match keys {
                        Store::Floats(keys) if measure_loss => {
                            Some(keys.copy(&[len], &[vector::padded(text.max(len))]))
                        }
                        _ => None,
                    };
                    Tables::Host(HostTables {
                        keys: Keys::Absolute(keys.copy_kept(columns.start, &kept, &rooms)?),
                        values: values.copy_kept(columns.start, &kept, &rooms)?,
                        all_keys,
                    })
                }
                Tables::Gpu(cache) if entries.can_be_scanned_on_device() => {
                    let (all_keys, held) = (measure_loss.then_some(text), columns.len());
                    let part = cache.part(columns, largest(&rooms), entries.scan_rule().as_ref(), all_keys);
                    entries = entries.scored_on_device();
                    Tables::Gpu(part.cut(cut_tables(index), held, kept))
                }
                _ => return None,
            };
            Some(LayerCache { entries, tables, log, is_long: self.is_long })
        });
        self.forked(layers.collect::<Option<_>>()?, len, plan)
    }

    /// Frees the memory that reading blocks needs, before `more` tokens are read one at a time by
    /// [`LanguageModel::step`](crate::lm::LanguageModel::step). An unbounded memory is then as large as the text will
    /// be, and a bounded one has room for one entry beyond its size, which it holds between attention and eviction.
    /// Reading more, or a block at once, makes room again.
    pub fn shrink_to_fit(&mut self, more: usize) {
        // Frees the tables of a block.
        self.scratch = self.scratch.clone();
        self.is_shrunk = true;
        let rooms: Vec<Vec<usize>> = self.layers.iter().map(|layer| self.rooms(layer, more)).collect();
        if self.layers.iter().zip(&rooms).any(|(layer, rooms)| layer.tables.capacities(rooms.len()) != *rooms) {
            // All layers are copied before any is dropped. Freed one by one, they would fragment the heap.
            self.layers = self.layers.iter().zip(&rooms).map(|(layer, rooms)| layer.with_rooms(rooms)).collect();
        }
    }

    /// Vectors that each key-value head of a layer needs room for while `more` tokens are read one at a time.
    fn rooms(&self, layer: &LayerCache, more: usize) -> Vec<usize> {
        let held = layer.entries.lens();
        let most = |kv_head: usize| layer.entries.most(kv_head);
        let Some(pool) = layer.entries.pool() else {
            let room = |(kv_head, held): (usize, &usize)| (held + more).min(most(kv_head)).max(*held);
            return held.iter().enumerate().map(room).collect();
        };
        // Heads that share their entries hold as many more as all of them have on average.
        let sharing: Vec<usize> = match pool.over {
            PoolOver::Heads => held.clone(),
            PoolOver::Model => self.pooled().flat_map(|layer| layer.entries.lens()).collect(),
        };
        let mean = sharing.iter().sum::<usize>().div_ceil(sharing.len().max(1));
        let spare = most(0).saturating_sub(mean).min(more);
        held.iter().map(|held| held + spare).collect()
    }

    /// Evicts what leaves after a token has gone through all layers ([`evict_together`]).
    pub(in crate::lm) fn evict_together(&mut self, shapes: &[AttentionShape<'_>], ends_prompt: bool) {
        let mut parts = Vec::new();
        for (layer, shape) in self.layers.iter_mut().zip(shapes) {
            let LayerCache { entries, tables, log, is_long } = layer;
            let vectors = vectors_of(tables, shape, *is_long);
            let was_cut = ends_prompt && entries.awaits_cut();
            parts.push((entries, log, vectors, was_cut));
        }
        let layers = parts.iter_mut().map(|(entries, log, vectors, _)| LayerEntries {
            entries,
            log: log.as_mut(),
            vectors: vectors.as_ref().map(|vectors| vectors as &dyn Vectors),
        });
        let kept = evict_together(&mut layers.collect::<Vec<_>>(), ends_prompt);
        let was_cut: Vec<bool> = parts.into_iter().map(|(_, _, _, was_cut)| was_cut).collect();
        let rooms = self.layers.iter().map(|layer| match self.is_shrunk {
            true => self.rooms(layer, usize::MAX),
            false => rooms_for_blocks(&layer.entries),
        });
        let rooms: Vec<Vec<usize>> = rooms.collect();
        let any_leaves = kept.iter().any(Option::is_some);
        for (index, kept) in kept.into_iter().enumerate() {
            // Of layers that evict together, one from which nothing leaves gets other room too.
            let is_moved = any_leaves && self.layers[index].entries.evicts_together();
            if was_cut[index] || is_moved || kept.is_some() {
                let frequencies = shapes[index].rope.frequencies(self.is_long);
                self.layers[index].take_kept(kept, frequencies, &rooms[index]);
            }
        }
    }

    /// The layers that share their entries with others.
    fn pooled(&self) -> impl Iterator<Item = &LayerCache> {
        let shares = |pool: BudgetPool| pool.over == PoolOver::Model;
        self.layers.iter().filter(move |layer| layer.entries.pool().is_some_and(shares))
    }

    /// Tokens that can be read before states have to be kept for a fork that starts there.
    pub(in crate::lm) fn until_fork(&self) -> Option<usize> {
        let seen = self.seen();
        self.state_points.iter().filter_map(|point| point.checked_sub(seen)).filter(|left| *left > 0).min()
    }

    /// Keeps the states of layers without a cache, if a fork starts here.
    pub(in crate::lm) fn keep_states(&mut self) {
        if self.state_points.contains(&self.seen()) {
            self.snapshots.insert(self.seen(), self.states.clone());
        }
    }

    /// The states after so many tokens, where they are known.
    pub(in crate::lm) fn states_at(&self, len: usize) -> Option<Vec<DeltaState>> {
        match self.snapshots.get(&len) {
            Some(states) => Some(states.clone()),
            None => (self.states.is_empty() || len == self.seen()).then(|| self.states.clone()),
        }
    }

    /// Tokens that can be read before entries have to leave the pool of all layers, if there is one: at least one.
    pub(in crate::lm) fn until_eviction(&self) -> Option<usize> {
        let (mut heads, mut held, mut most) = (0, 0, 0_usize);
        for layer in self.pooled() {
            let own = layer.entries.lens();
            heads += own.len();
            held += own.iter().sum::<usize>();
            most = most.saturating_add(layer.entries.most_together()?);
        }
        (heads > 0).then(|| most.saturating_sub(held) / heads + 1)
    }

    /// Tokens read so far.
    pub fn seen(&self) -> usize {
        self.tokens.len()
    }

    /// Entries of every key-value head of each layer: (layers)(kv_heads)
    pub fn entries(&self) -> Vec<Vec<usize>> {
        self.layers.iter().map(|layer| layer.entries.lens()).collect()
    }

    /// Positions of the surviving tokens: (layers)(decision groups)(entries). A layer without a cache of its own has no groups.
    pub fn survivors(&self) -> Vec<Vec<&[u32]>> {
        let mut own = self.layers.iter().map(|layer| layer.entries.survivors());
        let survivors = |has_cache: &bool| if *has_cache { own.next() } else { None };
        self.has_cache.iter().map(survivors).map(Option::unwrap_or_default).collect()
    }

    /// Bytes that keys and values, and states of layers without them, occupy now.
    pub fn bytes(&self) -> u64 {
        let of_states = self.states.iter().map(DeltaState::bytes).sum::<u64>();
        self.layers.iter().map(|layer| layer.tables.bytes()).sum::<u64>() + of_states
    }

    /// Time of all reads so far.
    pub fn stats(&self) -> ReadStats {
        self.scratch.stats
    }

    /// Evictions since the last call, by layer, in order; empty without [`MemoryPlan::log`]. When reading a long
    /// text, take the log every few reads to keep it short.
    pub fn take_log(&mut self) -> Vec<Vec<Eviction>> {
        self.layers.iter_mut().map(|layer| layer.log.as_mut().map(std::mem::take).unwrap_or_default()).collect()
    }

    /// The scores of formulas that have decided so far what leaves, where the host decides.
    pub fn score_count(&self) -> ScoreCount {
        let mut count = ScoreCount::default();
        self.layers.iter().for_each(|layer| count += layer.entries.score_count());
        count
    }

    /// Lost attention of every token read, if it is measured.
    pub fn lost(&self) -> Option<&[f32]> {
        self.lost.as_deref()
    }
}

/// Keys and values of a layer's cache; `None` of one on a GPU.
pub(in crate::lm) fn vectors_of<'a>(
    tables: &'a Tables,
    shape: &'a AttentionShape<'a>,
    is_long: bool,
) -> Option<BlockVectors<'a>> {
    let Tables::Host(HostTables { keys, values, .. }) = tables else { return None };
    let (keys, values) = match keys {
        Keys::Absolute(keys) => (CachedKeys::Absolute(keys), values_of(keys, values)),
        Keys::Rerotated(keys) => (CachedKeys::Rerotated(keys), values),
    };
    Some(BlockVectors { shape, keys, values, queries: &[], frequencies: shape.rope.frequencies(is_long) })
}

/// The rooms of a layer's key-value heads, with a block. They grow where nothing leaves any more.
fn rooms_for_blocks(entries: &CacheEntries) -> Vec<usize> {
    let room = |(kv_head, held): (usize, usize)| match entries.most(kv_head) {
        usize::MAX => vector::padded(held + BLOCK),
        most => vector::padded(most - 1 + BLOCK),
    };
    let held = entries.lens();
    let rooms: Vec<usize> = held.iter().copied().enumerate().map(room).collect();
    match entries.pool().map(|pool| pool.over) {
        _ if entries.most(0) == usize::MAX => rooms,
        // As many as without a pool, but each where its head needs them.
        Some(PoolOver::Heads) => shared(&held, rooms.iter().sum()),
        Some(PoolOver::Model) => {
            held.iter().map(|held| vector::padded(held + entries.burst() - 1 + BLOCK)).collect()
        }
        None => rooms,
    }
}

//! Attention over a bounded cache, block by block: logits as one product, the eviction scan over their rows,
//! attention times values as one product, and the columns of evicted entries are closed up.
//!
//! Everything here runs on the host in f32, whatever device and type the weights have, so that decisions never
//! depend on how a device rounds its softmax.
//!
//! It is a long file because these are the steps of one block, and all work on the same rows.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use candle_core::{Device, Tensor};
use rayon::prelude::*;

use super::decoder::Layer;
use super::parts::{Part, Reading};
use crate::eviction::{BlockScan, CacheEntries, Eviction, Heads, Led, NewEntries, Normaliser, Queries, Wanted};
use crate::lm::arithmetic::not_negative;
use crate::lm::arithmetic::product::{Right, product};
use crate::lm::arithmetic::rows::on_host;
use crate::lm::cache::attention_shape::AttentionShape;
use crate::lm::cache::block_vectors::{BlockVectors, CachedKeys, PageBounds};
use crate::lm::cache::layer_cache::{HostTables, Keys, LayerCache, Tables};
use crate::lm::cache::rerotation::RerotatedKeys;
use crate::lm::cache::rope::{Angles, Frequencies, rotate_head};
use crate::lm::cache::scratch::{Scratch, SharedBlock};
use crate::lm::cache::store::{Store, values_of};
use crate::lm::cache::table::Table;
use crate::lm::device::attend::{GpuAttention, GpuText, LayerTokens};
use crate::lm::shape::caches::BLOCK;
use crate::vector;

/// Queries, keys and values of consecutive tokens of one text, on the host, before rotation: queries (rows, heads, head_dim), keys
/// and values (rows, kv_heads, head_dim).
#[derive(Clone, Copy)]
struct Projections<'a> {
    pub shape: &'a AttentionShape<'a>,
    /// Numbers of the new entries that scores ask for; empty if no cache asks for them.
    pub new: NewEntries<'a>,
    /// Rotations of a read's tokens at absolute positions; `first` is the place of the first of these tokens among them.
    pub angles: &'a Angles,
    pub first: usize,
    pub rows: usize,
}

/// Part of a list from `start`, `len` long; empty for an empty list.
fn part<T>(list: &[T], start: usize, len: usize) -> &[T] {
    if list.is_empty() { list } else { &list[start..][..len] }
}

/// First `len` floats of a vector, which grows if needed and keeps its old contents.
fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}

/// Tokens of some texts in one layer, with everything that attention on the host takes from the layer.
pub(super) struct AttendingLayer<'a> {
    pub tokens: LayerTokens<'a>,
    pub layer: &'a Layer,
    /// States that the layer has read: (rows, hidden)
    pub x: &'a Tensor,
}

impl AttendingLayer<'_> {
    /// Reads the tokens of each text in turn into its cache, on a GPU or on the host. Returns the output of attention, (rows, heads
    /// * head_dim).
    ///
    /// # Errors
    ///
    /// Errors of the device, and texts of which some are on a GPU and some on the host.
    pub fn attend(&self, gpu: Option<&GpuAttention>, texts: &mut [Reading<'_, '_>]) -> Result<Tensor> {
        let is_on_gpu = |(text, _): &Reading<'_, '_>| {
            text.cache.as_ref().is_some_and(|cache| matches!(cache.tables, Tables::Gpu(_)))
        };
        match (gpu.filter(|_| texts.iter().any(is_on_gpu)), self.tokens.keys_and_values) {
            (Some(gpu), _) => self.attend_on_gpu(gpu, texts),
            (None, Some(keys_and_values)) => self.attend_on_host(keys_and_values, texts),
            (None, None) => self.attend_to_shared(texts),
        }
    }

    /// Attends to the entries that the queries of another layer attended to.
    fn attend_to_shared(&self, texts: &mut [Reading<'_, '_>]) -> Result<Tensor> {
        let (rows, width) = self.tokens.queries.dims2()?;
        let mut mixed = vec![0.0; rows * width];
        on_host([self.tokens.queries], |[queries]| {
            let tokens = self.projections(queries, (&[], &[]), rows);
            let mut rest = mixed.as_mut_slice();
            for (text, scratch) in texts {
                let (own, others) = std::mem::take(&mut rest).split_at_mut(text.tokens.len() * width);
                rest = others;
                let blocks = scratch.shared.remove(&self.tokens.shape.cache);
                let blocks = blocks.context("a layer shares the cache of a layer that comes later")?;
                let mut start = 0;
                for block in &blocks {
                    let out = &mut own[start * width..][..block.rows * width];
                    tokens.slice(text.first + start, block.rows).attend_as(block, out, scratch);
                    start += block.rows;
                }
                ensure!(
                    start == text.tokens.len(),
                    "a shared cache has keys at other positions than those in the text"
                );
                scratch.shared.insert(self.tokens.shape.cache, blocks);
            }
            anyhow::Ok(())
        })??;
        Ok(Tensor::from_vec(mixed, (rows, width), &Device::Cpu)?)
    }

    /// Takes the tokens to the host, with only those numbers that the caches' scores ask for.
    fn projections<'a>(
        &'a self,
        queries: &'a [f32],
        (keys, values): (&'a [f32], &'a [f32]),
        rows: usize,
    ) -> Projections<'a> {
        let dim = self.tokens.shape.head_dim;
        let (norms, sinks) = (self.tokens.norms, &self.layer.sinks[..]);
        let new = NewEntries { queries, keys, values, dim, norms, sinks, ..NewEntries::default() };
        Projections { shape: self.tokens.shape, new, angles: self.tokens.angles, first: self.tokens.first, rows }
    }

    fn attend_on_gpu(&self, gpu: &GpuAttention, texts: &mut [Reading<'_, '_>]) -> Result<Tensor> {
        texts.iter_mut().try_for_each(|(text, _)| self.keep_for_cut(text))?;
        let of_gpu = texts.iter_mut().map(|(text, _)| {
            let Some(LayerCache { entries, tables: Tables::Gpu(cache), log, is_long }) = text.cache.as_deref_mut()
            else {
                bail!("caches on the host and on a GPU cannot be read together");
            };
            let lost = text.lost.as_deref_mut();
            let (first, rows, log, is_long) = (text.first, text.tokens.len(), log.as_mut(), *is_long);
            Ok(GpuText { entries, cache, log, is_long, first, rows, lost })
        });
        gpu.attend(&self.tokens, of_gpu.collect::<Result<Vec<_>>>()?)
    }

    /// Takes to the host what it needs of a prompt that a GPU reads, to compute scores when that is cut.
    fn keep_for_cut(&self, text: &mut Part<'_>) -> Result<()> {
        let Some(LayerCache { entries, .. }) = text.cache.as_deref_mut() else { return Ok(()) };
        let (shape, rows) = (self.tokens.shape, text.tokens.len());
        let kept = entries.wanted_queries().min(rows);
        let (Some((keys, values)), true) = (self.tokens.keys_and_values, kept > 0) else { return Ok(()) };
        let wanted = entries.wants();
        if wanted.vectors || wanted.projected_norms || wanted.token_texts {
            let own = [keys, values].map(|tensor| tensor.narrow(0, text.first, rows));
            let [keys, values] = own;
            on_host([&keys?, &values?], |[keys, values]| {
                let projected_norms = match wanted.projected_norms {
                    true => self.layer.projected_norms(values, shape.heads, shape.head_dim)?,
                    false => Vec::new(),
                };
                let new = self.projections(&[], (keys, values), rows).new;
                let token_texts = text.token_texts;
                entries
                    .join_elsewhere(rows, &NewEntries { projected_norms: &projected_norms, token_texts, ..new });
                anyhow::Ok(())
            })??;
        } else {
            entries.join_elsewhere(rows, &NewEntries { dim: shape.head_dim, ..NewEntries::default() });
        }
        let (before, width) = (rows - kept, shape.heads.heads * shape.head_dim);
        let queries = self.tokens.queries.narrow(0, text.first + before, kept)?;
        on_host([&queries], |[queries]| {
            let mut rotated = vec![0.0; BLOCK.min(kept) * width];
            for (block, plain) in queries.chunks(BLOCK * width).enumerate() {
                let (start, rows) = (before + block * BLOCK, plain.len() / width);
                let own = self.projections(plain, (&[], &[]), rows);
                let own = Projections { first: own.first + text.first + start, ..own };
                let rotated = &mut rotated[..plain.len()];
                own.rotate_queries(rotated, entries.seen + start);
                entries.keep_queries(start + rows, &own.queries(rotated, &own.scales(entries.seen + start)));
            }
        })
    }

    fn attend_on_host(&self, (keys, values): (&Tensor, &Tensor), texts: &mut [Reading<'_, '_>]) -> Result<Tensor> {
        let (rows, width) = self.tokens.queries.dims2()?;
        let mut mixed = vec![0.0; rows * width];
        on_host([self.tokens.queries, keys, values], |[queries, keys, values]| {
            let shape = self.tokens.shape;
            let wants = |what: fn(&Wanted) -> bool| {
                texts.iter().filter_map(|(text, _)| text.cache.as_ref()).any(|cache| what(&cache.entries.wants()))
            };
            let projected_norms = match wants(|wanted| wanted.projected_norms) {
                true => self.layer.projected_norms(values, shape.heads, shape.head_dim)?,
                false => Vec::new(),
            };
            let hidden = match wants(|wanted| wanted.hidden) {
                true => self.layer.hidden(self.x, shape.model)?,
                false => Vec::new(),
            };
            let tokens = self.projections(queries, (keys, values), rows);
            let new = NewEntries { projected_norms: &projected_norms, hidden: &hidden, ..tokens.new };
            let tokens = Projections { new, ..tokens };
            let mut rest = mixed.as_mut_slice();
            let parts = texts.iter_mut().map(|(text, scratch)| {
                let (own, others) = std::mem::take(&mut rest).split_at_mut(text.tokens.len() * width);
                rest = others;
                (text, &mut **scratch, own)
            });
            let parts: Vec<_> = parts.collect();
            parts.into_par_iter().try_for_each(|(text, scratch, mixed)| tokens.attend(text, scratch, mixed))
        })??;
        Ok(Tensor::from_vec(mixed, (rows, width), &Device::Cpu)?)
    }
}

impl<'a> Projections<'a> {
    /// Reads the tokens of one text into its cache. `out` takes the output of attention (rows, heads, head_dim).
    fn attend(self, text: &mut Part<'_>, scratch: &mut Scratch, out: &mut [f32]) -> Result<()> {
        let Part { first, tokens: token_ids, token_texts, ends_read, lost, cache, .. } = text;
        let Some(LayerCache { entries, tables: Tables::Host(tables), log, is_long }) = cache else {
            bail!("a cache is on a GPU that is not there")
        };
        let rows = token_ids.len();
        let own = self.slice(*first, rows);
        let own =
            Projections { new: NewEntries { token_ids, token_texts, ends_read: *ends_read, ..own.new }, ..own };
        let width = self.shape.heads.heads * self.shape.head_dim;
        if self.shape.is_shared {
            scratch.shared.insert(self.shape.cache, Vec::new());
        }
        if entries.leads_or_follows() == Some(Led::Leads) {
            scratch.decided.clear();
        }
        let mut start = 0;
        while start < rows {
            // Now all that leaves after the token before has left, also where layers evict together or a prompt was cut.
            tables.pack();
            // Blocks end at multiples of BLOCK from the start of the text, however the text is split into reads.
            let block = (BLOCK - entries.seen % BLOCK).min(rows - start).min(tables.until_packed());
            let out = &mut out[start * width..][..block * width];
            let lost = lost.as_deref_mut().map(|lost| &mut lost[start..start + block]);
            let cache = (&mut *entries, &mut *tables, log.as_mut(), self.shape.rope.frequencies(*is_long));
            own.slice(start, block).attend_block(cache, out, lost, scratch);
            start += block;
        }
        Ok(())
    }

    /// Part of `rows` tokens from `start` on.
    fn slice(self, start: usize, rows: usize) -> Projections<'a> {
        let Heads { heads, kv_heads } = self.shape.heads;
        let (q, kv) = (heads * self.shape.head_dim, kv_heads * self.shape.head_dim);
        let new = self.new;
        let hidden = new.hidden.len() / self.rows;
        let new = NewEntries {
            queries: &new.queries[start * q..][..rows * q],
            keys: part(new.keys, start * kv, rows * kv),
            values: part(new.values, start * kv, rows * kv),
            norms: new.norms.map(|norms| &norms[start * kv_heads..][..rows * kv_heads]),
            projected_norms: part(new.projected_norms, start * kv_heads, rows * kv_heads),
            hidden: part(new.hidden, start * hidden, rows * hidden),
            token_ids: part(new.token_ids, start, rows),
            token_texts: part(new.token_texts, start, rows),
            ends_read: new.ends_read && start + rows == self.rows,
            ..new
        };
        Projections { new, first: self.first + start, rows, ..self }
    }

    /// Reads at most [`BLOCK`] tokens into a cache.
    fn attend_block(
        self,
        cache: (&mut CacheEntries, &mut HostTables, Option<&mut Vec<Eviction>>, &Frequencies),
        out: &mut [f32],
        lost: Option<&mut [f32]>,
        scratch: &mut Scratch,
    ) {
        let Heads { heads, kv_heads } = self.shape.heads;
        let (dim, rows) = (self.shape.head_dim, self.rows);
        let (entries, tables, mut log, frequencies) = cache;
        let held = entries.lens();
        let columns: Vec<usize> = held.iter().map(|held| held + rows).collect();
        let stride = vector::padded(entries.longest() + rows);
        tables.reserve(&held, rows);
        let HostTables { keys: cached_keys, values, all_keys } = &mut *tables;
        let position = entries.seen;

        if !values.is_empty() {
            values.put(&held, self.new.values);
        }
        let pages = entries.wants().pages;
        let mut scan = entries.begin(rows, &self.new);
        if self.shape.is_shared {
            scan.remember_masks();
        }
        scan.follow(&scratch.decided);
        let values = &*values;
        let logits = sized(&mut scratch.logits, heads * rows * stride);
        let queries = sized(&mut scratch.queries, heads * rows * dim);
        scratch.normaliser.max.resize(heads * rows, 0.0);
        scratch.normaliser.sum.resize(heads * rows, 0.0);
        match &mut *cached_keys {
            Keys::Absolute(keys) => {
                self.rotate_queries(queries, position);
                match keys {
                    Store::Floats(keys) => self.store_keys(keys, &held),
                    _ => {
                        let mut new = Table::new(kv_heads, &[rows], dim);
                        self.store_keys(&mut new, &vec![0; kv_heads]);
                        keys.put_by_head(&held, &new);
                    }
                }
                let pages = pages.into_iter().map(|page| PageBounds::new(page, keys, &columns, dim, queries));
                let pages: Vec<PageBounds> = pages.collect();
                keys.turn(queries);
                scan.keep_queries(&self.queries(queries, &self.scales(position)));
                self.logits_of_all(queries, keys, (&columns, stride), logits);
                let clock = Instant::now();
                let vectors = self.vectors(CachedKeys::Absolute(keys), values_of(keys, values), frequencies);
                let vectors = BlockVectors { pages: &pages, ..vectors };
                for row in 0..rows {
                    scan.step(row, logits, &mut scratch.normaliser, &vectors, log.as_deref_mut());
                }
                scratch.stats.scan += clock.elapsed();
                if let Some(masks) = scan.take_masks() {
                    let rooms: Vec<usize> = columns.iter().copied().map(vector::padded).collect();
                    let [keys, values] = [&*keys, values].map(|table| table.copy(&columns, &rooms));
                    let block = SharedBlock { rows, columns: columns.clone(), stride, masks, keys, values };
                    scratch.shared.entry(self.shape.cache).or_default().push(block);
                }
            }
            Keys::Rerotated(keys) => {
                let clock = Instant::now();
                let place = (&held[..], position, frequencies);
                let normaliser = &mut scratch.normaliser;
                self.scan_rerotated((keys, values), &mut scan, place, (queries, logits), normaliser, log);
                scan.keep_queries(&self.queries(queries, &self.scales(position)));
                scratch.stats.scan += clock.elapsed();
            }
        }

        let mixed = sized(&mut scratch.mixed, heads * rows * dim);
        let values = match &*cached_keys {
            Keys::Absolute(keys) => values_of(keys, values),
            Keys::Rerotated(_) => values,
        };
        self.mix((logits, stride, &scratch.normaliser), (values, &columns), (mixed, out));
        scratch.decided.extend(scan.take_decided());
        let kept = scan.finish();
        if let (Some(lost), Some(all_keys)) = (lost, all_keys) {
            let seen = entries.seen;
            all_keys.reserve(vector::padded(seen));
            self.store_keys(all_keys, &vec![seen - rows; kv_heads]);
            self.measure_loss(queries, &scratch.normaliser, (all_keys, seen), &mut scratch.all_logits, lost);
        }
        if let Some(kept) = kept {
            tables.keep(&kept);
        }
    }

    /// Attends to the entries that the queries of another layer's block attended to.
    fn attend_as(self, block: &SharedBlock, out: &mut [f32], scratch: &mut Scratch) {
        let SharedBlock { rows, ref columns, stride, ref masks, ref keys, ref values } = *block;
        let Heads { heads, .. } = self.shape.heads;
        let dim = self.shape.head_dim;
        let logits = sized(&mut scratch.logits, heads * rows * stride);
        let queries = sized(&mut scratch.queries, heads * rows * dim);
        let normaliser = &mut scratch.normaliser;
        normaliser.max.resize(heads * rows, 0.0);
        normaliser.sum.resize(heads * rows, 0.0);
        // Their positions matter only where a query's temperature depends on them, which no family that shares caches has.
        self.rotate_queries(queries, 0);
        keys.turn(queries);
        self.logits_of_all(queries, keys, (columns, stride), logits);
        let groups = masks.len() / (rows * stride);
        for head in 0..heads {
            for row in 0..rows {
                let weights = &mut logits[(head * rows + row) * stride..][..stride];
                let mask = &masks[(head * groups / heads * rows + row) * stride..][..stride];
                let at = head * rows + row;
                (normaliser.max[at], normaliser.sum[at]) = vector::softmax_row(weights, mask);
            }
        }
        let mixed = sized(&mut scratch.mixed, heads * rows * dim);
        self.mix((logits, stride, normaliser), (values, columns), (mixed, out));
    }

    /// Multiplies attention weights (heads, rows, stride), not yet divided by their sums, with the values of each key-value head.
    /// `out` takes (rows, heads, head_dim); `mixed` is room for as much.
    fn mix(
        &self,
        (logits, stride, normaliser): (&[f32], usize, &Normaliser),
        (values, columns): (&Store, &[usize]),
        (mixed, out): (&mut [f32], &mut [f32]),
    ) {
        let (heads, dim, rows) = (self.shape.heads.heads, self.shape.head_dim, self.rows);
        let per_kv = self.shape.heads.per_kv_head();
        let heads_at_once = self.heads_at_once(stride);
        mixed.par_chunks_mut(per_kv * rows * dim).enumerate().with_min_len(heads_at_once).for_each(
            |(kv_head, mixed)| {
                let weights = &logits[kv_head * per_kv * rows * stride..][..per_kv * rows * stride];
                let sides = (per_kv * rows, dim, columns[kv_head]);
                match values {
                    Store::Floats(values) => {
                        product(sides, (mixed, dim), (weights, stride), Right::Rows(values.head(kv_head)));
                    }
                    _ => {
                        mixed.fill(0.0);
                        let mut part = vec![0.0; mixed.len()];
                        values.each_tile(kv_head, columns[kv_head], dim, |first, values| {
                            let sides = (per_kv * rows, dim, values.len() / dim);
                            product(sides, (&mut part, dim), (&weights[first..], stride), Right::Rows(values));
                            vector::add_scaled(mixed, &part, 1.0);
                        });
                        values.turn_back(mixed);
                    }
                }
            },
        );
        for row in 0..rows {
            for head in 0..heads {
                let scale = 1.0 / normaliser.sum[head * rows + row];
                let from = &mixed[(head * rows + row) * dim..][..dim];
                let to = &mut out[(row * heads + head) * dim..][..dim];
                for (to, from) in to.iter_mut().zip(from) {
                    *to = from * scale;
                }
            }
        }
    }

    /// Vectors of the block's columns and rows, as scores read them.
    fn vectors(&self, keys: CachedKeys<'a>, values: &'a Store, frequencies: &'a Frequencies) -> BlockVectors<'a> {
        let (shape, queries) = (self.shape, self.new.queries);
        BlockVectors { shape, keys, values, queries, frequencies, pages: &[] }
    }

    /// Number of key-value heads per task of a thread, so that a task is worth waking a thread.
    fn heads_at_once(&self, columns: usize) -> usize {
        const WORTH: usize = 1 << 14; // multiplications
        WORTH / (self.shape.heads.per_kv_head() * self.rows * columns * self.shape.head_dim) + 1
    }

    /// Scales queries and rotates them to their absolute positions, of which the first is `position`: (heads, rows, head_dim)
    fn rotate_queries(&self, queries: &mut [f32], position: usize) {
        let (heads, dim, rows) = (self.shape.heads.heads, self.shape.head_dim, self.rows);
        for row in 0..rows {
            let scale = self.shape.query_scale(position + row);
            let angles = self.angles.row(self.first + row);
            for head in 0..heads {
                let query = &self.new.queries[(row * heads + head) * dim..][..dim];
                rotate_head(query, angles, scale, &mut queries[(head * rows + row) * dim..][..dim]);
            }
        }
    }

    /// What the logits of each row are multiplied by, the first of which is at `position`.
    fn scales(&self, position: usize) -> Vec<f32> {
        self.shape.query_scales(position..position + self.rows)
    }

    /// The block's queries, rotated and scaled: (heads, rows, head_dim)
    fn queries<'b>(&'b self, rotated: &'b [f32], scales: &'b [f32]) -> Queries<'b> {
        Queries { rotated, plain: self.new.queries, scales, sinks: self.new.sinks }
    }

    /// Stores rotated keys as the vectors of each key-value head of a table, from column `at[head]` on.
    fn store_keys(&self, table: &mut Table, at: &[usize]) {
        let (kv_heads, dim) = (self.shape.heads.kv_heads, self.shape.head_dim);
        for row in 0..self.rows {
            for (kv_head, at) in at.iter().enumerate() {
                let key = &self.new.keys[(row * kv_heads + kv_head) * dim..][..dim];
                rotate_head(key, self.angles.row(self.first + row), 1.0, table.vector_mut(kv_head, at + row));
            }
        }
    }

    /// Computes the block's logits against cache and block, `columns[head]` for each key-value head: (heads, rows, stride)
    fn logits_of_all(
        &self,
        queries: &[f32],
        keys: &Store,
        (columns, stride): (&[usize], usize),
        logits: &mut [f32],
    ) {
        let (dim, rows) = (self.shape.head_dim, self.rows);
        let per_kv = self.shape.heads.per_kv_head();
        let by_head = logits.par_chunks_mut(per_kv * rows * stride).enumerate();
        by_head.with_min_len(self.heads_at_once(stride)).for_each(|(kv_head, logits)| {
            let queries = &queries[kv_head * per_kv * rows * dim..][..per_kv * rows * dim];
            keys.logits(kv_head, columns[kv_head], (queries, dim), (logits, stride));
            self.shape.cap(logits);
        });
    }

    /// Scans row by row for positions that depend on evictions: the logits of a row can only be computed after the row before was
    /// scanned.
    fn scan_rerotated(
        &self,
        (keys, values): (&mut RerotatedKeys, &Store),
        scan: &mut BlockScan<'_>,
        (held, position, frequencies): (&[usize], usize, &Frequencies),
        (queries, logits): (&mut [f32], &mut [f32]),
        normaliser: &mut Normaliser,
        mut log: Option<&mut Vec<Eviction>>,
    ) {
        let Heads { heads, kv_heads } = self.shape.heads;
        let (dim, rows, stride) = (self.shape.head_dim, self.rows, scan.stride());
        let per_kv = self.shape.heads.per_kv_head();
        for row in 0..rows {
            let key = &self.new.keys[row * kv_heads * dim..][..kv_heads * dim];
            let coordinates = keys.push(held, row, key, scan, frequencies);
            let angles = frequencies.angles(coordinates.into_iter());
            let scale = self.shape.query_scale(position + row);
            for (kv_head, held) in held.iter().enumerate() {
                let lanes = vector::padded(held + row + 1);
                let (table, capacity) = keys.of_head(kv_head);
                for member in 0..per_kv {
                    let head = kv_head * per_kv + member;
                    let from = &self.new.queries[(row * heads + head) * dim..][..dim];
                    let query = &mut queries[(head * rows + row) * dim..][..dim];
                    rotate_head(from, angles.row(keys.group_of(kv_head)), scale, query);
                    let logits = &mut logits[(head * rows + row) * stride..][..lanes];
                    let (logits, end) = logits.split_at_mut(lanes.min(capacity));
                    vector::combine(query, table, capacity, logits);
                    self.shape.cap(logits);
                    end.fill(0.0);
                }
            }
            let vectors = self.vectors(CachedKeys::Rerotated(keys), values, frequencies);
            scan.step(row, logits, normaliser, &vectors, log.as_deref_mut());
            keys.close_gaps(scan, frequencies);
        }
    }

    /// Adds to `lost` (rows) the share of attention, summed over heads, that evicted entries would have received:
    /// one minus the ratio of the softmax sums over cached and over all entries.
    fn measure_loss(
        &self,
        queries: &[f32],
        cached: &Normaliser,
        (all_keys, seen): (&Table, usize),
        all_logits: &mut Vec<f32>,
        lost: &mut [f32],
    ) {
        let (kv_heads, dim, rows) = (self.shape.heads.kv_heads, self.shape.head_dim, self.rows);
        let (per_kv, stride) = (self.shape.heads.per_kv_head(), vector::padded(seen));
        for kv_head in 0..kv_heads {
            let logits = sized(all_logits, per_kv * rows * stride);
            let queries = &queries[kv_head * per_kv * rows * dim..][..per_kv * rows * dim];
            let keys = Right::Transposed(all_keys.head(kv_head));
            product((per_kv * rows, stride, dim), (logits, stride), (queries, dim), keys);
            self.shape.cap(logits);
            for member in 0..per_kv {
                for (row, lost) in lost.iter_mut().enumerate() {
                    let visible = seen - rows + row + 1;
                    let first = self.shape.own.first_seen(visible);
                    let all = (member * rows + row) * stride;
                    let head = kv_head * per_kv + member;
                    let everything = vector::log_sum_exp(&logits[all + first..all + visible]);
                    let everything =
                        self.new.sinks.get(head).map_or(everything, |sink| log_add_exp(everything, *sink));
                    let at = head * rows + row;
                    let kept = cached.max[at] + cached.sum[at].ln();
                    *lost += not_negative(1.0 - (kept - everything).exp());
                }
            }
        }
    }
}

/// ln(e^a + e^b)
fn log_add_exp(a: f32, b: f32) -> f32 {
    a.max(b) + (-(a - b).abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::presets;
    use crate::lm::cache::memory::Memory;
    use crate::lm::cache::plan::MemoryPlan;
    use crate::lm::cache::rope::Rope;
    use crate::lm::shape::config::ModelShape;
    use crate::lm::shape::rope_shape::{RopeScaling, RopeShape};

    /// Attention that each query pays to tokens outside a window of `size` + 1, summed over heads: by definition, in f64, over
    /// every pair of tokens.
    fn outside(tokens: Projections<'_>, size: usize) -> Vec<f64> {
        let (Heads { heads, kv_heads }, dim) = (tokens.shape.heads, tokens.shape.head_dim);
        let rotated = |row: &[f32], position: usize| {
            let mut to = vec![0.0; dim];
            rotate_head(row, tokens.angles.row(position), 1.0, &mut to);
            to
        };
        let lost = |t: usize, head: usize| {
            let kv = head / tokens.shape.heads.per_kv_head();
            let query = rotated(&tokens.new.queries[(t * heads + head) * dim..][..dim], t);
            let weight = |s: usize| {
                let key = rotated(&tokens.new.keys[(s * kv_heads + kv) * dim..][..dim], s);
                let dot: f64 = query.iter().zip(&key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                (dot / (dim as f64).sqrt()).exp()
            };
            let first = (t + 1).saturating_sub(size + 1);
            (0..first).map(weight).sum::<f64>() / (0..=t).map(weight).sum::<f64>()
        };
        (0..tokens.rows).map(|t| (0..heads).map(|head| lost(t, head)).sum()).collect()
    }

    /// Compares lost attention only; the output of attention is checked by the goldens.
    #[test]
    fn the_attention_that_a_window_loses() {
        window_loses(None);
    }

    /// An evicted key that is not a number makes the lost share unknown, not 0.
    #[test]
    fn a_broken_key_is_no_attention_of_zero() {
        window_loses(Some(40));
    }

    fn window_loses(broken: Option<usize>) {
        let (heads, head_dim, rows, size) = (Heads { heads: 4, kv_heads: 2 }, 8, 300, 50);
        let rope = RopeShape { theta: 100.0, scaling: RopeScaling::None, dims: head_dim };
        let sizes = ModelShape {
            hidden: 32,
            intermediate: 32,
            layers: 1,
            heads,
            head_dim,
            vocab: 32,
            ..ModelShape::default()
        };
        let model = ModelShape::llama(sizes, rope);
        let ropes = [Rope::new(&model.ropes[0])];
        let (shape, rope) = (AttentionShape::new(&model, 0, &ropes), &ropes[0]);
        let mut rng = fastrand::Rng::with_seed(3);
        let mut random = |n: usize| -> Vec<f32> { (0..n).map(|_| 4.0 * rng.f32() - 2.0).collect() };
        let (queries, mut keys, values) = (&random(rows * 32), random(rows * 16), &random(rows * 16));
        broken.iter().for_each(|token| keys[token * 16] = f32::NAN);
        let keys = &keys;
        let angles = &rope.frequencies(false).angles((0..rows).map(|position| position as f64));
        let tokens = Projections {
            shape: &shape,
            new: NewEntries { queries, keys, values, dim: head_dim, ..NewEntries::default() },
            angles,
            first: 0,
            rows,
        };
        let policy = presets::by_name("window").unwrap().at(size).unwrap();
        let plan = MemoryPlan { measure_loss: true, text: rows, ..MemoryPlan::bounded(policy) };
        let mut memory = Memory::new(&model, &plan, false);
        let mut lost = Vec::new();
        // Reading in uneven pieces must not matter.
        for piece in [1, 128, 71, 100] {
            let Memory { layers, scratch, .. } = &mut memory;
            let (mut out, mut of_piece) = (vec![0.0; piece * 32], vec![0.0; piece]);
            let mut text = Part {
                first: lost.len(),
                tokens: &vec![0; piece],
                token_texts: &[],
                ends_read: false,
                lost: Some(&mut of_piece),
                caches: Box::new(std::iter::empty()),
                states: Box::new(std::iter::empty()),
                cache: Some(&mut layers[0]),
                next: None,
            };
            tokens.attend(&mut text, scratch, &mut out).unwrap();
            drop(text);
            lost.extend(of_piece);
        }
        // Rows of a block are computed in whole lanes, and one that is no number spoils those it shares lanes with.
        let sound = broken.map_or(rows, |token| token / vector::LANES * vector::LANES);
        for (t, (got, want)) in lost.iter().zip(outside(tokens, size)).enumerate().take(sound) {
            assert!((f64::from(*got) - want).abs() < 1e-5, "lost at {t}: {got} {want}");
        }
        assert!(lost[sound..].iter().all(|lost| lost.is_nan()));
        assert!(broken.is_some() || lost[rows - 1] > 1.0);
        // As much memory as is counted.
        let Tables::Host(HostTables { all_keys: Some(all), .. }) = &memory.layers[0].tables else { panic!() };
        assert_eq!(all.data.len(), heads.kv_heads * vector::padded(rows) * head_dim);
    }
}

//! Reads tokens into caches on a device: the steps of `lm::attention`, as launches of kernels.
//!
//! How many entries a cache holds after a block is known beforehand, so all blocks of a call are launched before anything is read
//! back: which entries they are, what they have received, and who was evicted.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use candle_core::{DType, Tensor};

use super::arena::{Arena, Piece};
use super::cache::GpuCache;
use super::device::{Buffer, Gpu, Kernel, Launch};
use super::launch::{Block, COPY_THREADS, Call, SCRATCH, launch};
use super::params::{Layer, Text, bytes_of};
use super::readers::{Readers, Reading};
use crate::eviction::{CacheEntries, Eviction, ScanRule, Scanned};
use crate::lm::attention::LayerTokens;
use crate::lm::memory::BLOCK;
use crate::vector;

/// Columns whose bytes are in shared memory, of which every device has 48 KiB for a block.
const SHARED_COLUMNS: usize = 40 * 1024;

/// Attention on a device.
#[derive(Debug)]
pub(in crate::lm) struct GpuAttention {
    pub(super) gpu: Box<dyn Gpu>,
    /// The memory of earlier calls.
    reused: Mutex<Vec<Buffer>>,
    readers: Readers,
}

/// The tokens of one text among those of a call, and its cache in the layer.
pub(in crate::lm) struct GpuText<'a> {
    pub entries: &'a mut CacheEntries,
    pub cache: &'a mut GpuCache,
    pub log: Option<&'a mut Vec<Eviction>>,
    pub is_long: bool,
    /// Its tokens among those of the call.
    pub first: usize,
    pub rows: usize,
    /// Attention lost by each of its tokens is added here.
    pub lost: Option<&'a mut [f32]>,
}

/// What a text needs in a call.
struct Prepared<'a> {
    rule: Option<ScanRule>,
    /// With the addresses of its cache.
    cache: Text,
    /// Columns of all tables of the call.
    stride: usize,
    all_stride: usize,
    pieces: Pieces,
    scanned: Scanned,
    text: GpuText<'a>,
}

/// Its memory in a call.
struct Pieces {
    cos: Piece,
    sin: Piece,
    frequencies: Option<Piece>,
    query_scales: Piece,
    queries: Piece,
    logits: Piece,
    max: Piece,
    sum: Piece,
    mixed: Piece,
    all_logits: Option<Piece>,
    lost: Option<Piece>,
    positions: Option<Piece>,
    alive: Option<Piece>,
    survivors: Option<Piece>,
    moved: Option<Piece>,
    victims: Option<Piece>,
    priority: Option<Piece>,
    new_priority: Option<Piece>,
    program: Option<Piece>,
    results: Option<Piece>,
    /// Attention that entries have received, for each scope.
    received: Vec<Piece>,
    newest: Option<Piece>,
}

impl GpuText<'_> {
    /// Its next rows, which are then no longer among its own.
    fn next(&mut self, rows: usize) -> GpuText<'_> {
        let lost = self.lost.take().map(|lost| lost.split_at_mut(rows));
        let (lost, rest) = lost.unzip();
        self.lost = rest;
        self.first += rows;
        self.rows -= rows;
        let (log, first) = (self.log.as_deref_mut(), self.first - rows);
        GpuText { entries: self.entries, cache: self.cache, log, is_long: self.is_long, first, rows, lost }
    }
}

impl GpuAttention {
    pub fn new(gpu: Box<dyn Gpu>) -> GpuAttention {
        GpuAttention { gpu, reused: Mutex::default(), readers: Readers::default() }
    }

    /// As of [`Gpu::identity`].
    pub fn identity(&self) -> Result<String> {
        self.gpu.identity()
    }

    /// Waits for everything asked for so far.
    pub fn wait(&self) -> Result<()> {
        self.gpu.download(0, &mut [])
    }

    /// Frees the memory of earlier calls.
    pub fn free_unused(&self) {
        self.reused.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Says that this thread is about to call `attend` for every layer, until the guard is dropped.
    pub fn reading(&self) -> Reading<'_> {
        self.readers.enter()
    }

    /// Reads the tokens of some texts into their caches. Returns the output of attention, (rows, heads * head_dim).
    ///
    /// # Errors
    /// Errors of the device, its memory among them.
    pub fn attend(&self, tokens: &LayerTokens<'_>, mut texts: Vec<GpuText<'_>>) -> Result<Tensor> {
        let f32_of = |tensor: &Tensor| tensor.to_dtype(DType::F32)?.contiguous();
        let (keys, values) = tokens.keys_and_values.context("a layer without a cache has none on the GPU")?;
        let projections = [f32_of(tokens.queries)?, f32_of(keys)?, f32_of(values)?];
        let out = Tensor::zeros(projections[0].shape(), DType::F32, projections[0].device())?;
        while texts.iter().any(|text| text.rows > 0) {
            // An unbounded cache stops where forks will start.
            let left = texts.iter_mut().filter(|text| text.rows > 0);
            let parts = left.map(|text| {
                text.entries.save_for_forks();
                text.next(text.entries.next_fork_point(text.rows).unwrap_or(text.rows))
            });
            let parts = parts.collect();
            self.read(tokens, &projections, &out, parts)?;
        }
        Ok(out)
    }

    fn read(
        &self,
        tokens: &LayerTokens<'_>,
        projections: &[Tensor; 3],
        out: &Tensor,
        texts: Vec<GpuText<'_>>,
    ) -> Result<()> {
        let gpu = &*self.gpu;
        let mut arena = Arena::default();
        let prepared = texts.into_iter().map(|text| self.prepare(tokens, text, &mut arena));
        let mut prepared = prepared.collect::<Result<Vec<_>>>()?;
        let mut reused = self.reused.lock().unwrap_or_else(PoisonError::into_inner).pop();
        arena.place(gpu, &mut reused)?;

        let addresses = projections.each_ref().map(|tensor| gpu.address_of(tensor));
        let [queries, keys, values] = addresses;
        let addresses = [queries?, keys?, values?, gpu.address_of(out)?];
        let blocks_of = |one: &Prepared<'_>| -> Vec<Block> {
            let blocks = blocks(&one.text);
            let ends = blocks.iter().skip(1).map(|(start, _)| *start).chain([one.text.rows]);
            let ends = blocks.iter().zip(ends);
            ends.map(|((start, held), end)| one.block(tokens, &arena, addresses, *start..end, *held)).collect()
        };
        let call = Call { layer: layer_of(tokens), texts: prepared.iter().map(blocks_of).collect() };
        self.readers.launch(call, |calls, table| launch(gpu, calls, table))?;
        arena.read_back(gpu)?;
        for one in &mut prepared {
            one.take(&arena)?;
        }
        self.reused.lock().unwrap_or_else(PoisonError::into_inner).extend(reused);
        Ok(())
    }

    /// Makes room for a text, and collects what the device has to know.
    fn prepare<'a>(&self, tokens: &LayerTokens<'_>, text: GpuText<'a>, arena: &mut Arena) -> Result<Prepared<'a>> {
        let gpu = &*self.gpu;
        let (rows, held, seen) = (text.rows, text.entries.len(0), text.entries.seen);
        let rule = text.entries.scan_rule();
        let shape = tokens.shape;
        let (heads, dim) = (shape.heads.heads, shape.head_dim);
        let most = blocks(&text).iter().map(|(start, held)| held + BLOCK.min(rows - start)).max().unwrap_or(held);
        let stride = vector::padded(most);
        self.keep(text.cache, tokens, seen)?;
        text.cache.reserve(most, rule.is_some());
        let capacity = text.cache.capacity;
        let cache = text.cache.own(gpu, (held, capacity), seen, rows)?;
        let block = BLOCK.min(rows);
        let scanned = text.entries.scanned();
        let frequencies = shape.rope.frequencies(text.is_long);
        let pairs = frequencies.pairs.len();
        let range = (tokens.first + text.first) * pairs..(tokens.first + text.first + rows) * pairs;
        let scales: Vec<f32> = (0..rows).map(|row| shape.query_scale(seen + row)).collect();
        let groups = rule.as_ref().map_or(1, |rule| rule.groups);
        let all_stride = vector::padded(seen + rows);
        let measures_loss = text.lost.is_some() && text.cache.all_keys.is_some();
        let norms = tokens.norms.map(|norms| &norms[text.first * shape.heads.kv_heads..]);
        let new_priority = text.entries.new_priorities(rows, norms).filter(|_| rule.is_some());
        let bounded = rule.as_ref();
        let score = bounded.map(|rule| &rule.score);
        let pieces = Pieces {
            cos: arena.put(&tokens.angles.cos[range.clone()]),
            sin: arena.put(&tokens.angles.sin[range]),
            frequencies: text.cache.rotated.as_ref().map(|_| arena.put(&frequencies.pairs)),
            query_scales: arena.put(&scales),
            queries: arena.scratch::<f32>(heads * block * dim),
            logits: arena.scratch::<f32>(heads * block * stride),
            max: arena.scratch::<f32>(heads * block),
            sum: arena.scratch::<f32>(heads * block),
            mixed: arena.scratch::<f32>(heads * block * dim),
            all_logits: measures_loss
                .then(|| arena.scratch::<f32>(heads / shape.heads.kv_heads * block * all_stride)),
            lost: measures_loss.then(|| arena.state(&vec![0.0_f32; rows])),
            positions: bounded.map(|_| arena.state(&padded_lists(&scanned.positions, stride))),
            alive: bounded.filter(|_| stride > SHARED_COLUMNS).map(|_| arena.scratch::<u8>(groups * stride)),
            survivors: bounded.map(|_| arena.scratch::<u32>(groups * stride)),
            moved: bounded.map(|_| arena.result::<u32>(groups * 2)),
            victims: bounded.map(|_| arena.result::<i32>(rows * groups)),
            priority: new_priority.as_ref().map(|_| {
                let mut priorities = scanned.priorities.clone();
                priorities.resize(groups, Vec::new());
                arena.state(&padded_lists(&priorities, stride))
            }),
            new_priority: new_priority.map(|priorities| arena.put(&priorities)),
            program: score.filter(|score| !score.program.is_empty()).map(|score| arena.put(&score.program)),
            results: score
                .filter(|score| score.results > 0)
                .map(|score| arena.scratch::<f32>(groups * score.results * stride)),
            received: scanned.received.iter().map(|sums| arena.state(&padded_lists(sums, stride))).collect(),
            newest: bounded.filter(|rule| rule.wants_scores).map(|_| arena.result::<f32>(groups * stride)),
        };
        Ok(Prepared { rule, cache, stride, all_stride, pieces, scanned, text })
    }

    /// Closes the gaps of a prompt that was cut at once.
    fn keep(&self, cache: &mut GpuCache, tokens: &LayerTokens<'_>, seen: usize) -> Result<()> {
        let Some((kept, capacity)) = cache.keep.take() else { return Ok(()) };
        let gpu = &*self.gpu;
        let held = kept.iter().filter_map(|kept| kept.last()).max().map_or(0, |last| *last as usize + 1);
        let of = cache.own(gpu, (held, capacity), seen, 0)?;
        let stride = kept.iter().map(Vec::len).max().unwrap_or(0);
        let moved: Vec<u32> = kept.iter().flat_map(|kept| [kept.len() as u32, 0]).collect();
        let mut arena = Arena::default();
        let (survivors, moved) = (arena.put(&padded_lists(&kept, stride)), arena.put(&moved));
        let table = arena.scratch::<u8>(size_of::<Text>());
        arena.place(gpu, &mut None)?;
        let groups = kept.len();
        let text = Text {
            survivors: arena.at(survivors),
            moved: arena.at(moved),
            stride: stride as i32,
            groups: groups as i32,
            kept_lists: (cache.kept.rows / groups) as i32,
            total_lists: (cache.totals.rows / groups) as i32,
            ..of
        };
        gpu.upload(arena.at(table), bytes_of(&[text]))?;
        gpu.launch(Launch {
            kernel: Kernel::Compact,
            grid: [tokens.shape.heads.kv_heads + groups, 1],
            threads: gpu.threads(COPY_THREADS),
            shared_bytes: SCRATCH,
            layer: layer_of(tokens),
            texts: arena.at(table),
        })?;
        // Its memory is freed now, so it waits.
        gpu.download(arena.at(table), &mut [0; 1])
    }
}

impl Prepared<'_> {
    /// The rows `rows` of the text, before which its cache holds `held` entries.
    fn block(
        &self,
        tokens: &LayerTokens<'_>,
        arena: &Arena,
        [queries, keys, values, out]: [u64; 4],
        rows: Range<usize>,
        held: usize,
    ) -> Block {
        let Pieces { positions, alive, survivors, moved, priority, newest, .. } = self.pieces;
        let (pieces, shape, rule) = (&self.pieces, tokens.shape, self.rule.as_ref());
        let float = size_of::<f32>();
        let (q, kv) = (shape.heads.heads * shape.head_dim * float, shape.heads.kv_heads * shape.head_dim * float);
        let row = self.text.first + rows.start;
        let (pairs, groups) =
            (shape.rope.frequencies(self.text.is_long).pairs.len(), rule.map_or(1, |rule| rule.groups));
        let entries = &*self.text.entries;
        let is_last = rows.end == self.text.rows;
        let oldest = self.scanned.positions[0].first().map_or(entries.seen, |position| *position as usize);
        let gone = self.scanned.positions[0].len() + rows.start - held;
        let at = |piece: Option<Piece>, offset: usize| match piece {
            Some(piece) => arena.at(piece) + offset as u64,
            None => 0,
        };
        let text = Text {
            new_queries: queries + (row * q) as u64,
            new_keys: keys + (row * kv) as u64,
            new_values: values + (row * kv) as u64,
            cos: arena.at(pieces.cos) + (rows.start * pairs * float) as u64,
            sin: arena.at(pieces.sin) + (rows.start * pairs * float) as u64,
            frequencies: arena.at_any(pieces.frequencies),
            frequency_factor: shape.rope.frequencies(self.text.is_long).factor,
            query_scales: arena.at(pieces.query_scales) + (rows.start * float) as u64,
            queries: arena.at(pieces.queries),
            logits: arena.at(pieces.logits),
            max: arena.at(pieces.max),
            sum: arena.at(pieces.sum),
            mixed: arena.at(pieces.mixed),
            out: out + (row * q) as u64,
            all_logits: arena.at_any(pieces.all_logits),
            lost: at(pieces.lost, rows.start * float),
            positions: arena.at_any(positions),
            alive: arena.at_any(alive),
            survivors: arena.at_any(survivors),
            moved: arena.at_any(moved),
            victims: at(pieces.victims, rows.start * groups * size_of::<i32>()),
            priority: arena.at_any(priority),
            new_priority: at(pieces.new_priority, rows.start * groups * size_of::<f64>()),
            same_priority: rule.map_or(0.0, |rule| rule.same_priority),
            program: arena.at_any(pieces.program),
            results: arena.at_any(pieces.results),
            newest: if is_last { arena.at_any(newest) } else { 0 },
            salt: rule.map_or(0, |rule| rule.salt),
            rows: rows.len() as i32,
            held: held as i32,
            stride: self.stride as i32,
            seen: (entries.seen + rows.start) as i32,
            all_stride: self.all_stride as i32,
            limit: rule.map_or(i32::MAX, |rule| rule.limit.min(i32::MAX as usize) as i32),
            window: entries.window().map_or(0, |window| window.min(i32::MAX as usize) as i32),
            keep_first: rule.map_or(0, |rule| rule.keep_first as i32),
            keep_recent: rule.map_or(0, |rule| rule.keep_recent as i32),
            groups: groups as i32,
            instructions: rule.map_or(0, |rule| rule.score.program.len() as i32),
            kept_lists: rule.map_or(0, |rule| rule.score.kept as i32),
            total_lists: rule.map_or(0, |rule| rule.score.totals as i32),
            result_lists: rule.map_or(0, |rule| rule.score.results as i32),
            alive_is_shared: i32::from(alive.is_none()),
            oldest: (oldest + gone) as i32,
            ..self.cache
        };
        // What entries have received lies with them.
        let of_scope = |piece: &Piece| Text { kept: arena.at(*piece), kept_stride: self.stride as i32, ..text };
        let of_scopes: Vec<Text> = pieces.received.iter().map(of_scope).collect();
        let text = match (rule, of_scopes.first()) {
            (Some(rule), Some(of_scope)) if rule.keeps_received => *of_scope,
            _ => text,
        };
        let of_scopes = of_scopes.into_iter().zip(&self.scanned.received).filter(|_| rule.is_none());
        let of_head = |kv_head: usize| Text { kv_head: kv_head as i32, ..text };
        Block {
            is_bounded: rule.is_some(),
            received: of_scopes.map(|(text, sums)| Text { kept_lists: sums.len() as i32, ..text }).collect(),
            losses: pieces.lost.map_or(Vec::new(), |_| (0..shape.heads.kv_heads).map(of_head).collect()),
            text,
        }
    }

    /// Gives the entries what the device has decided.
    fn take(&mut self, arena: &Arena) -> Result<()> {
        let (pieces, stride) = (&self.pieces, self.stride);
        let entries = &mut *self.text.entries;
        let rows = self.text.rows;
        let held = entries.len_after(rows);
        if let (Some(lost), Some(piece)) = (self.text.lost.as_deref_mut(), pieces.lost) {
            for (lost, more) in lost.iter_mut().zip(arena.values::<f32>(piece)) {
                *lost += more;
            }
        }
        let mut scanned = Scanned::default();
        scanned.received = (self.scanned.received.iter().zip(&pieces.received))
            .map(|(before, piece)| lists(arena.values(*piece), before.len(), stride, held))
            .collect();
        let (Some(positions), Some(moved), Some(victims)) = (pieces.positions, pieces.moved, pieces.victims)
        else {
            // Unbounded: all stay but what the window has passed.
            let mut positions = std::mem::take(&mut self.scanned.positions);
            positions[0].extend((entries.seen..entries.seen + rows).map(|position| position as u32));
            let passed = positions[0].len() - held;
            positions[0].drain(..passed);
            // Without a scan nothing moves what they have received.
            for sums in scanned.received.iter_mut().flatten() {
                ensure!(
                    passed == 0,
                    "attention cannot be kept for forks in a layer with a window of {held} tokens"
                );
                sums.truncate(held);
            }
            entries.take_scanned(rows, Scanned { positions, ..scanned });
            return Ok(());
        };
        let groups = self.rule.as_ref().map_or(1, |rule| rule.groups);
        let counts: Vec<u32> = arena.values::<u32>(moved).chunks(2).map(|moved| moved[0]).collect();
        ensure!(
            counts.iter().all(|count| *count as usize == held),
            "the device kept {counts:?} entries of a cache, and {held} were expected; please report this"
        );
        scanned.positions = lists(arena.values(positions), groups, stride, held);
        if let Some(priority) = pieces.priority {
            scanned.priorities = lists(arena.values(priority), groups, stride, held);
        }
        if let Some(newest) = pieces.newest {
            let before = self.scanned.positions[0].len() + rows;
            scanned.newest = lists(arena.values(newest), groups, stride, before.min(stride));
        }
        if let Some(log) = self.text.log.as_deref_mut() {
            CacheEntries::log_victims(log, entries.seen, groups, &arena.values::<i32>(victims));
        }
        entries.take_scanned(rows, scanned);
        Ok(())
    }
}

/// The blocks of a text's tokens: the first row of each, and the entries held before it. They end at multiples of [`BLOCK`] from
/// the start of the text, however it is split into reads.
fn blocks(text: &GpuText<'_>) -> Vec<(usize, usize)> {
    let mut start = 0;
    std::iter::from_fn(|| {
        let block = (start < text.rows).then(|| (start, text.entries.len_after(start)))?;
        start += BLOCK - (text.entries.seen + start) % BLOCK;
        Some(block)
    })
    .collect()
}

fn layer_of(tokens: &LayerTokens<'_>) -> Layer {
    let shape = tokens.shape;
    Layer {
        heads: shape.heads.heads as i32,
        kv_heads: shape.heads.kv_heads as i32,
        dim: shape.head_dim as i32,
        pairs: shape.rope.frequencies(false).pairs.len() as i32,
        softcap: shape.model.attention_softcap.unwrap_or(0.0),
        pad: 0,
    }
}

/// Lists one after the other, `stride` numbers each.
fn padded_lists<T: Copy + Default>(lists: &[Vec<T>], stride: usize) -> Vec<T> {
    let mut padded = vec![T::default(); lists.len() * stride];
    for (to, from) in padded.chunks_exact_mut(stride.max(1)).zip(lists) {
        to[..from.len()].copy_from_slice(from);
    }
    padded
}

/// The first `held` numbers of each of `count` such lists.
fn lists<T: Copy>(values: Vec<T>, count: usize, stride: usize, held: usize) -> Vec<Vec<T>> {
    (0..count).map(|list| values[list * stride..][..held].to_vec()).collect()
}

//! Reads tokens into caches on a device: the steps of `lm::network::attention`, as launches of kernels.
//!
//! How many entries a cache holds after a block is known beforehand, so all layers of a read are launched before the host waits: which
//! entries survive stays on the device until the host asks for it ([`GpuAttention::settle`]).
//! It is a long file because every buffer of a read is prepared, passed to kernels and returned here, and nowhere else.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use candle_core::{DType, Tensor};

use super::batcher::{Batcher, Member};
use crate::eviction::formula::LoweredScore;
use crate::eviction::{CacheEntries, Decisions, Eviction, ScanRule};
use crate::lm::gpu::arena::{Arena, Piece};
use crate::lm::gpu::cache::{GpuCache, copy_rows};
use crate::lm::gpu::device::{Buffer, Gpu, Kernel, launch_one};
use crate::lm::gpu::launch::{Block, CANDIDATES, Call, MOVE_THREADS, REFILL_PARTS, fits_walk, launch};
use crate::lm::gpu::params::{Address, CopiedRows, Layer, Text, bytes_of};

use crate::lm::cache::attention_shape::AttentionShape;
use crate::lm::cache::block_vectors::{BlockVectors, CachedKeys};
use crate::lm::cache::layer_cache::Tables;
use crate::lm::cache::memory::Memory;
use crate::lm::cache::rope::{Angles, Frequencies};
use crate::lm::cache::store::Store;
use crate::lm::cache::table::Table;
use crate::lm::shape::caches::BLOCK;
use crate::vector;

/// Largest number of columns whose bytes fit into shared memory, of which every device has 48 KiB for a block.
const SHARED_COLUMNS: usize = 40 * 1024;
/// The fewest positions of which cosines and sines are kept on the device.
const SMALLEST_TABLE: usize = 1024;

/// Tokens of one step of writing and the memory that reads each; [`WriterResult`] holds each memory and the logits after the token.
pub(in crate::lm) type WriterCall = Vec<(u32, Memory)>;
pub(in crate::lm) type WriterResult = Vec<(Memory, Vec<f32>)>;

/// Attention of a model on a device.
#[derive(Debug)]
pub(in crate::lm) struct GpuAttention {
    pub(in crate::lm) gpu: Box<dyn Gpu>,
    /// Memory of earlier calls, which later calls use again.
    reused: Mutex<Vec<Buffer>>,
    readers: Batcher<Call, ()>,
    /// Memory of the last launch's table of texts.
    table: Mutex<Option<Buffer>>,
    writers: Batcher<WriterCall, WriterResult>,
    angles: Mutex<Vec<Arc<ResidentAngles>>>,
}

/// Cosines and sines of a rotation at all positions up to some, on the device. Who launches what reads them keeps them.
#[derive(Debug)]
struct ResidentAngles {
    frequencies: Frequencies,
    positions: usize,
    /// (2, positions, pairs)
    memory: Buffer,
}

impl ResidentAngles {
    /// Addresses of the cosines and the sines from a position on.
    fn at(&self, position: usize) -> (Address, Address) {
        let cos = self.memory.address + (position * self.frequencies.pairs.len() * size_of::<f32>()) as Address;
        (cos, cos + self.memory.bytes as Address / 2)
    }
}

/// Projections of the tokens of some texts in one layer, on the device that computes the model's products.
pub(in crate::lm) struct LayerTokens<'a> {
    pub shape: &'a AttentionShape<'a>,
    /// Queries (rows, heads * head_dim).
    pub queries: &'a Tensor,
    /// Keys and values (rows, kv_heads * head_dim) each; `None` in a layer without a cache.
    pub keys_and_values: Option<(&'a Tensor, &'a Tensor)>,
    /// Norms of keys or values, as in [`NewEntries`](crate::eviction::NewEntries).
    pub norms: Option<&'a [f64]>,
    /// Rotations of a read's tokens at absolute positions; `first` is the place of the first of these tokens among them.
    pub angles: &'a Angles,
    pub first: usize,
    /// Whether launches wait for those of other texts that are read at the same time.
    pub waits: bool,
}

/// One text's tokens among those of a call, and its cache in the layer.
pub(in crate::lm) struct GpuText<'a> {
    pub entries: &'a mut CacheEntries,
    pub cache: &'a mut GpuCache,
    pub log: Option<&'a mut Vec<Eviction>>,
    pub is_long: bool,
    /// Place of the text's first token among those of the call.
    pub first: usize,
    pub rows: usize,
    /// Receives the attention that each token of the text lost to eviction.
    pub lost: Option<&'a mut [f32]>,
}

/// Memory and addresses that a text needs in a call.
struct Prepared<'a> {
    rule: Option<ScanRule>,
    /// What its blocks have ([`Block::attends`]).
    attends: bool,
    has_logits: bool,
    /// Addresses of the attention that entries have received, for each scope.
    received: Vec<Address>,
    /// Address of the largest attention of a second reading, or 0.
    largest: Address,
    /// Makes the part of [`Text`] that all blocks of the text share: addresses of its cache and, for the first block, of its memory
    /// in the call.
    placed: Box<dyn Fn(&Arena) -> Text>,
    /// Attention lost by each token, which comes back from the device.
    lost: Option<Piece>,
    victims: Option<Piece>,
    /// Make the texts of policies that will cut the prompt from that of a block, of which a read's last has its scores.
    cuts: Vec<OfCut>,
    text: GpuText<'a>,
}

type OfCut = Box<dyn Fn(&Arena, &Text, bool) -> Option<Text>>;

impl GpuText<'_> {
    /// How many rows come before the first block that has to be scanned, because an entry leaves in it or something is remembered;
    /// `None` where earlier ones were.
    fn unscanned_rows(&self) -> Option<usize> {
        let rule = self.entries.scan_rule().filter(|rule| !rule.awaits_cut && self.cache.is_in_order())?;
        if rule.score.remembers() && !rule.keeps_received {
            return Some(0);
        }
        let rows = self.entries.rows_before_leaving(self.rows);
        // Columns that a window passes stay until some blocks are read. For a single row all others would have to move.
        if let Some(held) = self.entries.only_newest().filter(|_| self.rows > 1) {
            return Some(self.rows.min(held.next_multiple_of(BLOCK) - self.entries.seen % BLOCK));
        }
        let in_block = if rows == self.rows { 0 } else { (self.entries.seen + rows) % BLOCK };
        Some(rows.saturating_sub(in_block))
    }

    /// The norms of its keys, if they are known.
    fn norms<'b>(&self, tokens: &LayerTokens<'b>) -> Option<&'b [f64]> {
        tokens.norms.map(|norms| &norms[self.first * tokens.shape.heads.kv_heads..])
    }

    /// Splits off the text's next `rows` rows.
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
    #[cfg_attr(
        not(any(feature = "cuda", feature = "emulate")),
        expect(dead_code, reason = "without a device nothing is made for one")
    )]
    pub fn new(gpu: Box<dyn Gpu>) -> GpuAttention {
        // Whoever reads asks for the next layer soon; who writes may have to read a prompt first.
        let [of_readers, of_writers] = [200, 20].map(Duration::from_millis);
        let (readers, writers) = (Batcher::new(of_readers), Batcher::new(of_writers));
        let (reused, table, angles) = (Mutex::default(), Mutex::default(), Mutex::default());
        GpuAttention { gpu, reused, readers, table, writers, angles }
    }

    /// Identity of the device that results depend on, see [`Gpu::identity`].
    pub fn identity(&self) -> Result<String> {
        self.gpu.identity()
    }

    /// Waits until the device has done everything asked for so far.
    pub fn wait(&self) -> Result<()> {
        self.gpu.download(0, &mut [])
    }

    /// Frees the memory of earlier calls.
    pub fn free_unused(&self) {
        self.reused.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.angles.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Says that this thread is about to call `attend` for every layer, and soon, until the guard is dropped.
    pub fn reading(&self) -> Member<'_, impl Sized, impl Sized> {
        self.readers.enter()
    }

    /// Collects the steps of texts that are written at the same time.
    pub fn writers(&self) -> &Batcher<WriterCall, WriterResult> {
        &self.writers
    }

    /// Applies to the host's entries of a memory what the device has decided.
    ///
    /// # Errors
    ///
    /// Errors of the device.
    pub fn settle(&self, memory: &mut Memory) -> Result<()> {
        self.settle_all(memory.layers.iter_mut().filter_map(|layer| match &mut layer.tables {
            Tables::Gpu(cache) => Some((cache, &mut layer.entries)),
            Tables::Host(_) => None,
        }))
    }

    /// Applies to the host's entries of some caches what the device has decided, after one download.
    fn settle_all<'a>(
        &self,
        caches: impl Iterator<Item = (&'a mut GpuCache, &'a mut CacheEntries)>,
    ) -> Result<()> {
        let mut arena = Arena::default();
        let asked = caches
            .filter_map(|(cache, entries)| Some((cache.ask(entries.longest(), &mut arena)?, cache, entries)));
        let asked: Vec<_> = asked.collect();
        let pieces = asked.iter().flat_map(|(asked, ..)| asked.iter().flatten());
        let pieces: Vec<_> = pieces.copied().collect();
        if !pieces.is_empty() {
            arena.place(&*self.gpu, None)?;
            let copies = pieces.into_iter().map(|(copy, piece)| CopiedRows { to: arena.at(piece), ..copy });
            copy_rows(&*self.gpu, &copies.collect::<Vec<_>>())?;
            arena.read_back(&*self.gpu)?;
        }
        asked.into_iter().try_for_each(|(asked, cache, entries)| cache.settle(&asked, &arena, entries))
    }

    /// Computes the scores by which some policies cut a prompt that a layer has read, where kernels do not know them: its keys and values are
    /// on the host meanwhile.
    ///
    /// # Errors
    ///
    /// Errors of the device.
    pub fn score_at_cut(
        &self,
        cache: &GpuCache,
        (shape, is_long): (&AttentionShape<'_>, bool),
        policies: &mut [CacheEntries],
    ) -> Result<()> {
        let Some(seen) = policies.iter().find(|own| own.is_scored_at_cut()).map(|own| own.seen) else {
            return Ok(());
        };
        let of_heads = |vectors| Store::Floats(Table::full(vectors, shape.heads.kv_heads, shape.head_dim));
        let [keys, values] = cache.download(&*self.gpu, seen)?.map(of_heads);
        let (keys, frequencies) = (CachedKeys::Absolute(&keys), shape.rope.frequencies(is_long));
        let vectors = BlockVectors { shape, keys, values: &values, queries: &[], frequencies, pages: &[] };
        policies.iter_mut().for_each(|own| own.score_last_rows(&vectors));
        Ok(())
    }

    /// Cosines and sines of the first `positions` at least, which stay on the device.
    fn angles(&self, frequencies: &Frequencies, positions: usize) -> Result<Arc<ResidentAngles>> {
        let mut all = self.angles.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |own: &Arc<ResidentAngles>| own.frequencies == *frequencies;
        if let Some(known) = all.iter().find(|own| is_same(own) && own.positions >= positions) {
            return Ok(Arc::clone(known));
        }
        let positions = positions.next_power_of_two().max(SMALLEST_TABLE);
        let angles = frequencies.angles((0..positions).map(|position| position as f64));
        let memory = self.gpu.allocate(2 * size_of_val(&angles.cos[..]))?;
        let own = Arc::new(ResidentAngles { frequencies: frequencies.clone(), positions, memory });
        let (cos, sin) = own.at(0);
        self.gpu.upload(cos, bytes_of(&angles.cos))?;
        self.gpu.upload(sin, bytes_of(&angles.sin))?;
        all.retain(|own| !is_same(own));
        all.push(Arc::clone(&own));
        Ok(own)
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
            // An unbounded cache stops where forks will start, and a bounded one before the first block from which something leaves.
            let left = texts.iter_mut().filter(|text| text.rows > 0);
            let parts = left.map(|text| {
                let unscanned = text.unscanned_rows();
                if text.entries.is_fork_point() || unscanned == Some(0) {
                    self.settle_all(std::iter::once((&mut *text.cache, &mut *text.entries)))?;
                    text.entries.save_for_forks();
                    text.entries.forget_after_forks();
                }
                let to_fork = text.entries.next_fork_point(text.rows);
                let rows = to_fork.into_iter().chain(unscanned.filter(|rows| *rows > 0)).min();
                Ok(text.next(rows.unwrap_or(text.rows)))
            });
            let parts = parts.collect::<Result<_>>()?;
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
        let reused = || self.reused.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = reused().pop();
        arena.place(gpu, memory)?;

        let addresses = projections.each_ref().map(|tensor| gpu.address_of(tensor));
        let [queries, keys, values] = addresses;
        let addresses = [queries?, keys?, values?, gpu.address_of(out)?];
        let blocks_of = |one: &Prepared<'_>| -> Vec<Block> {
            let common = (one.placed)(&arena);
            let block = |(rows, held)| one.block(tokens, (&common, &arena), addresses, rows, held);
            blocks(&one.text, one.has_logits).into_iter().map(block).collect()
        };
        let call = Call { layer: layer_of(tokens), texts: prepared.iter().map(blocks_of).collect() };
        let all = |calls: Vec<Call>| {
            let count = calls.len();
            launch(gpu, calls, &mut self.table.lock().unwrap_or_else(PoisonError::into_inner))?;
            Ok(vec![(); count])
        };
        if tokens.waits {
            self.readers.call(call, all)?;
        } else {
            all(vec![call])?;
        }
        // Waits where the host asks for more than survivors, which it takes when the read ends.
        arena.read_back(gpu)?;
        for one in &mut prepared {
            one.take(tokens, &arena);
        }
        reused().extend(arena.memory.take());
        Ok(())
    }

    /// Makes room for a text, and collects what the device has to know. It is long because every field of [`Text`] is named, most
    /// of them where room is asked for and again where the address is known.
    fn prepare<'a>(&self, tokens: &LayerTokens<'_>, text: GpuText<'a>, arena: &mut Arena) -> Result<Prepared<'a>> {
        let gpu = &*self.gpu;
        let (rows, held, seen) = (text.rows, text.entries.longest(), text.entries.seen);
        let is_scanned =
            |rule: &ScanRule| !rule.awaits_cut && text.unscanned_rows().is_none_or(|before| before < rows);
        let mut rule = text.entries.scan_rule().filter(is_scanned);
        let cut_rules = text.entries.cut_rules();
        text.cache.end_cuts(!cut_rules.is_empty(), rule.is_some());
        let shape = tokens.shape;
        let (heads, dim) = (shape.heads.heads, shape.head_dim);
        let measures_loss = text.lost.is_some() && text.cache.all_keys.is_some();
        let second = text.entries.second_reading();
        // Where first entries stay while others pass, columns are not in order.
        let attends = rule.is_none() && text.entries.sinks() == 0 && Kernel::attending(dim).is_some();
        let has_logits = !attends
            || measures_loss
            || second.is_some()
            || cut_rules.iter().any(Option::is_some)
            || text.entries.received_groups().next().is_some();
        let blocks = blocks(&text, has_logits);
        let most = blocks.iter().map(|(rows, held)| held + rows.len()).max().unwrap_or(held);
        let block = blocks.iter().map(|(rows, _)| rows.len()).max().unwrap_or(rows);
        let stride = vector::padded(most);
        if let Some(rule) = &mut rule
            && rule.decisions == Decisions::ByNewestRow
            && !fits_walk(stride, heads / rule.groups, block)
        {
            rule.decisions = Decisions::ByRows;
        }
        self.keep(text.cache, tokens, seen)?;
        let passed = held + rows - text.entries.len_after(rows);
        let capacity = match rule.is_none() && passed > 0 {
            true => vector::padded(held + rows),
            false => {
                text.cache.reserve(most, rule.is_some());
                text.cache.capacity
            }
        };
        let new_priority = text.entries.new_priorities(rows, text.norms(tokens)).filter(|_| rule.is_some());
        let cache = text.cache.own(gpu, (held, capacity), seen, rows)?;
        let ([positions, priority, moved], received) =
            text.cache.own_entries(gpu, text.entries, rule.as_ref(), new_priority.is_some())?;
        let angles = self.angles(shape.rope.frequencies(text.is_long), seen + rows)?;
        let scales = shape.query_scales(seen..seen + rows);
        let unbounded = ScanRule { limit: usize::MAX, burst: 1, groups: 1, ..ScanRule::default() };
        let own = rule.as_ref().unwrap_or(&unbounded);
        // They would note two victims of a row in one place.
        ensure!(
            own.burst == 1 || text.entries.window.is_none_or(|window| seen + rows <= window),
            "several entries leave a layer at once whose window passes others; please report this"
        );
        let (is_bounded, groups, score) = (rule.is_some(), own.groups, &own.score);
        let all_stride = vector::padded(seen + rows);

        let query_scales = arena.put(&scales);
        let (ends, gap_end) = text.cache.unequal_ends();
        let ends = (!ends.is_empty()).then(|| arena.put(ends));
        let queries = arena.scratch::<f32>(heads * block * dim);
        let logits = has_logits.then(|| arena.scratch::<f32>(heads * block * stride));
        let with_logits =
            cut_rules.iter().flatten().map(|rule| &rule.score).chain([score]).any(LoweredScore::has_logits);
        let raw_logits = with_logits.then(|| arena.scratch::<f32>(heads * block * stride));
        let [max, scale] = [(); 2].map(|()| arena.scratch::<f32>(heads * block));
        let mixed = (!attends).then(|| arena.scratch::<f32>(heads * block * dim));
        let per_kv = shape.heads.per_kv_head();
        let all_logits = measures_loss.then(|| arena.scratch::<f32>(per_kv * block * all_stride));
        let lost = measures_loss.then(|| arena.state(&vec![0.0_f32; rows]));
        let is_shared = !is_bounded || stride <= SHARED_COLUMNS;
        let alive = (!is_shared).then(|| arena.scratch::<u8>(groups * stride));
        let decisions = rule.as_ref().map(|rule| rule.decisions);
        let gone_from = decisions.filter(|decisions| *decisions != Decisions::ByRows);
        let gone_from = gone_from.map(|_| arena.scratch::<u8>(groups * stride));
        let walked = (decisions == Some(Decisions::ByNewestRow)).then(|| {
            let candidates = arena.scratch::<[u32; 2]>(groups * block * CANDIDATES);
            (arena.scratch::<f32>(heads * block * stride), candidates)
        });
        let (by_column, candidates) = walked.unzip();
        let at_once = own.burst - 1;
        let moves_stride = block + at_once;
        let moves = is_bounded.then(|| arena.scratch::<u32>(groups * 2 * moves_stride));
        let victims = is_bounded.then(|| match text.log {
            Some(_) => arena.result::<i32>((at_once + rows) * groups),
            None => arena.scratch::<i32>((at_once + rows) * groups),
        });
        let before_rows = (at_once * groups * size_of::<i32>()) as Address;
        let new_priority = new_priority.map(|priorities| arena.put(&priorities));
        let part_scale = second.as_ref().map(|_| arena.scratch::<f32>(heads * block));
        let largest = if second.is_some() { text.cache.own_largest(gpu, held)? } else { 0 };
        let (prompt, part) = second.unwrap_or_default();
        let program = (!score.program.is_empty()).then(|| arena.put(&score.program));
        let results = (score.results > 0).then(|| arena.scratch::<f32>(groups * score.results * stride));
        let first = text.entries.first_position() as u32;
        let in_order = cut_rules.iter().any(Option::is_some).then(|| first..first + stride as u32);
        let in_order = in_order.map(|positions| arena.put(&positions.collect::<Vec<_>>()));
        let own_cuts = cut_rules.into_iter().zip(text.cache.own_cuts(gpu, held, stride)?);
        let own_cuts = own_cuts.filter_map(|(rule, addresses)| Some((rule?, addresses)));
        let cuts = own_cuts.map(|(rule, [kept, totals, newest])| -> OfCut {
            let ScanRule { groups, score, keep_first, keep_recent, salt, .. } = rule;
            let (program, remembers) = (arena.put(&score.program), score.remembers());
            let results = arena.scratch::<f32>(groups * score.results * stride);
            let mixed = arena.scratch::<f32>(heads * block * dim);
            let alive = (stride > SHARED_COLUMNS).then(|| arena.scratch::<u8>(groups * stride));
            Box::new(move |arena, of_block, is_last| {
                let of_cut = || Text {
                    positions: arena.at_any(in_order),
                    alive: arena.at_any(alive),
                    window: 0,
                    program: arena.at(program),
                    results: arena.at(results),
                    mixed: arena.at(mixed),
                    kept,
                    totals,
                    newest: if is_last { newest } else { 0 },
                    salt,
                    keep_first: keep_first as i32,
                    keep_recent: keep_recent as i32,
                    groups: groups as i32,
                    instructions: score.program.len() as i32,
                    kept_lists: score.kept as i32,
                    total_lists: score.totals as i32,
                    result_lists: score.results as i32,
                    ..*of_block
                };
                (is_last || remembers).then(of_cut)
            })
        });
        let cuts = cuts.collect();

        let common = Text {
            positions,
            priority,
            moved,
            same_priority: own.same_priority,
            salt: own.salt,
            stride: stride as i32,
            all_stride: all_stride as i32,
            limit: own.limit.min(i32::MAX as usize) as i32,
            burst: own.burst as i32,
            window: text.entries.window.map_or(0, |window| window.min(i32::MAX as usize) as i32),
            keep_first: if is_bounded { own.keep_first } else { text.entries.sinks() } as i32,
            keep_recent: own.keep_recent as i32,
            groups: groups as i32,
            instructions: score.program.len() as i32,
            kept_lists: score.kept as i32,
            total_lists: score.totals as i32,
            result_lists: score.results as i32,
            moves_stride: moves_stride as i32,
            gap_end: gap_end as i32,
            newest_seen: if is_bounded { 0 } else { text.entries.newest_seen().min(i32::MAX as usize) as i32 },
            prompt: prompt as i32,
            part_start: part.start as i32,
            part_end: part.end as i32,
            ..cache
        };
        let placed = move |arena: &Arena| Text {
            cos: angles.at(seen).0,
            sin: angles.at(seen).1,
            query_scales: arena.at(query_scales),
            ends: arena.at_any(ends),
            queries: arena.at(queries),
            logits: arena.at_any(logits),
            raw_logits: arena.at_any(raw_logits),
            max: arena.at(max),
            scale: arena.at(scale),
            part_scale: arena.at_any(part_scale),
            mixed: arena.at_any(mixed),
            all_logits: arena.at_any(all_logits),
            lost: arena.at_any(lost),
            alive: arena.at_any(alive),
            gone_from: arena.at_any(gone_from),
            by_column: arena.at_any(by_column),
            candidates: arena.at_any(candidates),
            moves: arena.at_any(moves),
            victims: victims.map_or(0, |victims| arena.at(victims) + before_rows),
            new_priority: arena.at_any(new_priority),
            program: arena.at_any(program),
            results: arena.at_any(results),
            ..common
        };
        Ok(Prepared {
            rule,
            attends,
            has_logits,
            received,
            largest,
            placed: Box::new(placed),
            lost,
            victims,
            cuts,
            text,
        })
    }

    /// Moves entries into the places of those that leave when a prompt is cut at once.
    fn keep(&self, cache: &mut GpuCache, tokens: &LayerTokens<'_>, seen: usize) -> Result<()> {
        let gpu = &*self.gpu;
        let Some((of, moves)) = cache.take_kept(gpu, seen)? else { return Ok(()) };
        let mut arena = Arena::default();
        let (columns, moved) = (arena.put(&moves.columns), arena.put(&moves.moved));
        arena.place(gpu, None)?;
        let text = Text {
            moves: arena.at(columns),
            moved: arena.at(moved),
            moves_stride: moves.stride as i32,
            groups: (moves.moved.len() / 2) as i32,
            ..of
        };
        let blocks = tokens.shape.heads.kv_heads * REFILL_PARTS + text.groups as usize;
        launch_one(gpu, Kernel::Refill, (blocks, MOVE_THREADS, 0), layer_of(tokens), &[text])
    }
}

impl Prepared<'_> {
    /// Block of the text's rows `rows`; its cache holds `held` entries before them.
    fn block(
        &self,
        tokens: &LayerTokens<'_>,
        (common, arena): (&Text, &Arena),
        [queries, keys, values, out]: [Address; 4],
        rows: Range<usize>,
        held: usize,
    ) -> Block {
        let (shape, rule, entries) = (tokens.shape, self.rule.as_ref(), &*self.text.entries);
        let float = size_of::<f32>();
        let row = (self.text.first + rows.start) * shape.head_dim * float;
        let [q, kv] = [shape.heads.heads, shape.heads.kv_heads].map(|heads| (row * heads) as Address);
        // What has so many bytes for each row, from the first of these on.
        let from = |address: Address, bytes: usize| match address {
            0 => 0,
            address => address + (rows.start * bytes) as Address,
        };
        let pairs = shape.rope.frequencies(self.text.is_long).pairs.len();
        let groups = common.groups as usize;
        let gone = entries.longest() + rows.start - held;
        let passed = held + rows.len() - entries.len_after(rows.end);
        // Columns that no row of the block sees, if they are still there.
        let before = if rule.is_none() { gone * shape.head_dim * float } else { 0 } as Address;
        let text = Text {
            keys: common.keys + before,
            values: common.values + before,
            new_queries: queries + q,
            new_keys: keys + kv,
            new_values: values + kv,
            out: out + q,
            cos: from(common.cos, pairs * float),
            sin: from(common.sin, pairs * float),
            query_scales: from(common.query_scales, float),
            lost: from(common.lost, float),
            victims: from(common.victims, groups * size_of::<i32>()),
            new_priority: from(common.new_priority, groups * size_of::<f64>()),
            rows: rows.len() as i32,
            held: held as i32,
            seen: (entries.seen + rows.start) as i32,
            oldest: (entries.seen + rows.start - held) as i32,
            passed: if rule.is_none() && common.keep_first > 0 { passed as i32 } else { 0 },
            ..*common
        };
        let of_scope = |address: &Address| Text { kept: *address, ..text };
        let text = match (rule, self.received.first()) {
            (Some(rule), Some(address)) if rule.keeps_received => of_scope(address),
            _ => text,
        };
        let scopes = self.received.iter().zip(entries.received_groups()).filter(|_| rule.is_none());
        let of_head = |kv_head: usize| Text { kv_head: kv_head as i32, ..text };
        let second = Some((&self.largest, shape.heads.kv_heads)).filter(|_| self.largest != 0);
        let lists = scopes.chain(second).map(|(at, lists)| Text { kept_lists: lists as i32, ..of_scope(at) });
        Block {
            decisions: rule.map(|rule| rule.decisions),
            attends: self.attends,
            has_logits: self.has_logits,
            received: lists.collect(),
            cuts: self.cuts.iter().filter_map(|cut| cut(arena, &text, rows.end == self.text.rows)).collect(),
            losses: self.lost.map_or(Vec::new(), |_| (0..shape.heads.kv_heads).map(of_head).collect()),
            text,
        }
    }

    /// Notes that the tokens were read, and hands the device's results to the host.
    fn take(&mut self, tokens: &LayerTokens<'_>, arena: &Arena) {
        let norms = self.text.norms(tokens);
        let GpuText { entries, cache, log, rows, lost, .. } = &mut self.text;
        if let (Some(log), Some(victims), Some(rule)) = (log.as_deref_mut(), self.victims, &self.rule) {
            entries.log_victims(log, rule, &arena.values::<i32>(victims));
        }
        let all = entries.longest() + *rows;
        if self.rule.is_none() {
            log.iter_mut().for_each(|log| entries.log_passed(log, *rows));
        }
        entries.scan_on_device(*rows, norms);
        if self.rule.is_none() && entries.longest() < all {
            cache.forget_first(all - entries.longest());
        }
        cache.scanned();
        if let (Some(lost), Some(piece)) = (lost.as_deref_mut(), self.lost) {
            for (lost, more) in lost.iter_mut().zip(arena.values::<f32>(piece)) {
                *lost += more;
            }
        }
    }
}

/// Blocks of a text's tokens: the rows of each, and the entries held before it. Those with logits end at multiples of [`BLOCK`] from the
/// start of the text, however it is split into reads.
fn blocks(text: &GpuText<'_>, has_logits: bool) -> Vec<(Range<usize>, usize)> {
    let mut start = 0;
    std::iter::from_fn(|| {
        let held = (start < text.rows).then(|| text.entries.len_after(start))?;
        let most = if has_logits { BLOCK - (text.entries.seen + start) % BLOCK } else { text.rows };
        let rows = start..(start + most).min(text.rows);
        start = rows.end;
        Some((rows, held))
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
    }
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
    use super::*;
    use crate::eviction::formula::Pool;
    use crate::eviction::{CacheOptions, LocalLayers, Policy, Score, presets};
    use crate::lm::gpu::emulated::{EmulatedGpu, Emulation};
    use crate::lm::{Device, LanguageModel, LayerAttention, MemoryPlan, WeightType, tiny_shape};

    /// A prompt that is read takes long in each layer, or for ever, as here. Texts that are written do not wait for it, and neither do
    /// those of which the host computes some layers: others do not wait for these either.
    #[test]
    fn only_texts_that_are_read_on_the_device_wait_for_each_other() {
        let gpu = EmulatedGpu::new(&Emulation::default()).unwrap();
        let patient = GpuAttention { readers: Batcher::new(Duration::MAX), ..GpuAttention::new(Box::new(gpu)) };
        let attention = Arc::new(patient);
        let mut shape = tiny_shape();
        shape.attention[0] = LayerAttention { window: Some(24), ..shape.attention[0] };
        let device = Device { attention: Some(Arc::clone(&attention)), ..Device::CPU };
        let model = LanguageModel::random(shape, 1.0, 5, WeightType::Auto, &device).unwrap();
        let mut written = model.new_memory(&MemoryPlan::unbounded());
        model.read(&[1, 2, 3], &mut written).unwrap();
        let score = Score::new("attention - key_redundancy", Pool::Mean).unwrap();
        let policy = Policy { score, ..presets::by_name("tova").unwrap() }.at(20).unwrap();
        let options = CacheOptions { local_layers: LocalLayers::Exempt, ..CacheOptions::default() };
        let mut mixed = model.new_memory(&MemoryPlan { options, ..MemoryPlan::bounded(policy) });
        let on_gpu = mixed.layers.iter().filter(|layer| matches!(layer.tables, Tables::Gpu(_)));
        assert_eq!(on_gpu.count(), 1);

        let _prompt = attention.reading();
        model.step(&[4], &mut [&mut written]).unwrap();
        model.read(&[1, 2, 3], &mut mixed).unwrap();
        assert_eq!((written.seen(), mixed.seen()), (4, 3));
    }
}

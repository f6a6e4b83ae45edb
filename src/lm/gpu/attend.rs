//! Reads tokens into caches on a device: the steps of `lm::attention`, as launches of kernels.
//!
//! How many entries a cache holds after a block is known beforehand, so all blocks of a call are launched before anything is read
//! back: which entries they are, what they have received, and who was evicted.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use candle_core::{DType, Tensor};

use super::arena::{Arena, Piece};
use super::cache::{CacheAddresses, GpuCache};
use super::device::{Buffer, Factor, Gpu, Kernel, Launch, Product};
use super::params::{Layer, Text, bytes_of};
use crate::eviction::{CacheEntries, Decided, Eviction, Positions, WalkRule};
use crate::lm::attention::LayerTokens;
use crate::lm::memory::BLOCK;
use crate::vector;

/// Room for what the threads of a block share but for a byte of each column, `kernels/block.h`.
const SCRATCH: usize = 32 * (8 + 4 + 4);
/// Threads of a block that copies, and of one that takes a row.
const COPY_THREADS: usize = 256;
const ROW_THREADS: usize = 128;
/// Columns whose bytes are in shared memory, of which every device has 48 KiB for a block.
const SHARED_COLUMNS: usize = 40 * 1024;

/// Attention on a device.
#[derive(Debug)]
pub(in crate::lm) struct GpuAttention {
    pub(super) gpu: Box<dyn Gpu>,
    /// The memory of the last call.
    reused: Mutex<Option<Buffer>>,
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
    rule: Option<WalkRule>,
    cache: CacheAddresses,
    /// Columns of all tables of the call.
    stride: usize,
    all_stride: usize,
    pieces: Pieces,
    decided: Decided,
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

impl GpuAttention {
    pub fn new(gpu: Box<dyn Gpu>) -> GpuAttention {
        GpuAttention { gpu, reused: Mutex::new(None) }
    }

    /// Reads the tokens of some texts into their caches. Returns the output of attention, (rows, heads * head_dim).
    ///
    /// # Errors
    /// Errors of the device, its memory among them.
    pub fn attend(&self, tokens: &LayerTokens<'_>, texts: Vec<GpuText<'_>>) -> Result<Tensor> {
        let f32_of = |tensor: &Tensor| tensor.to_dtype(DType::F32)?.contiguous();
        let projections = [f32_of(tokens.queries)?, f32_of(tokens.keys)?, f32_of(tokens.values)?];
        let out = Tensor::zeros(projections[0].shape(), DType::F32, projections[0].device())?;
        let mut left: Vec<GpuText<'_>> = texts;
        while !left.is_empty() {
            // An unbounded cache stops where forks will start.
            let mut rest = Vec::new();
            let mut now = Vec::new();
            for text in &mut left {
                text.entries.save_for_forks();
                let rows = text.entries.next_fork_point(text.rows).unwrap_or(text.rows);
                now.push(GpuText {
                    entries: &mut *text.entries,
                    cache: &mut *text.cache,
                    log: text.log.as_deref_mut(),
                    is_long: text.is_long,
                    first: text.first,
                    rows,
                    lost: text.lost.as_deref_mut().map(|lost| &mut lost[..rows]),
                });
            }
            let rows: Vec<usize> = now.iter().map(|text| text.rows).collect();
            self.read(tokens, &projections, &out, now)?;
            for (text, read) in left.into_iter().zip(rows) {
                if read < text.rows {
                    let lost = text.lost.map(|lost| &mut lost[read..]);
                    rest.push(GpuText { first: text.first + read, rows: text.rows - read, lost, ..text });
                }
            }
            left = rest;
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
        let blocks: Vec<Vec<(usize, usize)>> = prepared.iter().map(|one| blocks(&one.text)).collect();
        let rounds = blocks.iter().map(Vec::len).max().unwrap_or(0);
        let launched: usize = prepared
            .iter()
            .zip(&blocks)
            .map(|(one, blocks)| {
                // Once for each scope that attention is kept for, and for each key-value head where lost attention is measured.
                blocks.len()
                    * (1 + one.pieces.received.len() + one.pieces.lost.map_or(0, |_| tokens.shape.heads.kv_heads))
            })
            .sum();
        let table = arena.scratch::<u8>(launched * size_of::<Text>());
        let mut reused = self.reused.lock().unwrap_or_else(PoisonError::into_inner);
        arena.place(gpu, &mut reused)?;

        let addresses = projections.each_ref().map(|tensor| gpu.address_of(tensor));
        let [queries, keys, values] = addresses;
        let addresses = [queries?, keys?, values?, gpu.address_of(out)?];
        let mut all = Vec::with_capacity(launched);
        let mut steps = Vec::new();
        for round in 0..rounds {
            let mut of_round = Vec::new();
            for (one, blocks) in prepared.iter().zip(&blocks) {
                if let Some(&(start, held)) = blocks.get(round) {
                    let end = blocks.get(round + 1).map_or(one.text.rows, |(next, _)| *next);
                    of_round.push(one.of_block(tokens, &arena, addresses, start..end, held));
                }
            }
            steps.push(Round::new(of_round, &mut all));
        }
        let base = arena.at(table);
        gpu.upload(base, bytes_of(&all))?;
        let layer = layer_of(tokens);
        for step in &steps {
            self.launch(layer, tokens, step, base)?;
        }
        arena.read_back(gpu)?;
        for one in &mut prepared {
            one.take(&arena)?;
        }
        Ok(())
    }

    /// Makes room for a text, and collects what the device has to know.
    fn prepare<'a>(&self, tokens: &LayerTokens<'_>, text: GpuText<'a>, arena: &mut Arena) -> Result<Prepared<'a>> {
        let gpu = &*self.gpu;
        let (rows, held, seen) = (text.rows, text.entries.len(), text.entries.seen);
        let rule = text.entries.walk_rule();
        let shape = tokens.shape;
        let (heads, dim) = (shape.heads.heads, shape.head_dim);
        let most = blocks(&text).iter().map(|(start, held)| held + BLOCK.min(rows - start)).max().unwrap_or(held);
        let stride = vector::padded(most);
        self.keep(text.cache, tokens, seen)?;
        text.cache.reserve(most, rule.is_some());
        let capacity = text.cache.capacity;
        let cache = text.cache.own(gpu, (held, capacity), seen, rows)?;
        let block = BLOCK.min(rows);
        let decided = text.entries.decided();
        let frequencies = shape.rope.frequencies(text.is_long);
        let pairs = frequencies.len();
        let range = (tokens.first + text.first) * pairs..(tokens.first + text.first + rows) * pairs;
        let scales: Vec<f32> = (0..rows).map(|row| shape.query_scale(seen + row)).collect();
        let groups = rule.as_ref().map_or(1, |rule| rule.groups);
        let all_stride = vector::padded(seen + rows);
        let measures_loss = text.lost.is_some() && text.cache.all_keys.is_some();
        let norms = tokens.norms.map(|norms| &norms[text.first * shape.heads.kv_heads..]);
        let new_priority = text.entries.new_priorities(rows, norms).filter(|_| rule.is_some());
        let pieces = Pieces {
            cos: arena.put(&tokens.angles.cos[range.clone()]),
            sin: arena.put(&tokens.angles.sin[range]),
            frequencies: text.cache.turned.as_ref().map(|_| arena.put(frequencies.pairs())),
            query_scales: arena.put(&scales),
            queries: arena.scratch::<f32>(heads * block * dim),
            logits: arena.scratch::<f32>(heads * block * stride),
            max: arena.scratch::<f32>(heads * block),
            sum: arena.scratch::<f32>(heads * block),
            mixed: arena.scratch::<f32>(heads * block * dim),
            all_logits: measures_loss
                .then(|| arena.scratch::<f32>(shape.heads.per_kv_head() * block * all_stride)),
            lost: measures_loss.then(|| arena.state(&vec![0.0_f32; rows])),
            positions: rule.as_ref().map(|_| arena.state(&padded_lists(&decided.positions, stride))),
            alive: rule.as_ref().filter(|_| stride > SHARED_COLUMNS).map(|_| arena.scratch::<u8>(groups * stride)),
            survivors: rule.as_ref().map(|_| arena.scratch::<u32>(groups * stride)),
            moved: rule.as_ref().map(|_| arena.result::<u32>(groups * 2)),
            victims: rule.as_ref().map(|_| arena.result::<i32>(rows * groups)),
            priority: new_priority.as_ref().map(|_| {
                let mut priorities = decided.priorities.clone();
                priorities.resize(groups, Vec::new());
                arena.state(&padded_lists(&priorities, stride))
            }),
            new_priority: new_priority.map(|priorities| arena.put(&priorities)),
            program: rule
                .as_ref()
                .filter(|rule| !rule.score.program.is_empty())
                .map(|rule| arena.put(&rule.score.program)),
            results: rule
                .as_ref()
                .filter(|rule| rule.score.results > 0)
                .map(|rule| arena.scratch::<f32>(groups * rule.score.results * stride)),
            received: decided
                .received
                .iter()
                .map(|received| arena.state(&padded_lists(received, stride)))
                .collect(),
            newest: rule.as_ref().filter(|rule| rule.wants_scores).map(|_| arena.result::<f32>(groups * stride)),
        };
        Ok(Prepared { rule, cache, stride, all_stride, pieces, decided, text })
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
            ..of.text(cache, capacity)
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

    fn launch(&self, layer: Layer, tokens: &LayerTokens<'_>, round: &Round, base: u64) -> Result<()> {
        let gpu = &*self.gpu;
        let shape = tokens.shape;
        let (heads, kv_heads, per_kv, dim) =
            (shape.heads.heads, shape.heads.kv_heads, shape.heads.per_kv_head(), shape.head_dim);
        let at = |index: usize| base + (index * size_of::<Text>()) as u64;
        let rows = round.texts.iter().map(|text| text.rows as usize).max().unwrap_or(0);
        let launch = |kernel, x: usize, texts: (usize, usize), threads, shared_bytes| {
            let threads = gpu.threads(threads);
            gpu.launch(Launch { kernel, grid: [x, texts.1], threads, shared_bytes, layer, texts: at(texts.0) })
        };
        let all = (round.first, round.texts.len());
        launch(Kernel::Place, rows, all, COPY_THREADS, 0)?;
        for text in round.texts.iter().filter(|text| text.positions_kind == 0) {
            let (rows, capacity, stride) = (text.rows as usize, text.capacity as usize, text.stride as usize);
            gpu.product(Product {
                m: per_kv * rows,
                n: (text.held as usize) + rows,
                k: dim,
                a: Factor { address: text.queries, stride: dim, batch: per_kv * rows * dim },
                b: Factor { address: text.keys, stride: dim, batch: capacity * dim },
                b_is_transposed: true,
                c: Factor { address: text.logits, stride, batch: per_kv * rows * stride },
                batches: kv_heads,
            })?;
        }
        // The texts of a round are in the order of what they need.
        for (kernel, part) in [
            (Kernel::Softmax, round.unbounded.clone()),
            (Kernel::Walk, round.walked.clone()),
            (Kernel::WalkTurned, round.turned.clone()),
        ] {
            if part.is_empty() {
                continue;
            }
            let texts = (round.first + part.start, part.len());
            let of_part = &round.texts[part];
            if kernel == Kernel::Softmax {
                let most = of_part.iter().map(|text| text.rows as usize).max().unwrap_or(0);
                launch(kernel, heads * most, texts, ROW_THREADS, SCRATCH)?;
                continue;
            }
            let groups = of_part.iter().map(|text| text.groups as usize).max().unwrap_or(1);
            let fewest = of_part.iter().map(|text| text.groups as usize).min().unwrap_or(1);
            let columns = |text: &Text| {
                if text.alive_is_shared == 1 { (text.stride as usize).next_multiple_of(8) } else { 0 }
            };
            let bytes = of_part.iter().map(columns).max().unwrap_or(0);
            let angles =
                if kernel == Kernel::WalkTurned { 2 * size_of::<f32>() * layer.pairs as usize } else { 0 };
            launch(kernel, groups, texts, (32 * heads / fewest).clamp(128, 1024), SCRATCH + bytes + angles)?;
        }
        for text in round.received.clone() {
            let columns = round.extra[text].held as usize + round.extra[text].rows as usize;
            launch(
                Kernel::Received,
                columns.div_ceil(gpu.threads(COPY_THREADS)),
                (round.extra_first + text, 1),
                COPY_THREADS,
                0,
            )?;
        }
        for text in &round.texts {
            let (rows, capacity, stride) = (text.rows as usize, text.capacity as usize, text.stride as usize);
            gpu.product(Product {
                m: per_kv * rows,
                n: dim,
                k: (text.held as usize) + rows,
                a: Factor { address: text.logits, stride, batch: per_kv * rows * stride },
                b: Factor { address: text.values, stride: dim, batch: capacity * dim },
                b_is_transposed: false,
                c: Factor { address: text.mixed, stride: dim, batch: per_kv * rows * dim },
                batches: kv_heads,
            })?;
        }
        launch(Kernel::Outputs, rows, all, COPY_THREADS, 0)?;
        for index in round.losses.clone() {
            let text = &round.extra[index];
            let (rows, all_stride) = (text.rows as usize, text.all_stride as usize);
            let (kv_head, seen) = (text.kv_head as usize, text.seen as usize + rows);
            let float = size_of::<f32>();
            gpu.product(Product {
                m: per_kv * rows,
                n: seen,
                k: dim,
                a: Factor {
                    address: text.queries + (kv_head * per_kv * rows * dim * float) as u64,
                    stride: dim,
                    batch: 0,
                },
                b: Factor {
                    address: text.all_keys + (kv_head * text.all_capacity as usize * dim * float) as u64,
                    stride: dim,
                    batch: 0,
                },
                b_is_transposed: true,
                c: Factor { address: text.all_logits, stride: all_stride, batch: 0 },
                batches: 1,
            })?;
            launch(Kernel::Loss, rows, (round.extra_first + index, 1), ROW_THREADS, SCRATCH)?;
        }
        let bounded = round.walked.start..round.turned.end;
        if !bounded.is_empty() {
            let groups = round.texts[bounded.clone()].iter().map(|text| text.groups as usize).max().unwrap_or(1);
            let texts = (round.first + bounded.start, bounded.len());
            launch(Kernel::Compact, kv_heads + groups, texts, COPY_THREADS, SCRATCH)?;
        }
        Ok(())
    }
}

/// The launches of a block of every text.
struct Round {
    texts: Vec<Text>,
    /// The first of them in the call's table.
    first: usize,
    unbounded: Range<usize>,
    walked: Range<usize>,
    turned: Range<usize>,
    /// The same texts again: for each scope that attention is kept for, and for each key-value head where lost attention is
    /// measured.
    extra: Vec<Text>,
    extra_first: usize,
    received: Range<usize>,
    losses: Range<usize>,
}

impl Round {
    /// Adds the texts of a round to the table `all`, in the order of what they need.
    fn new(of_round: Vec<OfBlock>, all: &mut Vec<Text>) -> Round {
        let mut of_round = of_round;
        let kind = |block: &OfBlock| match (block.is_bounded, block.text.positions_kind) {
            (false, _) => 0,
            (true, 0) => 1,
            (true, _) => 2,
        };
        of_round.sort_by_key(kind);
        let [unbounded, walked] = [1, 2].map(|end| of_round.partition_point(|block| kind(block) < end));
        let texts: Vec<Text> = of_round.iter().map(|block| block.text).collect();
        let mut extra: Vec<Text> = of_round.iter().flat_map(|block| block.received.clone()).collect();
        let received = 0..extra.len();
        extra.extend(of_round.iter().flat_map(|block| block.losses.clone()));
        let first = all.len();
        all.extend(&texts);
        all.extend(&extra);
        Round {
            first,
            extra_first: first + texts.len(),
            unbounded: 0..unbounded,
            walked: unbounded..walked,
            turned: walked..texts.len(),
            losses: received.end..extra.len(),
            received,
            texts,
            extra,
        }
    }
}

/// A block of a text, and the same for what is launched once for each scope or head.
struct OfBlock {
    is_bounded: bool,
    text: Text,
    received: Vec<Text>,
    losses: Vec<Text>,
}

impl Prepared<'_> {
    /// The rows `rows` of the text, before which its cache holds `held` entries.
    fn of_block(
        &self,
        tokens: &LayerTokens<'_>,
        arena: &Arena,
        [queries, keys, values, out]: [u64; 4],
        rows: Range<usize>,
        held: usize,
    ) -> OfBlock {
        let Pieces { positions, alive, survivors, moved, priority, newest, .. } = self.pieces;
        let (pieces, shape, rule) = (&self.pieces, tokens.shape, self.rule.as_ref());
        let float = size_of::<f32>();
        let (q, kv) = (shape.heads.heads * shape.head_dim * float, shape.heads.kv_heads * shape.head_dim * float);
        let row = self.text.first + rows.start;
        let (pairs, groups) =
            (shape.rope.frequencies(self.text.is_long).len(), rule.map_or(1, |rule| rule.groups));
        let entries = &*self.text.entries;
        let is_last = rows.end == self.text.rows;
        let oldest = self.decided.positions[0].first().map_or(entries.seen, |position| *position as usize);
        let gone = self.decided.positions[0].len() + rows.start - held;
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
            frequency_factor: shape.rope.frequencies(self.text.is_long).factor(),
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
            ..self.cache.text(self.text.cache, self.text.cache.capacity)
        };
        // What entries have received lies with them.
        let of_scope = |piece: &Piece| Text { kept: arena.at(*piece), kept_stride: self.stride as i32, ..text };
        let of_scopes: Vec<Text> = pieces.received.iter().map(of_scope).collect();
        let text = match (rule, of_scopes.first()) {
            (Some(rule), Some(of_scope)) if rule.keeps_received => *of_scope,
            _ => text,
        };
        let of_scopes = of_scopes.into_iter().zip(&self.decided.received).filter(|_| rule.is_none());
        let of_head = |kv_head: usize| Text { kv_head: kv_head as i32, ..text };
        OfBlock {
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
        let mut decided = Decided::default();
        decided.received = (self.decided.received.iter().zip(&pieces.received))
            .map(|(before, piece)| lists(arena.values(*piece), before.len(), stride, held))
            .collect();
        let (Some(positions), Some(moved), Some(victims)) = (pieces.positions, pieces.moved, pieces.victims)
        else {
            // Unbounded: all stay but what the window has passed.
            let mut positions = std::mem::take(&mut self.decided.positions);
            positions[0].extend((entries.seen..entries.seen + rows).map(|position| position as u32));
            let passed = positions[0].len() - held;
            positions[0].drain(..passed);
            // Without a walk nothing moves what they have received.
            for sums in decided.received.iter_mut().flatten() {
                ensure!(
                    passed == 0,
                    "attention cannot be kept for forks in a layer with a window of {held} tokens"
                );
                sums.truncate(held);
            }
            entries.read_elsewhere(rows, Decided { positions, ..decided });
            return Ok(());
        };
        let groups = self.rule.as_ref().map_or(1, |rule| rule.groups);
        let counts: Vec<u32> = arena.values::<u32>(moved).chunks(2).map(|moved| moved[0]).collect();
        ensure!(
            counts.iter().all(|count| *count as usize == held),
            "the device kept {counts:?} entries of a cache, and {held} were expected; please report this"
        );
        decided.positions = lists(arena.values(positions), groups, stride, held);
        if let Some(priority) = pieces.priority {
            decided.priorities = lists(arena.values(priority), groups, stride, held);
        }
        if let Some(newest) = pieces.newest {
            let before = self.decided.positions[0].len() + rows;
            decided.newest = lists(arena.values(newest), groups, stride, before.min(stride));
        }
        if let Some(log) = self.text.log.as_deref_mut() {
            CacheEntries::log_victims(log, entries.seen, groups, &arena.values::<i32>(victims));
        }
        entries.read_elsewhere(rows, decided);
        Ok(())
    }
}

impl CacheAddresses {
    /// A text with this cache.
    fn text(self, cache: &GpuCache, capacity: usize) -> Text {
        let CacheAddresses { keys, values, raw_keys, coordinates, turns, all_keys, kept, totals } = self;
        let kind = cache.turned.as_ref().map_or(Positions::Absolute, |turned| turned.positions);
        Text {
            keys,
            values,
            raw_keys,
            coordinates,
            turns,
            all_keys,
            kept,
            totals,
            capacity: capacity as i32,
            all_capacity: cache.all_keys.as_ref().map_or(0, |(_, capacity)| *capacity as i32),
            kept_stride: capacity as i32,
            positions_kind: match kind {
                Positions::Absolute => 0,
                Positions::Slot => 1,
                Positions::Squeezed => 2,
            },
            ..Text::default()
        }
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
        pairs: shape.rope.frequencies(false).len() as i32,
        softcap: shape.softcap().unwrap_or(0.0),
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

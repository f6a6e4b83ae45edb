//! The kernels and products of a layer's attention, for all texts that are read at the same time.
//!
//! Each text has blocks of tokens, one after the other. A launch takes a block of every text, so that a GPU is busy although the
//! rows of a block depend on each other. A text's bits do not depend on the texts beside it: each text has its own products, and
//! texts that are scanned together have equally many threads.

use std::ops::Range;

use anyhow::Result;
use candle_core::DType;

use super::arena::Arena;
use super::device::{Buffer, Factor, Gpu, Kernel, Launch, Product};
use super::params::{Address, Layer, Text};

/// Bytes that the threads of a block share, without one byte for each column (`kernels/block.h`).
pub(in crate::lm) const SCRATCH: usize = 32 * (8 + 8 + 4);
/// Number of thread blocks that move the vectors of a head (`kernels/params.h`).
pub(in crate::lm) const REFILL_PARTS: usize = 8;
/// Threads of a block that copies a row of a table, and the largest number of threads of a block that takes all heads of a token.
pub(in crate::lm) const TOKEN_THREADS: usize = 1024;
/// Threads of a block that moves vectors of a head, and of one that takes a row of logits over the vocabulary.
pub(in crate::lm) const MOVE_THREADS: usize = 256;
/// Threads of a block that attends from tile to tile, and the rows that it takes (`kernels/attend.cu`).
const ATTENDING_THREADS: usize = 128;
const ATTENDING_ROWS: usize = 64;
/// Threads of a block that takes a row of attention.
const ROW_THREADS: usize = 128;

/// Read of some texts into one layer.
#[derive(Debug)]
pub(in crate::lm) struct Call {
    pub layer: Layer,
    /// The blocks of each text.
    pub texts: Vec<Vec<Block>>,
}

/// Block of a text: its own launch, and those that are done once for each scope or head.
#[derive(Clone, Debug)]
pub(in crate::lm) struct Block {
    pub is_bounded: bool,
    /// Whether weights of attention are made of all columns, for what attention from tile to tile does not tell.
    pub has_logits: bool,
    pub text: Text,
    pub received: Vec<Text>,
    /// For each policy that will cut the prompt and is scanned for that.
    pub cuts: Vec<Text>,
    pub losses: Vec<Text>,
}

/// Launches for one block of every text.
struct Round {
    texts: Vec<Text>,
    /// Index of the round's first text in the table of all rounds.
    first: usize,
    /// Texts from which nothing leaves in the block, by their indices, and those with weights of all columns: the last of these, and all others.
    unscanned: Range<usize>,
    with_logits: Range<usize>,
    /// Texts that are scanned together. They come after the others.
    scans: Vec<Range<usize>>,
    /// Indices of the repeated texts, which follow the others: one for each scope that attention is kept for, and one for each
    /// key-value head if lost attention is measured.
    received: Range<usize>,
    losses: Range<usize>,
    /// Indices of texts as policies see them that will cut the prompt, which are scanned together.
    cuts: Vec<Range<usize>>,
}

impl Round {
    /// Adds the texts of a round to the table `all`, ordered by what they need.
    fn new(mut blocks: Vec<Block>, all: &mut Vec<Text>) -> Round {
        // How many threads scan follows from the decisions, and some sums from the threads.
        let kind = |block: &Block| (block.is_bounded.then_some(block.text.groups), block.has_logits);
        blocks.sort_by_key(kind);
        let unscanned = 0..blocks.iter().filter(|block| !block.is_bounded).count();
        let with_logits = blocks.iter().filter(|block| !block.has_logits).count()..blocks.len();
        let (mut scans, mut end) = (Vec::new(), 0);
        for same in blocks.chunk_by(|a, b| kind(a) == kind(b)) {
            end += same.len();
            scans.extend(same[0].is_bounded.then(|| end - same.len()..end));
        }
        let mut texts: Vec<Text> = blocks.iter().map(|block| block.text).collect();
        texts.extend(blocks.iter().flat_map(|block| &block.received));
        let received = blocks.len()..texts.len();
        texts.extend(blocks.iter().flat_map(|block| &block.losses));
        let (first, losses) = (all.len(), received.end..texts.len());
        let mut of_cuts: Vec<Text> = blocks.iter().flat_map(|block| block.cuts.iter().copied()).collect();
        of_cuts.sort_by_key(|text| text.groups);
        let mut cuts = Vec::new();
        for same in of_cuts.chunk_by(|a, b| a.groups == b.groups) {
            cuts.push(texts.len()..texts.len() + same.len());
            texts.extend(same);
        }
        all.extend(&texts);
        Round { texts, first, unscanned, with_logits, scans, received, losses, cuts }
    }
}

/// Launches everything that calls of one layer need. `table` is memory for the table of texts.
///
/// # Errors
///
/// Errors of the device.
pub(in crate::lm) fn launch(gpu: &dyn Gpu, calls: Vec<Call>, table: &mut Option<Buffer>) -> Result<()> {
    let mut calls = calls;
    // Layers of a model may differ in how they rotate.
    while let Some(layer) = calls.first().map(|call| call.layer) {
        let (same, others) = calls.into_iter().partition::<Vec<_>, _>(|call| call.layer == layer);
        calls = others;
        let texts: Vec<Vec<Block>> = same.into_iter().flat_map(|call| call.texts).collect();
        let rounds = texts.iter().map(Vec::len).max().unwrap_or(0);
        let mut all = Vec::new();
        let blocks = |round: usize| texts.iter().filter_map(|blocks| blocks.get(round).cloned()).collect();
        let rounds: Vec<Round> = (0..rounds).map(|round| Round::new(blocks(round), &mut all)).collect();
        let mut arena = Arena::default();
        let all = arena.put(&all);
        arena.place(gpu, table.take())?;
        for round in &rounds {
            launch_round(gpu, layer, round, arena.at(all))?;
        }
        *table = arena.memory.take();
    }
    Ok(())
}

fn launch_round(gpu: &dyn Gpu, layer: Layer, round: &Round, table: Address) -> Result<()> {
    let [heads, kv_heads, dim] = [layer.heads, layer.kv_heads, layer.dim].map(|count| count as usize);
    let per_kv = heads / kv_heads;
    let at = |index: usize| table + (index * size_of::<Text>()) as u64;
    let own = &round.texts[..round.received.start];
    let rows_of = |texts: &[Text]| texts.iter().map(|text| text.rows as usize).max().unwrap_or(0);
    let launch = |kernel, x: usize, texts: (usize, usize), threads, shared_bytes| {
        let threads = gpu.threads(kernel, threads);
        gpu.launch(Launch { kernel, grid: [x, texts.1], threads, shared_bytes, layer, texts: at(texts.0) })
    };
    let in_table = |texts: &Range<usize>| (round.first + texts.start, texts.len());
    let of_token = (heads * dim).next_multiple_of(32).min(TOKEN_THREADS);
    launch(Kernel::Place, rows_of(own), (round.first, own.len()), of_token, 0)?;
    if !round.unscanned.is_empty() {
        let (kernel, shared_bytes) = Kernel::attending(dim);
        let parts = (per_kv * rows_of(&own[round.unscanned.clone()])).div_ceil(ATTENDING_ROWS);
        let (grid, texts) = ([kv_heads * parts, round.unscanned.len()], at(round.first));
        gpu.launch(Launch { kernel, grid, threads: ATTENDING_THREADS, shared_bytes, layer, texts })?;
    }
    let with_logits = &own[round.with_logits.clone()];
    for text in with_logits {
        let (rows, capacity, stride) = (text.rows as usize, text.capacity as usize, text.stride as usize);
        let a = Factor { address: text.queries, stride: dim, batch: per_kv * rows * dim };
        let b = Factor { address: text.keys, stride: dim, batch: capacity * dim };
        let c = Factor { address: text.logits, stride, batch: per_kv * rows * stride };
        let (m, n, k) = (per_kv * rows, text.held as usize + rows, dim);
        gpu.product(Product { m, n, k, a, b, b_is_transposed: true, c, batches: kv_heads, factors: DType::F32 })?;
    }
    if !with_logits.is_empty() {
        let blocks = heads * rows_of(with_logits);
        launch(Kernel::Softmax, blocks, in_table(&round.with_logits), ROW_THREADS, SCRATCH)?;
    }
    for scan in round.scans.iter().chain(&round.cuts) {
        let of_scan = &round.texts[scan.clone()];
        let groups = of_scan[0].groups as usize;
        let columns = |text: &Text| {
            if text.alive_is_shared == 1 { (text.stride as usize).next_multiple_of(8) } else { 0 }
        };
        let bytes = of_scan.iter().map(columns).max().unwrap_or(0);
        launch(Kernel::Scan, groups, in_table(scan), (32 * heads / groups).clamp(128, 1024), SCRATCH + bytes)?;
    }
    if !round.received.is_empty() {
        let of_round = &round.texts[round.received.clone()];
        let columns = of_round.iter().map(|text| text.held as usize + text.rows as usize).max().unwrap_or(0);
        let lists = of_round.iter().map(|text| text.kept_lists as usize).max().unwrap_or(0);
        let blocks = columns.div_ceil(gpu.threads(Kernel::Received, ROW_THREADS)) * lists;
        launch(Kernel::Received, blocks, in_table(&round.received), ROW_THREADS, 0)?;
    }
    let scanned = round.unscanned.end..own.len();
    for text in &own[scanned.clone()] {
        let (rows, capacity, stride) = (text.rows as usize, text.capacity as usize, text.stride as usize);
        let a = Factor { address: text.logits, stride, batch: per_kv * rows * stride };
        let b = Factor { address: text.values, stride: dim, batch: capacity * dim };
        let c = Factor { address: text.mixed, stride: dim, batch: per_kv * rows * dim };
        let (m, n, k) = (per_kv * rows, dim, text.held as usize + rows);
        gpu.product(Product { m, n, k, a, b, b_is_transposed: false, c, batches: kv_heads, factors: DType::F32 })?;
    }
    if !scanned.is_empty() {
        launch(Kernel::Outputs, rows_of(&own[scanned.clone()]), in_table(&scanned), of_token, 0)?;
    }
    for index in round.losses.clone() {
        let text = &round.texts[index];
        let (rows, all_stride) = (text.rows as usize, text.all_stride as usize);
        let (kv_head, seen) = (text.kv_head as usize, text.seen as usize + rows);
        let at = |table: Address, first: usize| table + (first * dim * size_of::<f32>()) as u64;
        let queries = at(text.queries, kv_head * per_kv * rows);
        let keys = at(text.all_keys, kv_head * text.all_capacity as usize);
        let [a, b] = [queries, keys].map(|address| Factor { address, stride: dim, batch: 0 });
        let c = Factor { address: text.all_logits, stride: all_stride, batch: 0 };
        let (m, n, k, factors) = (per_kv * rows, seen, dim, DType::F32);
        gpu.product(Product { m, n, k, a, b, b_is_transposed: true, c, batches: 1, factors })?;
        launch(Kernel::Loss, rows, (round.first + index, 1), ROW_THREADS, SCRATCH)?;
    }
    if !scanned.is_empty() {
        let groups = own[scanned.clone()].iter().map(|text| text.groups as usize).max().unwrap_or(1);
        launch(Kernel::Refill, kv_heads * REFILL_PARTS + groups, in_table(&scanned), MOVE_THREADS, 0)?;
    }
    Ok(())
}

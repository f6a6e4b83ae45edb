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
use crate::eviction::Decisions;

/// Bytes that the threads of a block share, without one byte for each column (`kernels/block.h`).
pub(in crate::lm) const SCRATCH: usize = 32 * (8 + 8 + 4);
/// Number of thread blocks that move the vectors of a head (`kernels/params.h`).
pub(in crate::lm) const REFILL_PARTS: usize = 8;
/// Threads of a block that copies a row of a table, and the largest number of threads of a block that takes all heads of a token.
pub(in crate::lm) const TOKEN_THREADS: usize = 1024;
/// Threads of a block that moves vectors of a head, and of one that takes a row of logits over the vocabulary.
pub(in crate::lm) const MOVE_THREADS: usize = 256;
/// Threads of a block that takes a row of attention.
const ROW_THREADS: usize = 128;
/// Candidates of a row, each of two numbers (`kernels/params.h`).
pub(in crate::lm) const CANDIDATES: usize = 64;
/// Columns, and pairs of a row and a head, of a tile that `transpose` turns.
const TILE: usize = 32;
/// Bytes of shared memory that every device has for a block.
const SHARED_BYTES: usize = 48 * 1024;

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
    /// How it is decided what leaves; `None` where nothing does, or only the order decides.
    pub decisions: Option<Decisions>,
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
    /// Texts that are scanned together, by their indices. Others come before them, first those whose first entries need not move.
    scans: Vec<(Decisions, Range<usize>)>,
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
        let kind = |block: &Block| Some((block.decisions?, block.text.groups));
        blocks.sort_by_key(|block| (kind(block), block.text.passed > 0));
        let (mut scans, mut end) = (Vec::new(), 0);
        for same in blocks.chunk_by(|a, b| kind(a) == kind(b)) {
            end += same.len();
            scans.extend(same[0].decisions.map(|decisions| (decisions, end - same.len()..end)));
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
        Round { texts, first, scans, received, losses, cuts }
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

fn rank_bytes(stride: usize) -> usize {
    SCRATCH + size_of::<f32>() * (CANDIDATES + stride)
}

fn walk_bytes(stride: usize, members: usize, rows: usize) -> usize {
    SCRATCH + stride.next_multiple_of(8) + size_of::<f32>() * (rows + 1) * members
}

/// Whether blocks of `rows` rows can be decided by their newest rows: what a thread block needs for that is in shared memory.
pub(in crate::lm) fn fits_walk(stride: usize, members: usize, rows: usize) -> bool {
    rank_bytes(stride).max(walk_bytes(stride, members, rows)) <= SHARED_BYTES
}

fn launch_round(gpu: &dyn Gpu, layer: Layer, round: &Round, table: Address) -> Result<()> {
    let [heads, kv_heads, dim] = [layer.heads, layer.kv_heads, layer.dim].map(|count| count as usize);
    let per_kv = heads / kv_heads;
    let at = |index: usize| table + (index * size_of::<Text>()) as u64;
    let own = &round.texts[..round.received.start];
    let rows = own.iter().map(|text| text.rows as usize).max().unwrap_or(0);
    let launch = |kernel, x: usize, texts: (usize, usize), threads, shared_bytes| {
        let threads = gpu.threads(kernel, threads);
        gpu.launch(Launch { kernel, grid: [x, texts.1], threads, shared_bytes, layer, texts: at(texts.0) })
    };
    let all = (round.first, own.len());
    let of_token = (heads * dim).next_multiple_of(32).min(TOKEN_THREADS);
    launch(Kernel::Place, rows, all, of_token, 0)?;
    for text in own {
        let (rows, capacity, stride) = (text.rows as usize, text.capacity as usize, text.stride as usize);
        let a = Factor { address: text.queries, stride: dim, batch: per_kv * rows * dim };
        let b = Factor { address: text.keys, stride: dim, batch: capacity * dim };
        let c = Factor { address: text.logits, stride, batch: per_kv * rows * stride };
        let (m, n, k) = (per_kv * rows, text.held as usize + rows, dim);
        gpu.product(Product { m, n, k, a, b, b_is_transposed: true, c, batches: kv_heads, factors: DType::F32 })?;
    }
    launch(Kernel::Softmax, heads * rows, all, ROW_THREADS, SCRATCH)?;
    let cuts = round.cuts.iter().map(|cut| (Decisions::ByRows, cut.clone()));
    for (decisions, scan) in round.scans.iter().cloned().chain(cuts) {
        let of_scan = &round.texts[scan.clone()];
        let most = |number: &dyn Fn(&Text) -> usize| of_scan.iter().map(number).max().unwrap_or(0);
        let groups = of_scan[0].groups as usize;
        let members = heads / groups;
        let texts = (round.first + scan.start, scan.len());
        let (threads, rows) = ((32 * members).clamp(128, 1024), most(&|text| text.rows as usize));
        if decisions == Decisions::ByNewestRow {
            // In a block of one row nothing has left.
            if rows > 1 {
                let tiles = |text: &Text| {
                    let columns = text.held as usize + text.rows as usize;
                    columns.div_ceil(TILE) * (text.rows as usize * members).div_ceil(TILE)
                };
                launch(Kernel::Transpose, groups * most(&tiles), texts, MOVE_THREADS, 0)?;
            }
            let bytes = |text: &Text| walk_bytes(text.stride as usize, members, text.rows as usize);
            launch(
                Kernel::Rank,
                groups * rows,
                texts,
                ROW_THREADS,
                most(&|text| rank_bytes(text.stride as usize)),
            )?;
            launch(Kernel::Walk, groups, texts, threads, most(&bytes))?;
        } else {
            let columns =
                |text: &Text| if text.alive == 0 { (text.stride as usize).next_multiple_of(8) } else { 0 };
            launch(Kernel::Scan, groups, texts, threads, SCRATCH + most(&columns))?;
        }
        if decisions != Decisions::ByRows && (rows > 1 || of_scan.iter().any(|text| text.window > 0)) {
            launch(Kernel::Exclude, heads * rows, texts, 32, 0)?;
        }
    }
    if !round.received.is_empty() {
        let of_round = &round.texts[round.received.clone()];
        let columns = of_round.iter().map(|text| text.held as usize + text.rows as usize).max().unwrap_or(0);
        let lists = of_round.iter().map(|text| text.kept_lists as usize).max().unwrap_or(0);
        let blocks = columns.div_ceil(gpu.threads(Kernel::Received, ROW_THREADS)) * lists;
        let texts = (round.first + round.received.start, round.received.len());
        launch(Kernel::Received, blocks, texts, ROW_THREADS, 0)?;
    }
    for text in own {
        let (rows, capacity, stride) = (text.rows as usize, text.capacity as usize, text.stride as usize);
        let a = Factor { address: text.logits, stride, batch: per_kv * rows * stride };
        let b = Factor { address: text.values, stride: dim, batch: capacity * dim };
        let c = Factor { address: text.mixed, stride: dim, batch: per_kv * rows * dim };
        let (m, n, k) = (per_kv * rows, dim, text.held as usize + rows);
        gpu.product(Product { m, n, k, a, b, b_is_transposed: false, c, batches: kv_heads, factors: DType::F32 })?;
    }
    launch(Kernel::Outputs, rows, all, of_token, 0)?;
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
    let scanned = round.scans.first().map_or(own.len(), |(_, first)| first.start);
    if let Some(first) = own.iter().position(|text| text.passed > 0).or((scanned < own.len()).then_some(scanned)) {
        let refilled = &own[first..];
        let groups = refilled.iter().map(|text| text.groups as usize).max().unwrap_or(1);
        let texts = (round.first + first, refilled.len());
        launch(Kernel::Refill, kv_heads * REFILL_PARTS + groups, texts, MOVE_THREADS, 0)?;
    }
    Ok(())
}

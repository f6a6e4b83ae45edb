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
/// Threads of a block that attends from tile to tile, and the rows that it takes (`kernels/attend.cu`).
const ATTENDING_THREADS: usize = 128;
const ATTENDING_ROWS: usize = 64;
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
    /// Whether `attend` computes its attention, and whether weights of all columns are made, for this or for what `attend` does not tell.
    pub attends: bool,
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
    /// Texts of `attend`, by their indices, and those with weights of all columns: the last of these, and all others.
    attended: Range<usize>,
    with_logits: Range<usize>,
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
        blocks.sort_by_key(|block| (!block.attends, block.has_logits, kind(block), block.text.passed > 0));
        let attended = 0..blocks.iter().filter(|block| block.attends).count();
        let with_logits = blocks.iter().filter(|block| !block.has_logits).count()..blocks.len();
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
        Round { texts, first, attended, with_logits, scans, received, losses, cuts }
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
    let rows_of = |texts: &[Text]| texts.iter().map(|text| text.rows as usize).max().unwrap_or(0);
    let launch = |kernel, x: usize, texts: (usize, usize), threads, shared_bytes| {
        let threads = gpu.threads(kernel, threads);
        gpu.launch(Launch { kernel, grid: [x, texts.1], threads, shared_bytes, layer, texts: at(texts.0) })
    };
    let in_table = |texts: &Range<usize>| (round.first + texts.start, texts.len());
    let of_token = (heads * dim).next_multiple_of(32).min(TOKEN_THREADS);
    launch(Kernel::Place, rows_of(own), (round.first, own.len()), of_token, 0)?;
    if let Some((kernel, shared_bytes)) = Kernel::attending(dim).filter(|_| !round.attended.is_empty()) {
        let parts = (per_kv * rows_of(&own[round.attended.clone()])).div_ceil(ATTENDING_ROWS);
        let (grid, texts) = ([kv_heads * parts, round.attended.len()], at(round.first));
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
    let cuts = round.cuts.iter().map(|cut| (Decisions::ByRows, cut.clone()));
    for (decisions, scan) in round.scans.iter().cloned().chain(cuts) {
        let of_scan = &round.texts[scan.clone()];
        let most = |number: &dyn Fn(&Text) -> usize| of_scan.iter().map(number).max().unwrap_or(0);
        let groups = of_scan[0].groups as usize;
        let members = heads / groups;
        let texts = in_table(&scan);
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
        launch(Kernel::Received, blocks, in_table(&round.received), ROW_THREADS, 0)?;
    }
    let by_products = round.attended.end..own.len();
    for text in &own[by_products.clone()] {
        let (rows, capacity, stride) = (text.rows as usize, text.capacity as usize, text.stride as usize);
        let a = Factor { address: text.logits, stride, batch: per_kv * rows * stride };
        let b = Factor { address: text.values, stride: dim, batch: capacity * dim };
        let c = Factor { address: text.mixed, stride: dim, batch: per_kv * rows * dim };
        let (m, n, k) = (per_kv * rows, dim, text.held as usize + rows);
        gpu.product(Product { m, n, k, a, b, b_is_transposed: false, c, batches: kv_heads, factors: DType::F32 })?;
    }
    if !by_products.is_empty() {
        launch(Kernel::Outputs, rows_of(&own[by_products.clone()]), in_table(&by_products), of_token, 0)?;
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
    let scanned = round.scans.first().map_or(own.len(), |(_, first)| first.start);
    if let Some(first) = own.iter().position(|text| text.passed > 0).or((scanned < own.len()).then_some(scanned)) {
        let refilled = &own[first..];
        let groups = refilled.iter().map(|text| text.groups as usize).max().unwrap_or(1);
        let texts = in_table(&(first..own.len()));
        launch(Kernel::Refill, kv_heads * REFILL_PARTS + groups, texts, MOVE_THREADS, 0)?;
    }
    Ok(())
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
    use super::super::emulated::{EmulatedGpu, Emulation};
    use super::*;

    /// Attention of a block of `rows` tokens behind `held` entries, of which columns from `ends` to `gap_end` are not there.
    struct Case {
        layer: Layer,
        rows: usize,
        held: usize,
        newest_seen: usize,
        ends: Vec<u32>,
        gap_end: usize,
        /// Digits of values that are kept.
        value_bits: u32,
    }

    impl Case {
        /// Numbers of vectors whose lengths differ by a factor of 30.
        fn vectors(rng: &mut fastrand::Rng, count: usize, dim: usize) -> Vec<f32> {
            let mut numbers = Vec::new();
            for _ in 0..count {
                let length = (3.4 * rng.f32() - 1.7).exp();
                numbers.extend((0..dim).map(|_| (2.0 * rng.f32() - 1.0) * length));
            }
            numbers
        }

        /// The largest error of the kernel's outputs and that of sums in f32, one number after the other, in parts of the largest output.
        fn errors(&self, gpu: &EmulatedGpu, seed: u64) -> [f64; 2] {
            let &Case { layer, rows, held, newest_seen, gap_end, .. } = self;
            let [heads, kv_heads, dim] = [layer.heads, layer.kv_heads, layer.dim].map(|x| x as usize);
            let (per_kv, columns) = (heads / kv_heads, held + rows);
            let mut rng = fastrand::Rng::with_seed(seed);
            let queries = Case::vectors(&mut rng, heads * rows, dim);
            let keys = Case::vectors(&mut rng, kv_heads * columns, dim);
            let mask = u32::MAX << (24 - self.value_bits);
            let values = Case::vectors(&mut rng, kv_heads * columns, dim);
            let values: Vec<f32> = values.into_iter().map(|x| f32::from_bits(x.to_bits() & mask)).collect();
            let out = vec![f32::NAN; rows * heads * dim];
            let text = Text {
                queries: queries.as_ptr() as Address,
                keys: keys.as_ptr() as Address,
                values: values.as_ptr() as Address,
                out: out.as_ptr() as Address,
                ends: if self.ends.is_empty() { 0 } else { self.ends.as_ptr() as Address },
                rows: rows as i32,
                held: held as i32,
                seen: held as i32,
                capacity: columns as i32,
                newest_seen: newest_seen as i32,
                gap_end: gap_end as i32,
                ..Text::default()
            };
            let (kernel, shared_bytes) = Kernel::attending(dim).unwrap();
            let grid = [kv_heads * (per_kv * rows).div_ceil(ATTENDING_ROWS), 1];
            let texts = (&raw const text) as Address;
            gpu.launch(Launch { kernel, grid, threads: ATTENDING_THREADS, shared_bytes, layer, texts }).unwrap();

            let (mut largest, mut of_kernel, mut of_f32) = (0.0_f64, 0.0_f64, 0.0_f64);
            for head in 0..heads {
                let kv_head = head / per_kv;
                let end = self.ends.get(kv_head).map_or(gap_end, |end| *end as usize);
                for row in 0..rows {
                    let first = if newest_seen == 0 { 0 } else { (held + row + 1).saturating_sub(newest_seen) };
                    let seen = (first..=held + row).filter(|c| *c < end || *c >= gap_end);
                    let seen: Vec<usize> = seen.collect();
                    let of = |all: &[f32], at: usize| all[at * dim..][..dim].to_vec();
                    let query = of(&queries, head * rows + row);
                    let logits = |rounded: fn(f64) -> f64| -> Vec<f64> {
                        let logit = |c: &usize| {
                            let key = of(&keys, kv_head * columns + c);
                            query
                                .iter()
                                .zip(&key)
                                .fold(0.0, |sum, (a, b)| rounded(sum + f64::from(*a) * f64::from(*b)))
                        };
                        let cap = f64::from(layer.softcap);
                        let capped = |x: f64| if cap > 0.0 { rounded(cap * (x / cap).tanh()) } else { x };
                        seen.iter().map(logit).map(capped).collect()
                    };
                    let output = |rounded: fn(f64) -> f64| -> Vec<f64> {
                        let logits = logits(rounded);
                        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                        let weights: Vec<f64> = logits.iter().map(|x| rounded((x - most).exp())).collect();
                        let sum = weights.iter().fold(0.0, |sum, x| rounded(sum + x));
                        let mut output = vec![0.0; dim];
                        for (c, weight) in seen.iter().zip(&weights) {
                            for (x, value) in output.iter_mut().zip(of(&values, kv_head * columns + c)) {
                                *x = rounded(*x + weight * f64::from(value));
                            }
                        }
                        output.into_iter().map(|x| rounded(x / sum)).collect()
                    };
                    let (exact, in_f32) = (output(|x| x), output(|x| f64::from(x as f32)));
                    let got = &out[(row * heads + head) * dim..][..dim];
                    for ((exact, in_f32), got) in exact.iter().zip(&in_f32).zip(got) {
                        assert!(got.is_finite());
                        largest = largest.max(exact.abs());
                        of_kernel = of_kernel.max((f64::from(*got) - exact).abs());
                        of_f32 = of_f32.max((in_f32 - exact).abs());
                    }
                }
            }
            [of_kernel / largest, of_f32 / largest]
        }
    }

    /// Beside the definition in f64, with tensor cores that cut off what they add: no further from it than sums in f32.
    #[test]
    fn attention_on_tensor_cores_has_the_error_of_f32() {
        let layer = |heads, dim, softcap| Layer { heads, kv_heads: 2, dim, pairs: 0, softcap };
        let case = |layer, rows, held, value_bits| Case {
            layer,
            rows,
            held,
            newest_seen: 0,
            ends: Vec::new(),
            gap_end: 0,
            value_bits,
        };
        let cases = [
            case(layer(4, 64, 0.0), 70, 50, 24),
            case(layer(6, 64, 0.0), 1, 200, 24),
            case(layer(2, 80, 0.0), 40, 100, 8),
            case(layer(4, 96, 8.0), 20, 90, 24),
            case(layer(4, 128, 0.0), 50, 90, 8),
            case(layer(2, 256, 0.0), 20, 60, 11),
            Case { newest_seen: 40, ..case(layer(4, 64, 0.0), 90, 30, 24) },
            Case { ends: vec![30, 70], gap_end: 80, ..case(layer(4, 64, 0.0), 20, 90, 24) },
        ];
        let gpu = EmulatedGpu::new(&Emulation::default()).unwrap();
        let (mut of_kernel, mut of_f32) = (0.0, 0.0);
        for (seed, case) in cases.iter().enumerate() {
            let errors = case.errors(&gpu, seed as u64);
            println!("{} dimensions: {:.1e}, in f32 {:.1e}", case.layer.dim, errors[0], errors[1]);
            assert!(errors[0] < 2.0 * errors[1], "case {seed}: {errors:?}");
            of_kernel += errors[0];
            of_f32 += errors[1];
        }
        assert!(of_kernel <= of_f32, "{of_kernel} {of_f32}");
    }
}

//! Decisions by the newest row, taken by the emulated kernels alone, against the definition in f64.

use fastrand::Rng;

use super::device::{Gpu, Kernel, Launch};
use super::emulated::{EmulatedGpu, Emulation, WarpOrder};
use super::launch::{CANDIDATES, SCRATCH};
use super::params::{Address, Layer, Text};

const DIM: usize = 4;

/// Block of a cache's rows, and what the kernels make of it.
struct Case {
    heads: usize,
    groups: usize,
    held: usize,
    rows: usize,
    stride: usize,
    seen: usize,
    limit: usize,
    keep_first: usize,
    keep_recent: usize,
    /// (heads, rows, dim) and (heads, stride, dim)
    queries: Vec<f32>,
    keys: Vec<f32>,
    /// (groups, stride)
    positions: Vec<u32>,
    /// (heads, rows, stride)
    logits: Vec<f32>,
    /// Attention, not divided by its sum, (heads, rows, stride) and 1 / its sum (heads, rows).
    weights: Vec<f32>,
    scale: Vec<f32>,
    /// (rows, groups)
    victims: Vec<i32>,
}

fn address<T>(list: &mut [T]) -> Address {
    list.as_mut_ptr() as Address
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut rng = Rng::with_seed(seed);
        let groups = rng.usize(1..4);
        let heads = if seed.is_multiple_of(8) { 32 } else { groups * rng.usize(1..9) };
        let groups = if heads == 32 { 1 } else { groups };
        let (held, rows) = (rng.usize(5..200), rng.usize(1..129));
        let stride = (held + rows).next_multiple_of(16);
        let mut positions = Vec::new();
        for _ in 0..groups {
            // In no order.
            let mut of_entries: Vec<u32> = (0..1000).collect();
            rng.shuffle(&mut of_entries);
            positions.extend(of_entries.drain(..held).chain(vec![u32::MAX; stride - held]));
        }
        let (keep_first, keep_recent) = [(0, 0), (20, 0), (0, held / 2)][rng.usize(..3)];
        let most_first = positions.chunks(stride).map(|all| all.iter().filter(|at| **at < 20).count()).max();
        let limit = (held + rng.usize(..3)).max(most_first.unwrap_or(0) + 1 + keep_recent);
        // Logits up to 100, or all alike; where keys are whole numbers, some entries are alike.
        let sharpness = [0.0, 0.3, 1.0, 4.0, 25.0][rng.usize(..5)];
        let is_whole = rng.bool();
        let mut vectors = |count: usize, sharpness: f32| -> Vec<f32> {
            let number = |rng: &mut Rng| rng.f32() * 2.0 - 1.0;
            let own = |rng: &mut Rng| if is_whole { (number(rng) * 1.5).round() } else { number(rng) };
            (0..count * DIM).map(|_| own(&mut rng) * sharpness).collect()
        };
        let (queries, keys) = (vectors(heads * rows, sharpness), vectors(heads * stride, 1.0));
        let mut logits = vec![0.0; heads * rows * stride];
        for (at, logit) in logits.iter_mut().enumerate() {
            let (head, row, column) = (at / (rows * stride), at / stride % rows, at % stride);
            let [query, key] = [(&queries, head * rows + row), (&keys, head * stride + column)]
                .map(|(of, at)| &of[at * DIM..][..DIM]);
            *logit = query.iter().zip(key).fold(0.0, |sum, (query, key)| sum + query * key);
        }
        let (weights, scale) = (logits.clone(), vec![0.0; heads * rows]);
        let victims = vec![-9; rows * groups];
        Case {
            heads,
            groups,
            held,
            rows,
            stride,
            seen: 1000,
            limit,
            keep_first,
            keep_recent,
            queries,
            keys,
            positions,
            logits,
            weights,
            scale,
            victims,
        }
    }

    fn run(&mut self, emulation: &Emulation) {
        let gpu = EmulatedGpu::new(emulation).unwrap();
        let Case { heads, groups, rows, stride, .. } = *self;
        let (mut max, mut by_column) = (vec![f32::NAN; heads * rows], vec![f32::NAN; heads * rows * stride]);
        let mut candidates = vec![u64::MAX; groups * rows * CANDIDATES];
        let mut gone_from = vec![7_u8; groups * stride];
        let (mut moves, mut moved) = (vec![0_u32; groups * 2 * rows], vec![0_u32; groups * 2]);
        let text = Text {
            keys: address(&mut self.keys),
            queries: address(&mut self.queries),
            logits: address(&mut self.weights),
            max: address(&mut max),
            scale: address(&mut self.scale),
            positions: address(&mut self.positions),
            gone_from: address(&mut gone_from),
            by_column: address(&mut by_column),
            candidates: address(&mut candidates),
            moves: address(&mut moves),
            moved: address(&mut moved),
            victims: address(&mut self.victims),
            rows: rows as i32,
            held: self.held as i32,
            stride: stride as i32,
            seen: self.seen as i32,
            capacity: stride as i32,
            limit: self.limit as i32,
            burst: 1,
            keep_first: self.keep_first as i32,
            keep_recent: self.keep_recent as i32,
            groups: groups as i32,
            moves_stride: rows as i32,
            ..Text::default()
        };
        let layer = Layer { heads: heads as i32, kv_heads: heads as i32, dim: DIM as i32, pairs: 0, softcap: 0.0 };
        let pairs = rows * heads / groups;
        let tiles = (self.held + rows).div_ceil(32) * pairs.div_ceil(32);
        let shared = SCRATCH + 4 * (CANDIDATES + stride + pairs + heads);
        for (kernel, blocks, threads) in [
            (Kernel::Softmax, heads * rows, 128),
            (Kernel::Transpose, groups * tiles, 256),
            (Kernel::Rank, groups * rows, 128),
            (Kernel::Walk, groups, 32 * heads),
            (Kernel::Exclude, heads * rows, 32),
        ] {
            let (threads, texts) = (gpu.threads(kernel, threads), &raw const text as Address);
            gpu.launch(Launch { kernel, grid: [blocks, 1], threads, shared_bytes: shared, layer, texts }).unwrap();
        }
        let left = self.victims.iter().filter(|victim| **victim >= 0).count();
        assert_eq!(moved.iter().step_by(2).sum::<u32>() as usize, groups * (self.held + rows) - left);
    }

    /// Checks that of every row the entry with the lowest score left, up to roundings, and of equal ones the oldest, and that attention
    /// is that to the entries in the cache. Returns how many left.
    fn check(&self) -> usize {
        let Case { heads, groups, held, rows, stride, .. } = *self;
        let members = heads / groups;
        let mut decided = 0;
        for group in 0..groups {
            let positions = &self.positions[group * stride..][..stride];
            let mut alive = vec![true; stride];
            for row in 0..rows {
                let there: Vec<usize> = (0..=held + row).filter(|column| alive[*column]).collect();
                let mut scores = vec![0.0; stride];
                for head in group * members..(group + 1) * members {
                    let at = head * rows + row;
                    let logit = |column: usize| f64::from(self.logits[at * stride + column]);
                    let most = there.iter().map(|column| logit(*column)).fold(f64::MIN, f64::max);
                    let mut shares = vec![0.0; stride];
                    there.iter().for_each(|column| shares[*column] = (logit(*column) - most).exp());
                    let sum: f64 = shares.iter().sum();
                    for (column, share) in shares.into_iter().map(|share| share / sum).enumerate() {
                        scores[column] += share;
                        let own = f64::from(self.weights[at * stride + column] * self.scale[at]);
                        assert!(
                            (own - share).abs() <= 1e-5 * share + 1e-30,
                            "row {row}, column {column}: {own}, {share}"
                        );
                    }
                }
                let victim = self.victims[row * groups + group];
                assert_eq!(victim >= 0, there.len() > self.limit, "row {row}");
                if victim < 0 {
                    continue;
                }
                let is_free = |column: &&usize| {
                    let position = positions[**column] as usize;
                    position >= self.keep_first && self.seen + row - position >= self.keep_recent
                };
                let free: Vec<usize> = there.iter().filter(is_free).copied().collect();
                let left = *free.iter().find(|column| positions[**column] == victim as u32).unwrap();
                let lowest = free.iter().map(|column| scores[*column]).fold(f64::MAX, f64::min);
                assert!(scores[left] <= lowest * (1.0 + 3e-6) + 1e-35, "row {row}: {} and {lowest}", scores[left]);
                let logits = |column: usize| {
                    let of_group = group * members * rows..(group + 1) * members * rows;
                    of_group
                        .filter(|at| at % rows == row)
                        .map(|at| self.logits[at * stride + column])
                        .collect::<Vec<_>>()
                };
                let alike = free.iter().filter(|column| logits(**column) == logits(left));
                assert_eq!(alike.map(|column| positions[*column]).min(), Some(victim as u32), "row {row}");
                alive[left] = false;
                decided += 1;
            }
        }
        decided
    }
}

#[test]
fn the_newest_row_evicts_what_it_attends_to_least() {
    let emulation = |flags: &[&str], order: WarpOrder, threads: usize| {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Emulation { flags, order, threads, ..Emulation::default() }
    };
    let settings = [
        emulation(&[], WarpOrder::Ascending, 64),
        emulation(&[], WarpOrder::Descending, 1024),
        emulation(&[], WarpOrder::Random(3), 256),
        // A list that often proves nothing, and one that never does.
        emulation(&["-DCANDIDATES=3"], WarpOrder::Random(4), 128),
        emulation(&["-DCANDIDATES=1"], WarpOrder::Descending, 64),
        // Rows that are computed from what is left, as soon as anything has left, and always by their softmax.
        emulation(&["-DSMALLEST_SHARE=1.0f"], WarpOrder::Ascending, 256),
        emulation(&["-DSMALLEST_SHARE=2.0f", "-DSMALLEST_SUM=1e30f"], WarpOrder::Random(5), 64),
    ];
    for (setting, emulation) in settings.iter().enumerate() {
        let mut decided = 0;
        for seed in 0..24 {
            let mut case = Case::new(seed + 100 * setting as u64);
            case.run(emulation);
            decided += case.check();
        }
        assert!(decided > 1000, "{decided}");
    }
}

//! What formulas say of keys, values and queries as wholes: expected attention, lag scores, redundancy.

use super::loops::Entries;
use crate::eviction::block::MeanRotation;
use crate::eviction::score::rank;
use crate::vector;

/// Queries at the beginning of a text that are like no others (arXiv 2510.00636; 4 in NVIDIA/kvpress, too).
const UNLIKE_OTHERS: usize = 4;
/// A key is one of several alike where a later one has a larger cosine with it (arXiv 2505.24133, Zefan-Cai/R-KV).
const ALIKE: f32 = 0.5;

/// The queries of a head before their rotation: their number, sum, and sum of products.
#[derive(Clone, Debug, Default)]
pub(super) struct QueryStatistics {
    count: usize,
    /// (dim)
    sum: Vec<f64>,
    /// (dim, dim)
    products: Vec<f64>,
}

impl MeanRotation {
    fn apply(&self, x: &mut [f64]) {
        let pairs = self.cos.len();
        for j in 0..pairs {
            let (a, b) = (x[j], x[j + pairs]);
            x[j] = a * self.cos[j] - b * self.sin[j];
            x[j + pairs] = b * self.cos[j] + a * self.sin[j];
        }
    }
}

impl QueryStatistics {
    /// Adds the query of a token, times the scale of logits.
    pub fn add(&mut self, position: usize, query: &[f32], scale: f32) {
        if position < UNLIKE_OTHERS {
            return;
        }
        let query: Vec<f64> = query.iter().map(|x| f64::from(*x) * f64::from(scale)).collect();
        self.count += 1;
        self.sum.resize(query.len(), 0.0);
        self.products.resize(query.len() * query.len(), 0.0);
        vector::best(AddProducts { onto: &mut self.products, query: &query });
        self.sum.iter_mut().zip(&query).for_each(|(sum, x)| *sum += x);
    }

    /// The attention that later queries, rotated so, are expected to pay to keys (columns, dim), as they are rotated: e to the power of
    /// the mean logit and, with the `covariance`, half of its variance, divided by the sum over the entries that may leave.
    pub fn expect(
        &self,
        rotation: &MeanRotation,
        keys: &[f32],
        covariance: bool,
        entries: &Entries<'_>,
        out: &mut [f32],
    ) {
        let dim = keys.len() / out.len();
        let (count, mut mean) = (self.count.max(1) as f64, self.sum.clone());
        mean.resize(dim, 0.0);
        mean.iter_mut().for_each(|x| *x /= count);
        let mut spread = vec![0.0; if covariance { dim * dim } else { 0 }];
        if self.count > 0 && covariance {
            for (i, row) in spread.chunks_exact_mut(dim).enumerate() {
                for (j, x) in row.iter_mut().enumerate() {
                    *x = self.products[i * dim + j] / count - mean[i] * mean[j];
                }
                // R C, row by row of its transpose: C is symmetric.
                rotation.apply(row);
            }
            let mut column = vec![0.0; dim];
            for j in 0..dim {
                column.iter_mut().enumerate().for_each(|(i, x)| *x = spread[i * dim + j]);
                rotation.apply(&mut column);
                column.iter().enumerate().for_each(|(i, x)| spread[i * dim + j] = *x);
            }
        }
        rotation.apply(&mut mean);
        let mut logits = vec![f64::NEG_INFINITY; out.len()];
        vector::best(ExpectedLogits {
            mean: &mean,
            spread: &spread,
            keys,
            mask: entries.mask,
            logits: &mut logits,
        });
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        logits.iter_mut().for_each(|logit| *logit = (*logit - most).exp());
        // What is not in the cache has a logit of minus infinity.
        // Where nothing may leave it is 0, and that of an iterator -0.
        let sum = logits[entries.unprotected.clone()].iter().fold(0.0, |sum, e| sum + e);
        out.iter_mut().zip(&logits).for_each(|(out, e)| *out = (e / sum) as f32);
    }
}

struct AddProducts<'a> {
    /// (dim, dim)
    onto: &'a mut [f64],
    query: &'a [f64],
}

impl vector::PlainLoop for AddProducts<'_> {
    #[inline(always)]
    fn run(self) {
        for (row, a) in self.onto.chunks_exact_mut(self.query.len()).zip(self.query) {
            row.iter_mut().zip(self.query).for_each(|(sum, b)| *sum += a * b);
        }
    }
}

struct ExpectedLogits<'a> {
    mean: &'a [f64],
    /// (dim, dim), or nothing
    spread: &'a [f64],
    /// (columns, dim)
    keys: &'a [f32],
    mask: &'a [f32],
    logits: &'a mut [f64],
}

impl vector::PlainLoop for ExpectedLogits<'_> {
    #[inline(always)]
    fn run(self) {
        let dim = self.mean.len();
        let mut wide = vec![0.0; dim];
        for ((logit, key), mask) in self.logits.iter_mut().zip(self.keys.chunks_exact(dim)).zip(self.mask) {
            if *mask != 0.0 {
                continue;
            }
            wide.iter_mut().zip(key).for_each(|(x, k)| *x = f64::from(*k));
            *logit = dot(self.mean, &wide);
            // The spread is symmetric, so half of its product with the key is what is below the diagonal, and half of that.
            for (i, row) in self.spread.chunks_exact(dim).enumerate() {
                *logit += wide[i] * (dot(&row[..i], &wide[..i]) + 0.5 * row[i] * wide[i]);
            }
        }
    }
}

/// How much the keys and values of each entry, (columns, dim) each, stand out from the next `n`, as a rank among its own `n`, from 0 to
/// less than 1. The entries after the protected first ones are taken `n` at a time, in the order of the cache; those that have not `n`
/// after theirs get 1, and so do the protected first ones (arXiv 2504.04704).
pub(super) fn lag_score(n: usize, vectors: [&[f32]; 2], entries: &Entries<'_>, out: &mut [f32]) {
    let from = entries.unprotected.start;
    let living: Vec<usize> = (from..out.len()).filter(|column| entries.mask[*column] == 0.0).collect();
    let dim = vectors[0].len() / out.len();
    out.fill(1.0);
    let parts: Vec<&[usize]> = living.chunks_exact(n).collect();
    let mut deviations = vec![0.0; n];
    for pair in parts.windows(2) {
        let [own, next] = [pair[0], pair[1]];
        let mut scores = vec![0.0; n];
        for vectors in vectors {
            vector::best(LagDeviations { vectors, dim, own, next, deviations: &mut deviations });
            softmax(&mut deviations);
            scores.iter_mut().zip(&deviations).for_each(|(score, weight)| *score += weight);
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| rank(scores[*a], scores[*b]));
        for (rank, place) in order.into_iter().enumerate() {
            out[own[place]] = rank as f32 / n as f32;
        }
    }
}

/// The standard deviation of each own vector's numbers, scaled by the least and the largest of the next ones in each dimension.
struct LagDeviations<'a> {
    /// (columns, dim)
    vectors: &'a [f32],
    dim: usize,
    /// Columns, as many of the one as of the other.
    own: &'a [usize],
    next: &'a [usize],
    deviations: &'a mut [f64],
}

impl vector::PlainLoop for LagDeviations<'_> {
    #[inline(always)]
    fn run(self) {
        let dim = self.dim;
        let of_column = |column: usize| &self.vectors[column * dim..][..dim];
        let (mut low, mut high) = (vec![f32::INFINITY; dim], vec![f32::NEG_INFINITY; dim]);
        for column in self.next {
            for ((low, high), x) in low.iter_mut().zip(&mut high).zip(of_column(*column)) {
                *low = low.min(*x);
                *high = high.max(*x);
            }
        }
        let wide = |x: &f32| f64::from(*x);
        let ranges: Vec<f64> = low.iter().zip(&high).map(|(low, high)| wide(high) - wide(low)).collect();
        let mut scaled = vec![0.0; dim];
        for (deviation, column) in self.deviations.iter_mut().zip(self.own) {
            let numbers = of_column(*column).iter().zip(&low).zip(&ranges);
            for (to, ((x, low), range)) in scaled.iter_mut().zip(numbers) {
                *to = (wide(x) - wide(low)) / range;
            }
            let mean = in_lanes(&scaled[..dim], |x| x) / dim as f64;
            *deviation = (in_lanes(&scaled[..dim], |x| (x - mean) * (x - mean)) / (dim as f64 - 1.0)).sqrt();
        }
    }
}

fn softmax(numbers: &mut [f64]) {
    let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    numbers.iter_mut().for_each(|x| *x = (*x - most).exp());
    let sum: f64 = numbers.iter().sum();
    numbers.iter_mut().for_each(|x| *x /= sum);
}

/// The product of two vectors, eight numbers side by side.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (mut a, mut b) = (a.chunks_exact(8), b.chunks_exact(8));
    for (a, b) in (&mut a).zip(&mut b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    let rest = a.remainder().iter().zip(b.remainder());
    lanes.iter().sum::<f64>() + rest.map(|(a, b)| a * b).sum::<f64>()
}

/// The sum of terms, likewise.
#[inline(always)]
fn in_lanes(numbers: &[f64], term: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [0.0; 8];
    let mut chunks = numbers.chunks_exact(8);
    for numbers in &mut chunks {
        lanes.iter_mut().zip(numbers).for_each(|(lane, x)| *lane += term(*x));
    }
    lanes.iter().sum::<f64>() + chunks.remainder().iter().map(|x| term(*x)).sum::<f64>()
}

/// How much like others the keys in the cache are, (columns, dim): the softmax over them of each one's mean cosine with all. Of those
/// that a key is [`ALIKE`] the last does not count, and where there is none, the oldest (Zefan-Cai/R-KV `cal_similarity`).
pub(super) fn redundancy(keys: &[f32], mask: &[f32], out: &mut [f32]) {
    let dim = keys.len() / out.len();
    let living: Vec<usize> = (0..out.len()).filter(|column| mask[*column] == 0.0).collect();
    let units = living.iter().flat_map(|column| {
        let key = &keys[column * dim..][..dim];
        let length = vector::dot(key, key).sqrt();
        key.iter().map(move |x| x / length)
    });
    let units: Vec<f32> = units.collect();
    let unit = |place: usize| &units[place * dim..][..dim];
    let mut sums = vec![0.0; living.len()];
    for row in 0..living.len() {
        let mut last = (0, 0.0);
        for (column, sum) in sums.iter_mut().enumerate().filter(|(column, _)| *column != row) {
            let cosine = vector::dot(unit(row), unit(column));
            *sum += f64::from(cosine);
            if cosine > ALIKE || column == 0 {
                last = (column, f64::from(cosine));
            }
        }
        sums[last.0] -= last.1;
    }
    sums.iter_mut().for_each(|sum| *sum /= living.len() as f64);
    softmax(&mut sums);
    for (column, share) in living.iter().zip(sums) {
        out[*column] = share as f32;
    }
}

//! Negative log-likelihood per token, whether tokens were the most likely, and the divergence from the full cache.
//!
//! The logits over the vocabulary are computed in one pass, some rows and columns at a time, and not kept.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail, ensure};
use candle_core::Tensor;
use rayon::prelude::*;

use super::arithmetic::layers::Products;
use super::arithmetic::not_negative;
use super::arithmetic::rows::on_host;
use super::device::card_memory;
use super::gpu::params;
use super::network::transformer::LanguageModel;
use crate::vector;

/// Logits in memory at once, of one thread on the host: rows and columns (1 MiB).
const LOGIT_ROWS: usize = 512;
const LOGIT_COLUMNS: usize = 512;
/// Logits in memory at once, of a GPU, which computes whole rows and reads all weights for each piece of them: 512 MiB, or a 64th of its
/// memory. One text at a time has them, and with them those of the full cache.
const LOGITS_ON_GPU: usize = 1 << 27;
static ON_GPU: Mutex<()> = Mutex::new(());

/// Why a token is neither scored nor chosen.
pub(super) const NO_NUMBERS: &str = "some of the model's logits are not numbers\n\
    hint: its weights may have NaN or infinite numbers, or values on the way were too large; compare with the checkpoint's publisher, or \
    try another file or format of it";

/// Scores of some tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// In nats, one per token.
    pub nll: Vec<f32>,
    /// For each token asked for, whether it was the most likely (the lowest id among equals).
    pub hits: Vec<bool>,
    /// With unbounded states: KL(unbounded || bounded) in nats, summed over the tokens.
    pub kl: f64,
    /// With unbounded states: tokens at which both predict the same token.
    pub same_top: u64,
}

/// Rows of logits that a GPU of so many bytes, if that is known, computes at once. The number is always the same on one card, because its
/// library chooses how to compute by it.
fn rows_on_gpu(vocab: usize, bytes: Option<usize>) -> usize {
    let most = bytes.map_or(LOGITS_ON_GPU, |bytes| (bytes / 64 / size_of::<f32>()).min(LOGITS_ON_GPU));
    (most / vocab).max(1)
}

impl LanguageModel {
    /// NLL in nats, f32, of `targets[i]` after state i.
    ///
    /// # Errors
    /// Another number of targets than of states, or a target outside the vocabulary.
    pub fn nll(&self, states: &Tensor, targets: &[u32]) -> Result<Vec<f32>> {
        Ok(self.score(states, targets, &[], None)?.nll)
    }

    /// Scores `targets[i]` after state i. `hits_of` are ascending indices of targets to compare with the most
    /// likely token; with `unbounded` states every prediction is compared with theirs.
    ///
    /// # Errors
    /// As `nll`.
    pub fn score(
        &self,
        states: &Tensor,
        targets: &[u32],
        hits_of: &[usize],
        unbounded: Option<&Tensor>,
    ) -> Result<Scores> {
        let (rows, _) = states.dims2()?;
        ensure!(rows == targets.len(), "{} targets for {rows} states", targets.len());
        let vocab = self.shape().vocab;
        if let Some(target) = targets.iter().find(|target| **target as usize >= vocab) {
            bail!("token {target} is outside the vocabulary of {vocab}");
        }
        let is_on_host = self.gpu().is_none() && self.device().products.is_cpu();
        let most = match is_on_host {
            true => rows.div_ceil(self.threads()).clamp(1, LOGIT_ROWS),
            false => rows_on_gpu(vocab, card_memory().map(|(_, total)| total)),
        };
        let _alone = (!is_on_host).then(|| ON_GPU.lock().unwrap_or_else(PoisonError::into_inner));
        let threads = (self.threads() / rows.div_ceil(most).max(1)).max(1);
        let block = |(index, targets): (usize, &[u32])| {
            let part = |states: &Tensor| states.narrow(0, index * most, targets.len());
            self.score_block(targets, &part(states)?, unbounded.map(part).transpose()?.as_ref(), threads)
        };
        let blocks: Vec<Vec<ScoredRow>> = match is_on_host {
            true => targets.par_chunks(most).enumerate().map(block).collect::<Result<_>>()?,
            false => targets.chunks(most).enumerate().map(block).collect::<Result<_>>()?,
        };
        let all: Vec<ScoredRow> = blocks.into_iter().flatten().collect();
        if let Some(row) = all.iter().position(|row| !row.is_number(unbounded.is_some())) {
            bail!(
                "token {} of the {rows} that are scored here (id {}) has no likelihood: {NO_NUMBERS}",
                row + 1,
                targets[row]
            );
        }
        let compared = all.iter().filter(|_| unbounded.is_some());
        Ok(Scores {
            nll: all.iter().map(ScoredRow::nll).collect(),
            hits: hits_of.iter().map(|row| all[*row].top.largest == Some(all[*row].target)).collect(),
            kl: compared.clone().map(ScoredRow::divergence).sum(),
            same_top: compared.filter(|row| row.predicts_the_same()).count() as u64,
        })
    }
}

impl LanguageModel {
    /// Scores a few states, with those of the full cache if there are any. On the host the logits are computed some columns at a time: they
    /// are never all in memory.
    fn score_block(
        &self,
        targets: &[u32],
        states: &Tensor,
        full: Option<&Tensor>,
        threads: usize,
    ) -> Result<Vec<ScoredRow>> {
        let whole = |states: &Tensor| {
            let logits = self.f32_logits(states, Products::Many { threads })?; // (rows, vocab)
            anyhow::Ok(logits.contiguous()?)
        };
        if let Some(gpu) = self.gpu() {
            let full = full.map(whole).transpose()?;
            let rows = gpu.score(&whole(states)?, full.as_ref(), targets)?;
            return Ok(rows.into_iter().map(ScoredRow::from_gpu).collect());
        }
        let row = |target: &u32| ScoredRow { target: *target as usize, ..ScoredRow::default() };
        let mut known: Vec<_> = targets.iter().map(row).collect();
        if !self.device().products.is_cpu() {
            add_columns(&mut known, 0, &whole(states)?, full.map(whole).transpose()?.as_ref())?;
            return Ok(known);
        }
        let vocab = self.shape().vocab;
        let product = self.head.weight.products(states)?;
        let of_full = full.map(|full| self.head.weight.products(full)).transpose()?;
        for column in (0..vocab).step_by(LOGIT_COLUMNS) {
            let part = column..vocab.min(column + LOGIT_COLUMNS);
            let logits = self.capped(product(part.clone(), threads)?)?; // (rows, columns)
            let full = of_full.as_ref().map(|product| self.capped(product(part, threads)?)).transpose()?;
            add_columns(&mut known, column, &logits, full.as_ref())?;
        }
        Ok(known)
    }
}

/// Adds the logits of some columns from `first` on, and compares them with those of the full cache.
fn add_columns(known: &mut [ScoredRow], first: usize, logits: &Tensor, full: Option<&Tensor>) -> Result<()> {
    let is_compared = full.is_some();
    on_host([logits, full.unwrap_or(logits)], |[logits, full]| {
        let width = logits.len() / known.len();
        let logits = logits.chunks_exact(width).zip(full.chunks_exact(width));
        for (row, (logits, full)) in known.iter_mut().zip(logits) {
            row.add(first, logits);
            if is_compared {
                row.compare(first, full, logits);
            }
        }
    })
}

/// What is known of a state's logits after some columns.
#[derive(Clone, Default)]
struct ScoredRow {
    target: usize,
    of_target: f32,
    top: RunningSoftmax,
    /// Softmax of the full cache.
    full: RunningSoftmax,
    /// The sum of e^(p - max) (p - q) over logits p of the full cache and q.
    difference: f64,
}

/// The largest logit, and the sum of all e^(logit - max).
#[derive(Clone)]
struct RunningSoftmax {
    max: f32,
    sum: f64,
    /// The first column of the largest; `None` if no logit is a number.
    largest: Option<usize>,
}

impl Default for RunningSoftmax {
    fn default() -> RunningSoftmax {
        RunningSoftmax { max: f32::NEG_INFINITY, sum: 0.0, largest: None }
    }
}

impl RunningSoftmax {
    /// Adds columns from `first` on. Returns what earlier sums are multiplied with.
    fn add(&mut self, first: usize, logits: &[f32]) -> f64 {
        let max = vector::largest(logits);
        let mut factor = 1.0;
        if max > self.max || self.largest.is_none() {
            factor = f64::from(self.max - max).exp();
            self.max = max;
            self.largest = logits.iter().position(|logit| *logit == max).map(|at| first + at);
        }
        self.sum = self.sum * factor + f64::from(vector::exp_sum(logits, self.max));
        factor
    }

    fn log_sum(&self) -> f64 {
        f64::from(self.max) + self.sum.ln()
    }
}

impl ScoredRow {
    fn from_gpu(row: params::ScoredRow) -> ScoredRow {
        let softmax =
            |max: f32, sum: f64, largest: i32| RunningSoftmax { max, sum, largest: usize::try_from(largest).ok() };
        ScoredRow {
            target: row.target as usize,
            of_target: row.of_target,
            top: softmax(row.max, row.sum, row.largest),
            full: softmax(row.full_max, row.full_sum, row.full_largest),
            difference: row.difference,
        }
    }

    /// Adds logits of columns from `first` on.
    fn add(&mut self, first: usize, logits: &[f32]) {
        self.top.add(first, logits);
        if let Some(logit) = self.target.checked_sub(first).and_then(|at| logits.get(at)) {
            self.of_target = *logit;
        }
    }

    /// Compares them with those of the full cache, after they were added.
    fn compare(&mut self, first: usize, full: &[f32], logits: &[f32]) {
        let factor = self.full.add(first, full);
        let added = vector::weighted_difference(full, self.full.max, logits);
        self.difference = self.difference * factor + f64::from(added);
    }

    /// Whether the likelihood is a number, and where it is compared, the divergence.
    fn is_number(&self, is_compared: bool) -> bool {
        self.nll().is_finite() && (!is_compared || self.divergence().is_finite())
    }

    /// In nats.
    fn nll(&self) -> f32 {
        (self.top.log_sum() - f64::from(self.of_target)) as f32
    }

    /// KL(full || bounded) in nats: the sum of p (ln p - ln q), with the two normalisers taken out of the sum. NaN where a
    /// logit is.
    fn divergence(&self) -> f64 {
        not_negative(self.difference / self.full.sum - self.full.log_sum() + self.top.log_sum())
    }

    /// Whether the full cache's most likely token is the most likely here. Logits that are no numbers predict nothing.
    fn predicts_the_same(&self) -> bool {
        self.top.largest.is_some() && self.top.largest == self.full.largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(full: &[f32], bounded: &[f32], columns: usize) -> ScoredRow {
        let mut row = ScoredRow { target: 1, ..ScoredRow::default() };
        for (at, (full, bounded)) in full.chunks(columns).zip(bounded.chunks(columns)).enumerate() {
            row.add(at * columns, bounded);
            row.compare(at * columns, full, bounded);
        }
        row
    }

    #[test]
    fn rows_on_a_gpu_take_a_64th_of_its_memory_at_most() {
        for (vocab, bytes) in
            [(49_152, None), (128_256, Some(80 << 30)), (128_256, Some(8 << 30)), (262_144, Some(1 << 20))]
        {
            let rows = rows_on_gpu(vocab, bytes);
            let taken = rows * vocab * size_of::<f32>();
            assert!(rows == 1 || taken <= bytes.unwrap_or(usize::MAX) / 64, "{rows} rows of {vocab}");
            assert!(
                taken <= 512 << 20
                    && (rows + 1) * vocab > bytes.map_or(LOGITS_ON_GPU, |bytes| bytes / 256).min(LOGITS_ON_GPU)
            );
        }
    }

    #[test]
    fn likelihood_and_divergence_by_hand_however_columns_are_split() {
        // p = (3/4, 1/4), q = (1/2, 1/2): 3/4 ln(3/2) + 1/4 ln(1/2)
        let want = 0.75 * 1.5f64.ln() + 0.25 * 0.5f64.ln();
        for columns in [1, 2] {
            let row = row(&[3f32.ln(), 0.0], &[1.0, 1.0], columns);
            assert!((row.divergence() - want).abs() < 1e-7);
            assert!((f64::from(row.nll()) - 2f64.ln()).abs() < 1e-7);
            assert_eq!((row.full.largest, row.top.largest), (Some(0), Some(0)));
        }
        // The largest comes late: earlier sums are scaled down.
        let full: Vec<f32> = (0..50).map(|i| (i * i) as f32 * 0.02).collect();
        let bounded: Vec<f32> = full.iter().map(|x| x * 0.5 + 3.0).collect();
        let softmax = |logits: &[f32]| {
            let exp: Vec<f64> = logits.iter().map(|x| f64::from(*x).exp()).collect();
            let sum: f64 = exp.iter().sum();
            exp.into_iter().map(|x| x / sum).collect::<Vec<_>>()
        };
        let (p, q) = (softmax(&full), softmax(&bounded));
        let want: f64 = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum();
        for columns in [1, 7, 16, 50] {
            let row = row(&full, &bounded, columns);
            assert!((row.divergence() - want).abs() < 1e-6, "{} {want}", row.divergence());
            assert!((f64::from(row.nll()) + q[1].ln()).abs() < 1e-6);
            assert_eq!((row.full.largest, row.top.largest), (Some(49), Some(49)));
        }
        assert_eq!(row(&full, &full, 7).divergence(), 0.0);
    }

    #[test]
    fn logits_that_are_no_numbers_are_not_a_perfect_score() {
        let good = [0.5, 2.0, 1.0];
        for bad in [[f32::NAN; 3], [0.5, f32::NAN, 1.0], [f32::NAN, 2.0, 1.0]] {
            for (full, bounded) in [(good, bad), (bad, good), (bad, bad)] {
                for columns in [1, 2, 3] {
                    let row = row(&full, &bounded, columns);
                    assert!(row.divergence().is_nan(), "{full:?} {bounded:?}");
                    assert_eq!(row.nll().is_nan(), bounded != good, "{bounded:?}");
                    let nothing = [full, bounded].iter().any(|logits| logits.iter().all(|logit| logit.is_nan()));
                    assert!(!(nothing && row.predicts_the_same()));
                }
            }
        }
    }
}

//! Scores of logits over the vocabulary, computed on a device so that the logits stay there.

use anyhow::Result;
use candle_core::{DType, Tensor};

use super::attend::GpuAttention;
use crate::lm::gpu::arena::Arena;
use crate::lm::gpu::device::{Factor, Kernel, Product, launch_one};
use crate::lm::gpu::launch::{MOVE_THREADS, SCRATCH};
use crate::lm::gpu::params::{Layer, ScoredRow, Scoring};

impl GpuAttention {
    /// Scores rows of logits (rows, vocab) in f32, and compares them with those of the full cache if these are given.
    ///
    /// # Errors
    ///
    /// Errors of the device.
    pub fn score(&self, logits: &Tensor, full: Option<&Tensor>, targets: &[u32]) -> Result<Vec<ScoredRow>> {
        let gpu = &*self.gpu;
        let rows = targets.iter().map(|target| ScoredRow { target: *target as i32, ..ScoredRow::default() });
        let mut arena = Arena::default();
        let rows = arena.state(&rows.collect::<Vec<_>>());
        arena.place(gpu, None)?;
        let scoring = Scoring {
            logits: gpu.address_of(logits)?,
            full: full.map_or(Ok(0), |full| gpu.address_of(full))?,
            rows: arena.at(rows),
            vocab: logits.dim(1)? as i32,
            pad: 0,
        };
        let shape = (targets.len(), MOVE_THREADS, SCRATCH);
        launch_one(gpu, Kernel::Score, shape, Layer::default(), &[scoring])?;
        arena.read_back(gpu)?;
        Ok(arena.values(rows))
    }

    /// Multiplies x (rows, in) with weights (out, in) of the same type: (rows, out) in f32, not rounded to that type.
    ///
    /// # Errors
    ///
    /// Errors of the device.
    pub fn multiply(&self, x: &Tensor, weights: &Tensor) -> Result<Tensor> {
        let ((m, k), n) = (x.dims2()?, weights.dim(0)?);
        let out = Tensor::zeros((m, n), DType::F32, x.device())?;
        let gpu = &*self.gpu;
        let factor = |tensor: &Tensor, stride: usize| {
            anyhow::Ok(Factor { address: gpu.address_of(tensor)?, stride, batch: 0 })
        };
        let (a, b, c) = (factor(x, k)?, factor(weights, k)?, factor(&out, n)?);
        gpu.product(Product { m, n, k, a, b, b_is_transposed: true, c, batches: 1, factors: x.dtype() })?;
        Ok(out)
    }
}

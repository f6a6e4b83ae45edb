//! Linear layers whose results for a row don't depend on the number of rows, the norm, and the gated activation.
//!
//! On the CPU norm and activation run over whole rows of f32; elsewhere they are candle's.

use anyhow::Result;
use candle_core::{CpuStorage, CustomOp2, DType, Device, InplaceOp2, Layout, Shape, Tensor};
use rayon::prelude::*;

use super::weights::Weights;
use crate::vector;

/// y = x W^T + b.
#[derive(Debug)]
pub(super) struct Linear {
    /// (out, in)
    weight: Tensor,
    /// (out)
    bias: Option<Tensor>,
}

impl Linear {
    /// Takes `name.weight` (out, in), and `name.bias` (out) if the checkpoint has one.
    pub fn take(
        weights: &mut Weights,
        name: &str,
        (out, input): (usize, usize),
        dtype: DType,
        device: &Device,
    ) -> Result<Linear> {
        let weight = weights.take(&format!("{name}.weight"), &[out, input], dtype, device)?;
        let bias = format!("{name}.bias");
        let bias = if weights.has(&bias) { Some(weights.take(&bias, &[out], dtype, device)?) } else { None };
        Ok(Linear { weight, bias })
    }

    pub fn new(weight: Tensor, bias: Option<Tensor>) -> Linear {
        Linear { weight, bias }
    }

    /// Converts the weights to another type.
    pub fn held_as(self, dtype: DType) -> Result<Linear> {
        let bias = self.bias.map(|bias| bias.to_dtype(dtype)).transpose()?;
        Ok(Linear { weight: self.weight.to_dtype(dtype)?, bias })
    }

    /// Bytes of the weights in memory.
    pub fn bytes(&self) -> usize {
        bytes_of(&self.weight) + self.bias.as_ref().map_or(0, bytes_of)
    }

    /// Prepares the matrix for a kind of products.
    pub fn ready(&self, products: Products) -> Result<ReadyLinear> {
        let bias = self.bias.as_ref().map(|bias| bias.to_dtype(products.dtype())).transpose()?;
        let weight = match products {
            Products::Gemm(dtype) => self.weight.to_dtype(dtype)?,
            Products::Gemv => self.weight.clone(),
        };
        Ok(ReadyLinear { weight, bias, gemv: products == Products::Gemv })
    }
}

/// Bytes of a tensor's numbers.
pub(super) fn bytes_of(tensor: &Tensor) -> usize {
    tensor.elem_count() * tensor.dtype().size_in_bytes()
}

/// How products with weights are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Products {
    /// Any number of rows; weights are converted to this type first.
    Gemm(DType),
    /// A few rows in f32 on the host; weights are read once, in the type they are stored in.
    Gemv,
}

impl Products {
    /// The type of the rows.
    pub fn dtype(self) -> DType {
        match self {
            Products::Gemm(dtype) => dtype,
            Products::Gemv => DType::F32,
        }
    }
}

/// A [`Linear`] ready to multiply.
pub(super) struct ReadyLinear {
    weight: Tensor,
    bias: Option<Tensor>,
    gemv: bool,
}

impl ReadyLinear {
    /// (rows, in) -> (rows, out)
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = if self.gemv { x.apply_op2_no_bwd(&self.weight, &Gemv)? } else { self.gemm(x)? };
        Ok(match &self.bias {
            Some(bias) => y.broadcast_add(bias)?,
            None => y,
        })
    }

    fn gemm(&self, x: &Tensor) -> Result<Tensor> {
        let (rows, input) = x.dims2()?;
        let (out, _) = self.weight.dims2()?;
        // The kernels for very few rows, and those for two small sides, add in another order. Padding to the size
        // where the general kernel starts makes a row's result independent of the rows beside it, so that chunking
        // never changes a bit.
        let least = if out <= 64 && input > 512 { 65 } else { 8usize.max(257usize.div_ceil(out)) };
        let padded = if rows < least { x.pad_with_zeros(0, 0, least - rows)? } else { x.clone() };
        let y = padded.matmul(&self.weight.t()?)?;
        Ok(if rows < least { y.narrow(0, 0, rows)?.contiguous()? } else { y })
    }
}

/// x W^T for a few rows x (rows, in) of f32 and W (out, in) in its stored type.
struct Gemv;

/// Rows of weights per task of a thread.
const OUTPUTS: usize = 64;

impl CustomOp2 for Gemv {
    fn name(&self) -> &'static str {
        "gemv"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_at: &Layout,
        weight: &CpuStorage,
        weight_at: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (x, (rows, input)) = (floats(x, x_at)?, x_at.shape().dims2()?);
        let (out, _) = weight_at.shape().dims2()?;
        let mut tiles = vec![0.0; out * rows]; // (out / OUTPUTS)(rows, OUTPUTS), the last one narrower
        let parts = tiles.par_chunks_mut(OUTPUTS * rows).enumerate();
        // Rows of weights are converted in small groups that stay in cache.
        match weight {
            CpuStorage::F32(_) => {
                let weight = floats(weight, weight_at)?;
                parts.for_each(|(part, tile)| {
                    let outputs = tile.len() / rows;
                    let weights = &weight[part * OUTPUTS * input..][..outputs * input];
                    vector::row_products(x, input, weights, tile, outputs);
                });
            }
            CpuStorage::BF16(weight) => {
                let weight = contiguous(weight, weight_at)?;
                parts.for_each(|(part, tile)| widened(x, input, &weight[part * OUTPUTS * input..], (tile, rows)));
            }
            CpuStorage::F16(weight) => {
                let weight = contiguous(weight, weight_at)?;
                parts.for_each(|(part, tile)| widened(x, input, &weight[part * OUTPUTS * input..], (tile, rows)));
            }
            _ => candle_core::bail!("weights of f32, bf16 or f16 are needed"),
        }
        if rows > 1 {
            let mut y = vec![0.0; rows * out];
            y.par_chunks_mut(out).enumerate().for_each(|(row, y)| {
                for (y, tile) in y.chunks_mut(OUTPUTS).zip(tiles.chunks(OUTPUTS * rows)) {
                    y.copy_from_slice(&tile[row * y.len()..][..y.len()]);
                }
            });
            tiles = y;
        }
        Ok((CpuStorage::F32(tiles), Shape::from((rows, out))))
    }
}

/// Products with weights of half precision, which are converted a few rows at a time.
fn widened<T: Copy + Into<f32>>(x: &[f32], input: usize, weights: &[T], (tile, rows): (&mut [f32], usize)) {
    const AT_ONCE: usize = 8;
    let outputs = tile.len() / rows;
    let mut few = vec![0.0; AT_ONCE * input];
    for (part, weights) in weights[..outputs * input].chunks(AT_ONCE * input).enumerate() {
        for (to, from) in few.iter_mut().zip(weights) {
            *to = (*from).into();
        }
        vector::row_products(x, input, &few[..weights.len()], &mut tile[part * AT_ONCE..], outputs);
    }
}

/// The elements of a contiguous tensor.
fn contiguous<'a, T>(elements: &'a [T], layout: &Layout) -> candle_core::Result<&'a [T]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        candle_core::bail!("a contiguous tensor is needed, not one of strides {:?}", layout.stride());
    };
    Ok(&elements[start..end])
}

/// The type of products with weights: f32 on the CPU, the stored type elsewhere, f64 if asked for.
pub(super) fn compute_type(device: &Device, stored: DType, compute_f64: bool) -> DType {
    if compute_f64 {
        DType::F64
    } else if device.is_cpu() {
        DType::F32
    } else {
        stored
    }
}

/// x / rms(x) * weight, row by row. x: (rows, hidden)
pub(super) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    Ok(if x.device().is_cpu() && x.dtype() == DType::F32 {
        x.apply_op2_no_bwd(weight, &RmsNorm { eps })?
    } else {
        candle_nn::ops::rms_norm_slow(x, &weight.to_dtype(x.dtype())?, eps)?
    })
}

/// silu(gate) * up, in the memory of the gate. Both (rows, intermediate).
pub(super) fn silu_mul(gate: Tensor, up: &Tensor) -> Result<Tensor> {
    Ok(if gate.device().is_cpu() && gate.dtype() == DType::F32 {
        gate.inplace_op2(up, &SILU_MUL)?;
        gate
    } else {
        (candle_nn::ops::silu(&gate)? * up)?
    })
}

/// x + y, in the memory of x. Both (rows, hidden).
pub(super) fn add(x: Tensor, y: &Tensor) -> Result<Tensor> {
    Ok(if x.device().is_cpu() && x.dtype() == DType::F32 {
        x.inplace_op2(y, &ADD)?;
        x
    } else {
        (x + y)?
    })
}

/// The floats of a contiguous f32 tensor on the host, without a copy.
pub(super) fn floats<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    contiguous(storage.as_slice::<f32>()?, layout)
}

struct RmsNorm {
    eps: f32,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (x, weight) = (floats(x, x_layout)?, floats(weight, weight_layout)?);
        let hidden = weight.len();
        let mut out = vec![0.0; x.len()];
        let rows = out.par_chunks_exact_mut(hidden).zip(x.par_chunks_exact(hidden)).with_min_len(64);
        rows.for_each(|(out, x)| vector::rms_norm(x, weight, self.eps, out));
        Ok((CpuStorage::F32(out), x_layout.shape().clone()))
    }
}

/// Floats per task of a thread.
const PIECE: usize = 1 << 15;

/// x <- f(x, y), element by element.
struct InPlace {
    name: &'static str,
    apply: fn(&mut [f32], &[f32]),
}

const SILU_MUL: InPlace = InPlace { name: "silu-mul", apply: vector::silu_mul };
const ADD: InPlace = InPlace { name: "add", apply: |x, y| vector::add_scaled(x, y, 1.0) };

impl InplaceOp2 for InPlace {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, x: &mut CpuStorage, at: &Layout, y: &CpuStorage, y_at: &Layout) -> candle_core::Result<()> {
        let (Some((start, end)), CpuStorage::F32(x)) = (at.contiguous_offsets(), x) else {
            candle_core::bail!("a contiguous f32 tensor is needed");
        };
        let pieces = floats(y, y_at)?.par_chunks(PIECE);
        x[start..end].par_chunks_mut(PIECE).zip(pieces).for_each(|(x, y)| (self.apply)(x, y));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The purpose of the padding in [`ReadyLinear::gemm`]: the bits of a row don't depend on the number of rows.
    #[test]
    fn rows_are_independent_of_each_other() {
        let device = Device::Cpu;
        for dtype in [DType::F32, DType::F64] {
            for (input, out) in
                [(16, 8), (48, 24), (64, 16), (64, 64), (128, 384), (768, 64), (1024, 32), (256, 4096)]
            {
                let random = |rows: usize, columns: usize| {
                    Tensor::rand(-1f32, 1.0, (rows, columns), &device).unwrap().to_dtype(dtype).unwrap()
                };
                let all = random(330, input);
                let linear = Linear::new(random(out, input), None).ready(Products::Gemm(dtype)).unwrap();
                let floats = |x: Tensor| x.to_dtype(DType::F64).unwrap().to_vec2::<f64>().unwrap();
                let whole = floats(linear.forward(&all).unwrap());
                for rows in [1, 2, 3, 7, 8, 33, 64, 65, 74, 128, 256] {
                    let part = all.narrow(0, 330 - rows, rows).unwrap().contiguous().unwrap();
                    let part = floats(linear.forward(&part).unwrap());
                    assert_eq!(part, whole[330 - rows..], "{rows} rows of {input} -> {out} in {dtype:?}");
                }
            }
        }
    }

    #[test]
    fn both_kinds_of_products_agree_for_every_stored_type() {
        let device = Device::Cpu;
        for held in [DType::F32, DType::BF16, DType::F16] {
            let weight = Tensor::rand(-1f32, 1.0, (150, 70), &device).unwrap().to_dtype(held).unwrap();
            let bias = Tensor::rand(-1f32, 1.0, 150, &device).unwrap();
            let linear = Linear::new(weight, Some(bias));
            let x = Tensor::rand(-1f32, 1.0, (5, 70), &device).unwrap();
            let [gemv, gemm] = [Products::Gemv, Products::Gemm(DType::F32)].map(|products| {
                linear.ready(products).unwrap().forward(&x).unwrap().to_vec2::<f32>().unwrap().concat()
            });
            assert!(gemv.iter().zip(&gemm).all(|(a, b)| (a - b).abs() < 1e-5), "{held:?}");
        }
    }
}

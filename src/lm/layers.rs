//! Linear layers whose results for a row don't depend on the number of rows, the norm, and the gated activation.
//!
//! On the CPU norm and activation run over whole rows of f32; elsewhere they are candle's.

use anyhow::{Result, bail};
use candle_core::{CpuStorage, DType, Device, InplaceOp2, Layout, Storage, Tensor};
use rayon::prelude::*;

use super::config::Activation;
use super::weights::Weights;
use crate::vector;

/// y = x W^T + b.
#[derive(Debug)]
pub(super) struct Linear {
    /// (out, in)
    weight: Tensor,
    /// (out)
    bias: Option<Tensor>,
    /// Multiplied by [`Products::Gemv`].
    gemv: bool,
}

impl Linear {
    /// Takes `name.weight` (out, in), and `name.bias` (out) if the checkpoint has one. They are rounded to `dtype`
    /// and stored as `keep`.
    pub fn take(
        weights: &mut Weights,
        name: &str,
        (out, input): (usize, usize),
        (dtype, keep): (DType, DType),
        device: &Device,
    ) -> Result<Linear> {
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let biased = weights.has(&bias);
        let mut take = |name: &str, shape: &[usize]| -> Result<Tensor> {
            Ok(weights.take(name, shape, dtype, device)?.to_dtype(keep)?)
        };
        let weight = take(&weight, &[out, input])?;
        Ok(Linear::new(weight, if biased { Some(take(&bias, &[out])?) } else { None }))
    }

    pub fn new(weight: Tensor, bias: Option<Tensor>) -> Linear {
        Linear { weight, bias, gemv: false }
    }

    /// The parts of a fused matrix: the first rows, the rows after them, and so on.
    pub fn split<const N: usize>(&self, rows: [usize; N]) -> Result<[Linear; N]> {
        let mut start = 0;
        let parts = rows.map(|rows| {
            let part = |tensor: &Tensor| tensor.narrow(0, start, rows)?.contiguous();
            let bias = self.bias.as_ref().map(part).transpose();
            let part = part(&self.weight).and_then(|weight| Ok(Linear::new(weight, bias?)));
            start += rows;
            part
        });
        Ok(parts
            .into_iter()
            .collect::<candle_core::Result<Vec<_>>>()?
            .try_into()
            .expect("as many parts as asked for"))
    }

    /// Bytes of the weights in memory.
    pub fn bytes(&self) -> usize {
        bytes_of(&self.weight) + self.bias.as_ref().map_or(0, bytes_of)
    }

    /// Prepares the matrix for a kind of products.
    pub fn ready(&self, products: Products) -> Result<Linear> {
        let (weight, dtype) = match products {
            Products::Gemm(dtype) => (self.weight.to_dtype(dtype)?, dtype),
            Products::Gemv => (self.weight.clone(), DType::F32),
        };
        let bias = self.bias.as_ref().map(|bias| bias.to_dtype(dtype)).transpose()?;
        Ok(Linear { weight, bias, gemv: products == Products::Gemv })
    }

    /// (rows, in) -> (rows, out), once [`ready`](Self::ready).
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = if self.gemv { gemv(x, &self.weight)? } else { self.gemm(x)? };
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

/// Rows of weights per task of a thread.
const OUTPUTS: usize = 64;

/// x W^T for a few rows x (rows, in) of f32 and W (out, in) in its stored type, both on the host.
fn gemv(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let ((rows, input), (out, _)) = (x.dims2()?, weight.dims2()?);
    let (weight, layout) = weight.storage_and_layout();
    let Storage::Cpu(weight) = &*weight else { bail!("the weights are not on the host") };
    let Some((start, _)) = layout.contiguous_offsets() else { bail!("the weights are not contiguous") };
    let y = on_host([x], |[x]| -> Result<Vec<f32>> {
        let mut tiles = vec![0.0; out * rows]; // (out / OUTPUTS)(rows, OUTPUTS), the last one narrower
        tiles.par_chunks_mut(OUTPUTS * rows).enumerate().try_for_each(|(part, tile)| {
            let (from, outputs) = (start + part * OUTPUTS * input, tile.len() / rows);
            let to = from + outputs * input;
            match weight {
                CpuStorage::F32(weight) => vector::row_products(x, input, &weight[from..to], tile, outputs),
                CpuStorage::BF16(weight) => widened(x, input, &weight[from..to], tile, outputs),
                CpuStorage::F16(weight) => widened(x, input, &weight[from..to], tile, outputs),
                _ => bail!("weights of f32, bf16 or f16 are needed"),
            }
            Ok(())
        })?;
        if rows > 1 {
            let mut y = vec![0.0; rows * out];
            y.par_chunks_mut(out).enumerate().for_each(|(row, y)| {
                for (y, tile) in y.chunks_mut(OUTPUTS).zip(tiles.chunks(OUTPUTS * rows)) {
                    y.copy_from_slice(&tile[row * y.len()..][..y.len()]);
                }
            });
            tiles = y;
        }
        Ok(tiles)
    })??;
    Ok(Tensor::from_vec(y, (rows, out), &Device::Cpu)?)
}

/// Products with weights of half precision, which are converted a few rows at a time and stay in cache.
fn widened<T: Copy + Into<f32>>(x: &[f32], input: usize, weights: &[T], tile: &mut [f32], outputs: usize) {
    const AT_ONCE: usize = 8;
    let mut few = vec![0.0; AT_ONCE * input];
    for (part, weights) in weights.chunks(AT_ONCE * input).enumerate() {
        for (to, from) in few.iter_mut().zip(weights) {
            *to = (*from).into();
        }
        vector::row_products(x, input, &few[..weights.len()], &mut tile[part * AT_ONCE..], outputs);
    }
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
    if !x.device().is_cpu() || x.dtype() != DType::F32 {
        return Ok(candle_nn::ops::rms_norm_slow(x, &weight.to_dtype(x.dtype())?, eps)?);
    }
    let normed = on_host([x, weight], |[x, weight]| {
        let mut out = vec![0.0; x.len()];
        let hidden = weight.len();
        let rows = out.par_chunks_exact_mut(hidden).zip(x.par_chunks_exact(hidden)).with_min_len(64);
        rows.for_each(|(out, x)| vector::rms_norm(x, weight, eps, out));
        out
    })?;
    Ok(Tensor::from_vec(normed, x.shape(), &Device::Cpu)?)
}

/// activation(gate) * up, in the memory of the gate. Both (rows, intermediate).
pub(super) fn gated(gate: Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
    let on_host = gate.device().is_cpu() && gate.dtype() == DType::F32;
    Ok(match activation {
        Activation::Silu if on_host => in_place(gate, up, vector::silu_mul)?,
        Activation::GeluTanh if on_host => in_place(gate, up, vector::gelu_mul)?,
        Activation::Silu => (candle_nn::ops::silu(&gate)? * up)?,
        Activation::GeluTanh => (gate.gelu()? * up)?,
    })
}

fn in_place(x: Tensor, y: &Tensor, f: fn(&mut [f32], &[f32])) -> Result<Tensor> {
    x.inplace_op2(y, &InPlace(f))?;
    Ok(x)
}

/// x + y, in the memory of x. Both (rows, hidden).
pub(super) fn add(x: Tensor, y: &Tensor) -> Result<Tensor> {
    Ok(if x.device().is_cpu() && x.dtype() == DType::F32 {
        in_place(x, y, |x, y| vector::add_scaled(x, y, 1.0))?
    } else {
        (x + y)?
    })
}

/// The floats of a contiguous f32 tensor on the host, without a copy.
fn floats<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        candle_core::bail!("a contiguous tensor is needed, not one of strides {:?}", layout.stride());
    };
    Ok(&storage.as_slice()?[start..end])
}

/// Calls a function with the floats of some tensors, on the host in f32, without a copy if they are there already.
pub(super) fn on_host<const N: usize, R>(tensors: [&Tensor; N], call: impl FnOnce([&[f32]; N]) -> R) -> Result<R> {
    let to_host = |tensor: &Tensor| tensor.to_dtype(DType::F32)?.to_device(&Device::Cpu)?.contiguous();
    let host = tensors.into_iter().map(to_host).collect::<candle_core::Result<Vec<_>>>()?;
    let guards: Vec<_> = host.iter().map(Tensor::storage_and_layout).collect();
    let mut slices: [&[f32]; N] = [&[]; N];
    for (slice, (storage, layout)) in slices.iter_mut().zip(&guards) {
        let Storage::Cpu(storage) = &**storage else { bail!("a tensor moved to the host is not on the host") };
        *slice = floats(storage, layout)?;
    }
    Ok(call(slices))
}

/// Floats per task of a thread.
const PIECE: usize = 1 << 15;

/// x <- f(x, y), element by element.
struct InPlace(fn(&mut [f32], &[f32]));

impl InplaceOp2 for InPlace {
    fn name(&self) -> &'static str {
        "in-place"
    }

    fn cpu_fwd(&self, x: &mut CpuStorage, at: &Layout, y: &CpuStorage, y_at: &Layout) -> candle_core::Result<()> {
        let (Some((start, end)), CpuStorage::F32(x)) = (at.contiguous_offsets(), x) else {
            candle_core::bail!("a contiguous f32 tensor is needed");
        };
        let pieces = floats(y, y_at)?.par_chunks(PIECE);
        x[start..end].par_chunks_mut(PIECE).zip(pieces).for_each(|(x, y)| (self.0)(x, y));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The purpose of the padding in [`Linear::gemm`]: the bits of a row don't depend on the number of rows.
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

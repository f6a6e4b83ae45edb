//! The pieces between the matrices: linear layers whose rows don't depend on each other's number, the norm and the
//! gated activation. On the CPU the two elementwise pieces run over whole rows of f32; elsewhere they are candle's.

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

    /// The same numbers in another type.
    pub fn held_as(self, dtype: DType) -> Result<Linear> {
        let bias = self.bias.map(|bias| bias.to_dtype(dtype)).transpose()?;
        Ok(Linear { weight: self.weight.to_dtype(dtype)?, bias })
    }

    /// The matrix in the type the products are to be computed in.
    pub fn widened(&self, dtype: DType) -> Result<Widened> {
        let bias = self.bias.as_ref().map(|bias| bias.to_dtype(dtype)).transpose()?;
        Ok(Widened { weight: self.weight.to_dtype(dtype)?, bias })
    }
}

/// A [`Linear`] ready to multiply.
pub(super) struct Widened {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Widened {
    /// (rows, in) -> (rows, out)
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (rows, input) = x.dims2()?;
        let (out, _) = self.weight.dims2()?;
        // The kernels for very few rows, and those for two small sides, add in another order. Padding to where the
        // general kernel starts makes a row's result independent of the rows beside it, so that neither the
        // chunking nor the sharing of a text can change a bit.
        let least = if out <= 64 && input > 512 { 65 } else { 8usize.max(257usize.div_ceil(out)) };
        let padded = if rows < least { x.pad_with_zeros(0, 0, least - rows)? } else { x.clone() };
        let y = padded.matmul(&self.weight.t()?)?;
        let y = if rows < least { y.narrow(0, 0, rows)?.contiguous()? } else { y };
        Ok(match &self.bias {
            Some(bias) => y.broadcast_add(bias)?,
            None => y,
        })
    }
}

/// Products run in f32 on the CPU, whatever the weights are stored as, and in the weights' type elsewhere; in f64
/// with care.
pub(super) fn compute_type(device: &Device, stored: DType, careful: bool) -> DType {
    if careful {
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

/// silu(gate) * up. Both (rows, intermediate); the gate's memory is reused.
pub(super) fn silu_mul(gate: Tensor, up: &Tensor) -> Result<Tensor> {
    Ok(if gate.device().is_cpu() && gate.dtype() == DType::F32 {
        gate.inplace_op2(up, &SiluMul)?;
        gate
    } else {
        (candle_nn::ops::silu(&gate)? * up)?
    })
}

/// x + y, in the memory of x. Both (rows, hidden).
pub(super) fn add(x: Tensor, y: &Tensor) -> Result<Tensor> {
    Ok(if x.device().is_cpu() && x.dtype() == DType::F32 {
        x.inplace_op2(y, &Add)?;
        x
    } else {
        (x + y)?
    })
}

/// The floats of a contiguous f32 tensor on the host, without a copy.
pub(super) fn floats<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        candle_core::bail!("a contiguous tensor is needed, not one of strides {:?}", layout.stride());
    };
    Ok(&storage.as_slice::<f32>()?[start..end])
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
        out.par_chunks_mut(64 * hidden).zip(x.par_chunks(64 * hidden)).for_each(|(out, x)| {
            for (out, x) in out.chunks_exact_mut(hidden).zip(x.chunks_exact(hidden)) {
                vector::rms_norm(x, weight, self.eps, out);
            }
        });
        Ok((CpuStorage::F32(out), x_layout.shape().clone()))
    }
}

/// Floats one thread takes at a time.
const PIECE: usize = 1 << 15;

struct SiluMul;

impl InplaceOp2 for SiluMul {
    fn name(&self) -> &'static str {
        "silu-mul"
    }

    fn cpu_fwd(
        &self,
        gate: &mut CpuStorage,
        at: &Layout,
        up: &CpuStorage,
        up_at: &Layout,
    ) -> candle_core::Result<()> {
        let pieces = floats(up, up_at)?.par_chunks(PIECE);
        floats_mut(gate, at)?.par_chunks_mut(PIECE).zip(pieces).for_each(|(gate, up)| vector::silu_mul(gate, up));
        Ok(())
    }
}

struct Add;

impl InplaceOp2 for Add {
    fn name(&self) -> &'static str {
        "add"
    }

    fn cpu_fwd(&self, x: &mut CpuStorage, at: &Layout, y: &CpuStorage, y_at: &Layout) -> candle_core::Result<()> {
        let pieces = floats(y, y_at)?.par_chunks(PIECE);
        floats_mut(x, at)?.par_chunks_mut(PIECE).zip(pieces).for_each(|(x, y)| vector::add_scaled(x, y, 1.0));
        Ok(())
    }
}

fn floats_mut<'a>(storage: &'a mut CpuStorage, layout: &Layout) -> candle_core::Result<&'a mut [f32]> {
    let (Some((start, end)), CpuStorage::F32(floats)) = (layout.contiguous_offsets(), storage) else {
        candle_core::bail!("a contiguous f32 tensor is needed");
    };
    Ok(&mut floats[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The claim [`Widened::forward`] pads for: the bits of a row don't depend on how many rows there are.
    #[test]
    fn rows_do_not_know_each_other() {
        let device = Device::Cpu;
        for dtype in [DType::F32, DType::F64] {
            for (input, out) in
                [(16, 8), (48, 24), (64, 16), (64, 64), (128, 384), (768, 64), (1024, 32), (256, 4096)]
            {
                let random = |rows: usize, columns: usize| {
                    Tensor::rand(-1f32, 1.0, (rows, columns), &device).unwrap().to_dtype(dtype).unwrap()
                };
                let all = random(330, input);
                let linear = Linear::new(random(out, input), None).widened(dtype).unwrap();
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
}

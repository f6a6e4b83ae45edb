//! Work of a layer on rows beside products: norms, the gated activation, sums. On the CPU loops over f32 or f64; elsewhere
//! candle's.

use anyhow::{Result, bail};
use candle_core::{CpuStorage, DType, Device, InplaceOp2, Layout, Storage, Tensor, WithDType};
use rayon::prelude::*;

use crate::lm::shape::parts::Activation;
use crate::vector;

/// Loops over rows on the host, in one type of numbers.
trait RowLoops: WithDType {
    fn rms_norm(row: &[Self], weight: &[Self], eps: f32, out: &mut [Self]);
    /// Function that computes [`gated`] for an activation.
    fn gated(activation: Activation) -> fn(&mut [Self], &[Self]);
    fn add(onto: &mut [Self], row: &[Self]);
    fn of(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

impl RowLoops for f32 {
    fn rms_norm(row: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        vector::rms_norm(row, weight, eps, out);
    }

    fn gated(activation: Activation) -> fn(&mut [f32], &[f32]) {
        match activation {
            Activation::Silu => vector::silu_mul,
            Activation::GeluTanh => vector::gelu_mul,
            Activation::LimitedSwiglu => vector::limited_swiglu,
        }
    }

    fn add(onto: &mut [f32], row: &[f32]) {
        vector::add_scaled(onto, row, 1.0);
    }

    fn of(storage: &mut CpuStorage) -> Option<&mut [f32]> {
        if let CpuStorage::F32(floats) = storage { Some(floats) } else { None }
    }
}

impl RowLoops for f64 {
    fn rms_norm(row: &[f64], weight: &[f64], eps: f32, out: &mut [f64]) {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        for ((y, x), w) in out.iter_mut().zip(row).zip(weight) {
            *y = x * scale * w;
        }
    }

    fn gated(activation: Activation) -> fn(&mut [f64], &[f64]) {
        match activation {
            Activation::Silu => vector::silu_mul_f64,
            Activation::GeluTanh => vector::gelu_mul_f64,
            Activation::LimitedSwiglu => vector::limited_swiglu_f64,
        }
    }

    fn add(onto: &mut [f64], row: &[f64]) {
        for (y, x) in onto.iter_mut().zip(row) {
            *y += x;
        }
    }

    fn of(storage: &mut CpuStorage) -> Option<&mut [f64]> {
        if let CpuStorage::F64(floats) = storage { Some(floats) } else { None }
    }
}

/// Computes x / rms(x) * weight, row by row, for x (rows, hidden).
pub(in crate::lm) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    fn here<T: RowLoops>(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
        let normed = on_host([x, weight], |[x, weight]: [&[T]; 2]| {
            let mut out = vec![T::zero(); x.len()];
            let hidden = weight.len();
            let rows = out.par_chunks_exact_mut(hidden).zip(x.par_chunks_exact(hidden)).with_min_len(64);
            rows.for_each(|(out, x)| T::rms_norm(x, weight, eps, out));
            out
        })?;
        Ok(Tensor::from_vec(normed, x.shape(), &Device::Cpu)?)
    }
    match x.dtype() {
        DType::F32 if x.device().is_cpu() => here::<f32>(x, weight, eps),
        DType::F64 if x.device().is_cpu() => here::<f64>(x, weight, eps),
        dtype => Ok(candle_nn::ops::rms_norm_slow(x, &weight.to_dtype(dtype)?, eps)?),
    }
}

/// Computes activation(gate) * up in the memory of the gate; both are (rows, intermediate).
pub(in crate::lm) fn gated(gate: Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
    Ok(match (gate.dtype(), activation) {
        (DType::F32, _) if gate.device().is_cpu() => in_place(gate, up, f32::gated(activation))?,
        (DType::F64, _) if gate.device().is_cpu() => in_place(gate, up, f64::gated(activation))?,
        (_, Activation::Silu) => (candle_nn::ops::silu(&gate)? * up)?,
        (_, Activation::GeluTanh) => (gate.gelu()? * up)?,
        (_, Activation::LimitedSwiglu) => {
            let gate = gate.minimum(vector::SWIGLU_LIMIT)?;
            let up = up.clamp(-vector::SWIGLU_LIMIT, vector::SWIGLU_LIMIT)?;
            let sigmoid = candle_nn::ops::sigmoid(&(&gate * f64::from(vector::SWIGLU_SLOPE))?)?;
            ((gate * sigmoid)? * (up + 1.0)?)?
        }
    })
}

/// Computes x + y in the memory of x (rows, out); y has the same shape, or is one row (out) that is added to all.
pub(in crate::lm) fn add(x: Tensor, y: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F32 if x.device().is_cpu() => in_place(x, y, <f32 as RowLoops>::add),
        DType::F64 if x.device().is_cpu() => in_place(x, y, <f64 as RowLoops>::add),
        _ => Ok(x.broadcast_add(y)?),
    }
}

fn in_place<T: RowLoops>(x: Tensor, y: &Tensor, loops: fn(&mut [T], &[T])) -> Result<Tensor> {
    x.inplace_op2(y, &InPlace(loops))?;
    Ok(x)
}

/// The numbers of a contiguous tensor on the host, without a copy.
fn numbers<'a, T: WithDType>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [T]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        candle_core::bail!("a contiguous tensor is needed, not one of strides {:?}", layout.stride());
    };
    Ok(&storage.as_slice()?[start..end])
}

/// Calls a function with the numbers of some tensors on the host in one type, without a copy if they are there already.
pub(in crate::lm) fn on_host<T: WithDType, const N: usize, R>(
    tensors: [&Tensor; N],
    call: impl FnOnce([&[T]; N]) -> R,
) -> Result<R> {
    let to_host = |tensor: &Tensor| tensor.to_dtype(T::DTYPE)?.to_device(&Device::Cpu)?.contiguous();
    let host = tensors.into_iter().map(to_host).collect::<candle_core::Result<Vec<_>>>()?;
    let guards: Vec<_> = host.iter().map(Tensor::storage_and_layout).collect();
    let mut slices: [&[T]; N] = [&[]; N];
    for (slice, (storage, layout)) in slices.iter_mut().zip(&guards) {
        let Storage::Cpu(storage) = &**storage else { bail!("a tensor moved to the host is not on the host") };
        *slice = numbers(storage, layout)?;
    }
    Ok(call(slices))
}

/// Number of values per task of a thread.
const PIECE: usize = 1 << 15;

/// Operation x <- f(x, y), element by element. A shorter y is repeated.
struct InPlace<T>(fn(&mut [T], &[T]));

impl<T: RowLoops> InplaceOp2 for InPlace<T> {
    fn name(&self) -> &'static str {
        "in-place"
    }

    fn cpu_fwd(&self, x: &mut CpuStorage, at: &Layout, y: &CpuStorage, y_at: &Layout) -> candle_core::Result<()> {
        let (Some((start, end)), Some(x)) = (at.contiguous_offsets(), T::of(x)) else {
            candle_core::bail!("a contiguous tensor of {} is needed", T::DTYPE.as_str());
        };
        let (x, y) = (&mut x[start..end], numbers(y, y_at)?);
        let piece = if y.len() < x.len() { y.len() } else { PIECE };
        x.par_chunks_mut(piece).enumerate().with_min_len(PIECE / piece).for_each(|(index, x)| {
            (self.0)(x, &y[index * piece % y.len()..][..x.len()]);
        });
        Ok(())
    }
}

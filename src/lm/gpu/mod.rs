//! Attention over bounded caches on a device: the same steps as `lm::attention`, by kernels.
//!
//! The kernels are plain CUDA C++ (`kernels/`). Two devices run them: an NVIDIA GPU (feature `cuda`), and this machine, where a C++
//! compiler takes the same files (feature `emulate`), so that all but the launch itself is tested without a GPU.

#![cfg_attr(
    not(any(feature = "cuda", feature = "emulate")),
    expect(dead_code, reason = "without a device nothing is made for one")
)]

mod arena;
mod attend;
mod batcher;
mod benchmark;
mod cache;
mod check;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
#[cfg(feature = "emulate")]
mod emulated;
mod launch;
mod params;
mod score;

pub(super) use attend::{GpuAttention, GpuText, WriterCall, WriterResult};
pub(super) use batcher::Member;
pub use benchmark::Measured;
pub(super) use benchmark::{Timed, Times, benchmark_card, benchmark_kernels};
pub(super) use cache::GpuCache;
pub(super) use check::{check, check_once};
pub(super) use params::ScoredRow;

#[cfg(feature = "emulate")]
pub use emulated::{Emulation, WarpOrder};

/// Attention by an emulated GPU.
#[cfg(feature = "emulate")]
pub(super) fn emulated(emulation: &Emulation) -> anyhow::Result<GpuAttention> {
    Ok(GpuAttention::new(Box::new(emulated::EmulatedGpu::new(emulation)?)))
}

#[cfg(feature = "cuda")]
pub(super) use cuda::{driver_version, give_memory_back};

/// Attention by an NVIDIA GPU.
///
/// # Errors
/// Kernels that the GPU's driver cannot load, and a device that has a stream for each thread.
#[cfg(feature = "cuda")]
pub(super) fn on_cuda(device: &candle_core::CudaDevice) -> anyhow::Result<GpuAttention> {
    Ok(GpuAttention::new(Box::new(cuda::CudaGpu::new(device)?)))
}

//! Attention over bounded caches on a device: the same steps as `lm::attention`, by kernels.
//!
//! The kernels are plain CUDA C++ (`kernels/`). Two devices run them: an NVIDIA GPU (feature `cuda`), and this machine, where a C++
//! compiler takes the same files (feature `emulate`), so that all but the launch itself is tested without a GPU.

mod arena;
mod attend;
mod cache;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
#[cfg(feature = "emulate")]
mod emulated;
mod params;

pub(super) use attend::{GpuAttention, GpuText};
pub(super) use cache::GpuCache;

/// The device that emulates a GPU; `descending` runs the threads of a block in the opposite order.
#[cfg(feature = "emulate")]
pub(super) fn emulated(descending: bool) -> anyhow::Result<GpuAttention> {
    Ok(GpuAttention::new(Box::new(emulated::EmulatedGpu::new(descending)?)))
}

/// Attention by an NVIDIA GPU.
///
/// # Errors
/// Kernels that the GPU's driver cannot load, and a device that has a stream for each thread.
#[cfg(feature = "cuda")]
pub(super) fn on_cuda(device: &candle_core::CudaDevice) -> anyhow::Result<GpuAttention> {
    Ok(GpuAttention::new(Box::new(cuda::CudaGpu::new(device)?)))
}

//! Attention over bounded caches on a device: the same steps as `lm::attention`, by kernels.
//!
//! The kernels are plain CUDA C++ (`kernels/`). Two devices run them: an NVIDIA GPU (feature `cuda`), and this machine, where a C++
//! compiler takes the same files (feature `emulate`), so that all but the launch itself is tested without a GPU.

mod arena;
mod attend;
mod cache;
mod device;
#[cfg(feature = "emulate")]
mod emulated;
mod params;

pub(super) use attend::{GpuAttention, GpuText};
pub(super) use cache::GpuCache;

#[cfg(feature = "emulate")]
pub use emulated::Emulation;

/// Attention by an emulated GPU.
#[cfg(feature = "emulate")]
pub(super) fn emulated(emulation: &Emulation) -> anyhow::Result<GpuAttention> {
    Ok(GpuAttention::new(Box::new(emulated::EmulatedGpu::new(emulation)?)))
}

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

use anyhow::Result;

/// The device that emulates a GPU; `descending` runs the threads of a block in the opposite order.
#[cfg(feature = "emulate")]
pub(super) fn emulated(descending: bool) -> Result<GpuAttention> {
    Ok(GpuAttention::new(Box::new(emulated::EmulatedGpu::new(descending)?)))
}

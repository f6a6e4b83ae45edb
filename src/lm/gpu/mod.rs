//! Attention over bounded caches on a device: the steps of `lm::network::attention` as kernels, which `lm::device` launches.
//!
//! The kernels are plain CUDA C++ (`kernels/`). Two devices run them: an NVIDIA GPU (feature `cuda`), and this machine, where a C++
//! compiler takes the same files (feature `emulate`), so that all but the launch itself is tested without a GPU.

#![cfg_attr(
    not(any(feature = "cuda", feature = "emulate")),
    expect(dead_code, reason = "without a device nothing is made for one")
)]

pub(super) mod arena;
pub(super) mod cache;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
pub(super) mod device;
#[cfg(feature = "emulate")]
pub(super) mod emulated;
pub(super) mod launch;
pub(super) mod params;
#[cfg(all(test, feature = "emulate"))]
mod tests;

//! Tests of devices that a build has with a feature only: the goldens on the device that `TOVA_BENCH_TEST_DEVICE` names, and
//! attention's CUDA kernels on `emulated`. Without such a feature this program has no tests.
//!
//! It is a program of its own because a feature builds everything again, and all of `tests/it` need not be.
#![cfg(any(feature = "cuda", feature = "emulate"))]

#[cfg(feature = "emulate")]
mod emulated;
#[path = "../it/golden.rs"]
mod golden;
#[cfg(feature = "emulate")]
mod runs;
#[path = "../it/support/mod.rs"]
mod support;

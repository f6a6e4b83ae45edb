//! What a device must be able to do for attention. Kernels, products and copies are done in the order in which they are asked for.

use std::any::Any;
use std::fmt::Debug;

use anyhow::Result;
use candle_core::{DType, Tensor};

use super::params::{Address, Layer, Plain, bytes_of};

/// The kernels, in the order of `kernels/kernels.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kernel {
    Place,
    Softmax,
    Received,
    Scan,
    Outputs,
    Loss,
    Refill,
    Score,
    Copy,
}

/// Memory of a device; freed when dropped.
#[derive(Debug)]
pub struct Buffer {
    pub address: Address,
    pub bytes: usize,
    /// Frees it.
    pub _owner: Box<dyn Any + Send + Sync>,
}

/// c (m, n) <- a (m, k) x b, in f32, `batches` of them. The factors may have another type. The rows of `a` and `c` are `stride` numbers apart; `b` is (k, n), or
/// (n, k) if it is transposed.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Factor,
    pub b: Factor,
    pub b_is_transposed: bool,
    pub c: Factor,
    pub batches: usize,
    pub factors: DType,
}

/// A matrix of each batch.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    pub address: Address,
    /// Numbers from one row to the next, and from one batch to the next.
    pub stride: usize,
    pub batch: usize,
}

/// A launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub kernel: Kernel,
    pub grid: [usize; 2],
    /// Threads of a block, a multiple of 32.
    pub threads: usize,
    /// Shared memory of a block.
    pub shared_bytes: usize,
    pub layer: Layer,
    /// Of the texts.
    pub texts: Address,
}

/// Waits until work is done, and says how many microseconds the device took for it.
pub type Elapsed = Box<dyn FnOnce() -> Result<f64> + Send>;

/// A device with kernels.
pub trait Gpu: Debug + Send + Sync {
    /// What its results follow from: the card, its driver, the kernels.
    fn identity(&self) -> Result<String>;
    /// Memory with any contents.
    fn allocate(&self, bytes: usize) -> Result<Buffer>;
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()>;
    /// Waits for everything asked for so far.
    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<()>;
    /// Where the numbers of a contiguous tensor of this device are.
    fn address_of(&self, tensor: &Tensor) -> Result<Address>;
    fn product(&self, product: Product) -> Result<()>;
    fn launch(&self, launch: Launch) -> Result<()>;
    /// Asks for what `work` asks for, between two readings of the device's clock.
    fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Elapsed>;
    /// Threads that a block should have where `wanted` would be best, a multiple of 32.
    fn threads(&self, wanted: usize) -> usize {
        wanted
    }
    /// Whether memory for a block is allocated anew for each, so that its bounds can be checked.
    fn is_checked(&self) -> bool {
        false
    }
}

/// Launches a kernel that has a parameter of its own.
///
/// # Errors
/// Errors of the device.
pub(in crate::lm) fn launch_one<T: Plain>(
    gpu: &dyn Gpu,
    kernel: Kernel,
    (blocks, threads, shared_bytes): (usize, usize, usize),
    layer: Layer,
    parameter: T,
) -> Result<()> {
    // It is freed in the device's order, after the launch.
    let memory = gpu.allocate(size_of::<T>())?;
    gpu.upload(memory.address, bytes_of(&[parameter]))?;
    let threads = gpu.threads(threads);
    gpu.launch(Launch { kernel, grid: [blocks, 1], threads, shared_bytes, layer, texts: memory.address })
}

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
    Transpose,
    Rank,
    Walk,
    Scan,
    Exclude,
    Outputs,
    Loss,
    Refill,
    Score,
    Copy,
    /// Attention over heads of at most 64 dimensions, and so on.
    Attend64,
    Attend96,
    Attend128,
    Attend256,
}

impl Kernel {
    /// The kernel for attention over heads of `dim` dimensions, with the bytes of shared memory of a block (`kernels/attend.cu`). `None` for
    /// heads smaller than those of published models, for which it would multiply zeros, and for heads of more than 256.
    pub fn attending(dim: usize) -> Option<(Kernel, usize)> {
        let (kernel, dim, columns) = match dim {
            64 => (Kernel::Attend64, 64, 64),
            65..=96 => (Kernel::Attend96, 96, 64),
            97..=128 => (Kernel::Attend128, 128, 64),
            129..=256 => (Kernel::Attend256, 256, 16),
            _ => return None,
        };
        let (rows, padding) = (64, 8);
        let vectors = 2 * (rows + columns) * (dim + padding) * size_of::<u16>();
        Some((kernel, vectors + (rows + columns + 2) * size_of::<f32>()))
    }
}

/// Memory of a device, freed when dropped.
#[derive(Debug)]
pub struct Buffer {
    pub address: Address,
    pub bytes: usize,
    /// Owner of the memory, which frees it.
    pub _owner: Box<dyn Any + Send + Sync>,
}

/// Product c (m, n) <- a (m, k) x b in f32, `batches` times. The factors may have another type. Rows of `a` and `c` lie `stride`
/// numbers apart; `b` is (k, n), or (n, k) if it is transposed.
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

/// Factor of a product: one matrix for each batch.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    pub address: Address,
    /// Numbers from one row to the next; `batch` counts those from one batch to the next.
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
    /// Bytes of shared memory of a block.
    pub shared_bytes: usize,
    pub layer: Layer,
    /// Address of the texts.
    pub texts: Address,
}

/// Function that waits until work is done, and returns how many microseconds the device took for it.
pub type Elapsed = Box<dyn FnOnce() -> Result<f64> + Send>;

/// Device with kernels.
pub trait Gpu: Debug + Send + Sync {
    /// Names what results depend on: the card, its driver, the kernels.
    fn identity(&self) -> Result<String>;
    /// Allocates memory with any contents.
    fn allocate(&self, bytes: usize) -> Result<Buffer>;
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()>;
    /// Waits for everything asked for so far, and copies bytes to the host.
    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<()>;
    /// Address of the numbers of a contiguous tensor on this device.
    fn address_of(&self, tensor: &Tensor) -> Result<Address>;
    fn product(&self, product: Product) -> Result<()>;
    fn launch(&self, launch: Launch) -> Result<()>;
    /// Runs `work` between two readings of the device's clock.
    fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Elapsed>;
    /// Number of threads that a block of a kernel should have if `wanted` would be best, a multiple of 32. The work is done with any.
    fn threads(&self, kernel: Kernel, wanted: usize) -> usize;
    /// Whether memory for a block is allocated anew for each, so that its bounds can be checked.
    fn is_checked(&self) -> bool {
        false
    }
}

/// Launches a kernel that has a type of parameters of its own, with blocks for each of them.
///
/// # Errors
///
/// Errors of the device.
pub(in crate::lm) fn launch_one<T: Plain>(
    gpu: &dyn Gpu,
    kernel: Kernel,
    (blocks, threads, shared_bytes): (usize, usize, usize),
    layer: Layer,
    parameters: &[T],
) -> Result<()> {
    // It is freed in the device's order, after the launch.
    let memory = gpu.allocate(size_of_val(parameters))?;
    gpu.upload(memory.address, bytes_of(parameters))?;
    let (grid, threads) = ([blocks, parameters.len()], gpu.threads(kernel, threads));
    gpu.launch(Launch { kernel, grid, threads, shared_bytes, layer, texts: memory.address })
}

//! An NVIDIA GPU, through candle's device. Everything is asked for on its stream, as candle's own work is, and so happens in the
//! order in which it was asked for.

use std::ffi::{c_int, c_longlong, c_uint, c_void};
use std::fmt::Display;
use std::ptr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use candle_core::{CudaDevice, DType, Storage, Tensor};
use cudarc::cublas::sys::{
    cublasComputeType_t, cublasGemmAlgo_t, cublasGetVersion_v2, cublasOperation_t, cudaDataType_t,
};
use cudarc::cublas::{CudaBlas, result::gemm_strided_batched_ex};
use cudarc::driver::sys::{
    CUevent_flags, CUfunction_attribute, CUmemPool_attribute, CUmemoryPool, cuDeviceGetDefaultMemPool,
    cuDriverGetVersion, cuMemPoolSetAttribute, cuMemPoolTrimTo,
};
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, result};
use sha2::{Digest, Sha256};

use super::device::{Buffer, Elapsed, Factor, Gpu, Kernel, Launch, Product};
use super::params::{Address, Layer};

/// All kernels, translated by build.rs. The driver compiles them for its GPU, and keeps what it compiled on the disk.
const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));
/// Names of the kernels, in the order of [`Kernel`].
const KERNELS: [&str; 17] = [
    "place",
    "softmax",
    "received",
    "transpose",
    "rank",
    "walk",
    "scan",
    "exclude",
    "outputs",
    "loss",
    "refill",
    "score",
    "copy",
    "attend_64",
    "attend_96",
    "attend_128",
    "attend_256",
];

/// A GPU and its kernels.
#[derive(Debug)]
pub(in crate::lm) struct CudaGpu {
    stream: Arc<CudaStream>,
    blas: Arc<CudaBlas>,
    /// Kernels, each with the largest number of threads that a block of it may have.
    kernels: Vec<(CudaFunction, usize)>,
}

/// Memory that is freed in the stream's order.
struct Owned {
    memory: CudaSlice<u8>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // It may be dropped by a thread that has not used the GPU yet. Errors are told by the next call.
        let context = self.memory.context();
        context.record_err(context.bind_to_thread());
    }
}

/// Gives memory that was freed but kept back to the driver.
pub fn give_memory_back(device: &CudaDevice) {
    if let Some(pool) = memory_pool(device.cuda_stream().context()) {
        // SAFETY: the pool keeps what is in use.
        #[expect(unsafe_code)]
        unsafe {
            cuMemPoolTrimTo(pool, 0);
        }
    }
}

/// Pool in which the driver keeps freed memory; `None` if it keeps none.
fn memory_pool(context: &CudaContext) -> Option<CUmemoryPool> {
    let mut pool = ptr::null_mut();
    // SAFETY: writes the address of the pool, which lives as long as the device.
    #[expect(unsafe_code)]
    let asked = unsafe { cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device()) };
    asked.result().ok().map(|()| pool)
}

/// Result of a call of the GPU, whose error names what was asked for.
trait Asked<T> {
    fn asked(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Display> Asked<T> for Result<T, E> {
    fn asked(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| anyhow!("the GPU cannot {}: {error}", what()))
    }
}

/// CUDA version that the driver is for: 13000 for 13.0.
pub fn driver_version() -> Result<i32> {
    let mut driver = 0;
    // SAFETY: writes a number.
    #[expect(unsafe_code)]
    let asked = unsafe { cuDriverGetVersion(&raw mut driver) };
    asked.result().asked(|| "tell its driver's version".into())?;
    Ok(driver)
}

impl CudaGpu {
    /// Loads the kernels.
    ///
    /// # Errors
    ///
    /// A driver that is too old for them, or a device with a stream of its own for each thread.
    pub fn new(device: &CudaDevice) -> Result<CudaGpu> {
        let stream = device.cuda_stream();
        // CU_STREAM_PER_THREAD: work that two threads ask for would have no order.
        ensure!(
            stream.cu_stream() as usize != 2,
            "attention needs a GPU that was opened with a stream of its own"
        );
        let context: &Arc<CudaContext> = stream.context();
        let module = context.load_module(PTX.into()).asked(|| "load the kernels of attention".into())?;
        let mut kernels = Vec::with_capacity(KERNELS.len());
        for name in KERNELS {
            let what = || format!("load the kernel {name}");
            let function = module.load_function(name).asked(what)?;
            let threads = function.max_threads_per_block().asked(what)?;
            kernels.push((function, threads as usize));
        }
        for (kernel, bytes) in [64, 96, 128, 256].into_iter().filter_map(Kernel::attending) {
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let what = || format!("give {bytes} bytes of shared memory to a block of attention");
            kernels[kernel as usize].0.set_attribute(most, bytes as i32).asked(what)?;
        }
        // SAFETY: candle and attention use this context with this stream only, in whose order memory is used and freed.
        // Without this, two events would be made for each tensor, and recorded at each use.
        #[expect(unsafe_code)]
        unsafe {
            device.disable_event_tracking();
        }
        if let Some(pool) = memory_pool(context) {
            // Otherwise each wait would give freed memory back to the driver, to be asked for again.
            let (threshold, mut all) = (CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX);
            // SAFETY: reads a number. Where it cannot be set, memory is only slower to get.
            #[expect(unsafe_code)]
            unsafe {
                cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast());
            }
        }
        Ok(CudaGpu { blas: device.cublas_handle(), kernels, stream })
    }

    /// Makes this GPU the one that calls of this thread are for.
    fn bind(&self) -> Result<()> {
        // Errors of earlier work are told here.
        self.stream.context().bind_to_thread().asked(|| "go on".into())
    }
}

impl Gpu for CudaGpu {
    fn identity(&self) -> Result<String> {
        let context = self.stream.context();
        let name = context.name().asked(|| "tell its name".into())?;
        let (major, minor) = context.compute_capability().asked(|| "tell its compute capability".into())?;
        let driver = driver_version()?;
        let mut blas = 0;
        // SAFETY: writes a number.
        #[expect(unsafe_code)]
        let asked = unsafe { cublasGetVersion_v2(*self.blas.handle(), &raw mut blas) };
        asked.result().asked(|| "tell the version of cuBLAS".into())?;
        Ok(format!("{name} {major}.{minor} driver {driver} cuBLAS {blas} kernels {:x}", Sha256::digest(PTX)))
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        // SAFETY: any bytes are valid ones, and whoever asks for the memory writes what it reads.
        #[expect(unsafe_code)]
        let memory = unsafe { self.stream.alloc::<u8>(bytes.max(1)) };
        let memory = memory.asked(|| format!("allocate {bytes} bytes"))?;
        let (address, recorded) = memory.device_ptr(&self.stream);
        drop(recorded);
        Ok(Buffer { address, bytes, _owner: Box::new(Owned { memory }) })
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: callers give addresses of buffers with room for the bytes. These are in pageable memory, so the driver has
        // taken a copy of them when it returns.
        #[expect(unsafe_code)]
        let copied = unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) };
        copied.asked(|| format!("copy {} bytes from the host", bytes.len()))
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<()> {
        let len = bytes.len();
        let what = || format!("copy {len} bytes to the host");
        self.bind()?;
        if len > 0 {
            // SAFETY: callers give addresses of buffers with as many bytes, and it is waited for the copy below.
            #[expect(unsafe_code)]
            let copied = unsafe { result::memcpy_dtoh_async(bytes, from, self.stream.cu_stream()) };
            copied.asked(what)?;
        }
        // Errors of kernels are told here too.
        self.stream.synchronize().asked(|| format!("{}, or finish the kernels before", what()))
    }

    fn address_of(&self, tensor: &Tensor) -> Result<Address> {
        ensure!(tensor.is_contiguous(), "a tensor {:?} for the GPU is not contiguous", tensor.shape());
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cuda(storage) = &*storage else { bail!("a tensor {:?} is not on the GPU", tensor.shape()) };
        // The memory is used and freed on one stream, so nothing else keeps the order.
        let address = match tensor.dtype() {
            DType::F32 => storage.as_cuda_slice::<f32>()?.device_ptr(&self.stream).0,
            DType::BF16 => storage.as_cuda_slice::<half::bf16>()?.device_ptr(&self.stream).0,
            DType::F16 => storage.as_cuda_slice::<half::f16>()?.device_ptr(&self.stream).0,
            other => bail!("attention on the GPU takes no tensor of {other:?}"),
        };
        Ok(address + (layout.start_offset() * tensor.dtype().size_in_bytes()) as Address)
    }

    fn product(&self, asked: Product) -> Result<()> {
        let Product { m, n, k, a, b, b_is_transposed, c, batches, factors } = asked;
        self.bind()?;
        let what = || format!("multiply ({m}, {k}) by ({k}, {n}), {batches} times");
        let int = |number: usize| c_int::try_from(number).with_context(what);
        let stride = |factor: Factor| c_longlong::try_from(factor.batch).with_context(what);
        // cuBLAS has columns where we have rows, so it sees every matrix transposed: c^T = b^T a^T.
        let as_it_is = cublasOperation_t::CUBLAS_OP_N;
        let b_operation = if b_is_transposed { cublasOperation_t::CUBLAS_OP_T } else { as_it_is };
        let (alpha, beta) = (1.0_f32, 0.0_f32);
        let number = cudaDataType_t::CUDA_R_32F;
        let sums = cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let (of_factors, compute) = match factors {
            // Otherwise factors may be rounded to TF32, which has 10 bits, where the environment or the handle allow it.
            DType::F32 => (number, cublasComputeType_t::CUBLAS_COMPUTE_32F_PEDANTIC),
            DType::BF16 => (cudaDataType_t::CUDA_R_16BF, sums),
            DType::F16 => (cudaDataType_t::CUDA_R_16F, sums),
            other => bail!("the GPU has no product of {other:?} in f32"),
        };
        // SAFETY: callers give tables of these sizes, and the result is in a buffer of its own. alpha and beta are read before
        // the call returns, because the handle's pointers are to the host's memory.
        #[expect(unsafe_code)]
        let multiplied = unsafe {
            gemm_strided_batched_ex(
                *self.blas.handle(),
                b_operation,
                as_it_is,
                int(n)?,
                int(m)?,
                int(k)?,
                ptr::from_ref(&alpha).cast(),
                b.address as *const c_void,
                of_factors,
                int(b.stride)?,
                stride(b)?,
                a.address as *const c_void,
                of_factors,
                int(a.stride)?,
                stride(a)?,
                ptr::from_ref(&beta).cast(),
                c.address as *mut c_void,
                number,
                int(c.stride)?,
                stride(c)?,
                int(batches)?,
                compute,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        multiplied.asked(what)
    }

    fn launch(&self, launch: Launch) -> Result<()> {
        let Launch { kernel, grid, threads, shared_bytes, layer, texts } = launch;
        let name = KERNELS[kernel as usize];
        let (function, _) = &self.kernels[kernel as usize];
        let [x, y] = grid;
        let what = || format!("run the kernel {name} with {x} * {y} blocks of {threads} threads");
        let int = |number: usize| c_uint::try_from(number).with_context(what);
        self.bind()?;
        let mut parameters =
            [ptr::from_ref::<Layer>(&layer).cast_mut().cast(), ptr::from_ref::<Address>(&texts).cast_mut().cast()];
        // SAFETY: all kernels have these parameters, which are copied before the call returns. The texts' addresses are of
        // buffers as large as the kernels need; the emulation checks it.
        #[expect(unsafe_code)]
        let launched = unsafe {
            result::launch_kernel(
                function.cu_function(),
                (int(x)?, int(y)?, 1),
                (int(threads)?, 1, 1),
                int(shared_bytes)?,
                self.stream.cu_stream(),
                &mut parameters,
            )
        };
        launched.asked(what)
    }

    fn threads(&self, kernel: Kernel, wanted: usize) -> usize {
        // So many as its registers allow.
        wanted.min(self.kernels[kernel as usize].1 / 32 * 32)
    }

    fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Elapsed> {
        let event = || {
            let event = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            event.asked(|| "record an event".into())
        };
        let start = event()?;
        work()?;
        let end = event()?;
        Ok(Box::new(move || {
            let milliseconds = start.elapsed_ms(&end).asked(|| "finish what is timed".into())?;
            Ok(1e3 * f64::from(milliseconds))
        }))
    }
}

//! Where a model is computed and the memory in use there; attention on a GPU as launches of kernels.

pub(super) mod attend;
pub(super) mod batcher;
mod score;

use std::sync::Arc;

use anyhow::{Result, bail};
use candle_core::DeviceLocation;

use self::attend::GpuAttention;
use crate::format::counted;
use crate::lm::arithmetic::types::Arithmetic;
#[cfg(feature = "emulate")]
use crate::lm::gpu::emulated::{EmulatedGpu, Emulation};
use crate::lm::machine::host::{host_memory, kibibytes, processor_name};
use crate::vector;

/// Device that a model is computed on.
#[derive(Clone, Debug)]
pub struct Device {
    /// Device of products with weights.
    pub(super) products: candle_core::Device,
    /// GPU that computes attention; `None` if the host does.
    pub(super) attention: Option<Arc<GpuAttention>>,
    /// Reason why a GPU is not used, or is used for products only.
    pub(in crate::lm) refused: Option<Arc<str>>,
    /// Arithmetic of products on the host.
    pub(super) arithmetic: Arithmetic,
}

impl Device {
    pub const CPU: Device =
        Device { products: candle_core::Device::Cpu, attention: None, refused: None, arithmetic: Arithmetic::F32 };

    /// This device with another arithmetic of products.
    #[must_use]
    pub fn with_arithmetic(&self, arithmetic: Arithmetic) -> Device {
        Device { arithmetic, ..self.clone() }
    }

    /// Sentence that says why attention runs on the host, or why the GPU is not used at all; `None` if the GPU computes attention,
    /// and without a GPU.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    pub(in crate::lm) fn without_attention(self, error: &anyhow::Error) -> Device {
        let refused = format!("attention runs on the host, because the GPU's failed its check: {error:#}");
        Device { attention: None, refused: Some(refused.into()), ..self }
    }

    /// Checks that the device still works after an error.
    ///
    /// # Errors
    ///
    /// `error` itself, if it is an error of a GPU after which every call fails, such as an access to a wrong address.
    pub fn check_after(&self, error: &anyhow::Error) -> Result<()> {
        let wait = || match &self.attention {
            Some(attention) => attention.wait(),
            None => Ok(self.products.synchronize()?),
        };
        // The first call may tell that memory could not be freed, which is told once.
        if let Err(later) = wait().or_else(|_| wait()) {
            // cuBLAS's handle panics if it cannot be closed.
            std::mem::forget(self.clone());
            bail!(
                "{error:#}; now every call to the GPU fails: {later:#}\n\
                 hint: run the same command again, which keeps what was measured"
            );
        }
        Ok(())
    }

    /// Frees memory of a GPU that is kept for later calls.
    pub fn free_unused(&self) {
        if let Some(attention) = &self.attention {
            attention.free_unused();
        }
    }

    /// Whether a GPU, or its emulation, computes attention.
    pub fn has_attention(&self) -> bool {
        self.attention.is_some()
    }

    /// This device as far as it computes a cache whose attention is the host's.
    #[must_use]
    pub fn with_attention_on_host(&self) -> Device {
        let refused = "the host computes attention of this cache".into();
        Device { attention: None, refused: Some(refused), ..self.clone() }
    }

    /// Number of the GPU in use.
    pub fn gpu(&self) -> Option<usize> {
        match self.products.location() {
            DeviceLocation::Cuda { gpu_id } => Some(gpu_id),
            _ => None,
        }
    }

    /// Number of the GPU that computes attention and holds the caches; `None` if the host does.
    pub fn gpu_of_caches(&self) -> Option<usize> {
        self.attention.as_ref().and(self.gpu())
    }

    /// Device that computes on the processor, with attention by GPU kernels that run there.
    ///
    /// # Errors
    ///
    /// Without a C++ compiler, or with kernels that do not compile.
    #[cfg(feature = "emulate")]
    pub fn emulated(emulation: &Emulation) -> Result<Device> {
        let attention = Some(Arc::new(GpuAttention::new(Box::new(EmulatedGpu::new(emulation)?))));
        Ok(Device { attention, ..Device::CPU })
    }
}

/// Whether an error says that a GPU's memory was not enough. Errors of candle, cuBLAS and our own calls have no type in common, and
/// threads pass them on as texts; the names in them are NVIDIA's.
pub fn is_out_of_memory(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    ["CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED"].iter().any(|name| text.contains(name))
}

/// Free and total bytes of the GPU that this thread used last; `None` without one.
pub fn card_memory() -> Option<(usize, usize)> {
    #[cfg(feature = "cuda")]
    return cudarc::driver::result::mem_get_info().ok();
    #[cfg(not(feature = "cuda"))]
    None
}

/// Name of the device in result rows: the GPU's name, and where the processor computes attention `cpu` with its vector instruction set, on
/// which the last digits of results depend.
pub fn device_name(device: &Device) -> String {
    let processor = format!("cpu ({})", vector::instruction_set());
    match (device.products.is_cpu(), &device.attention) {
        (true, None) => processor,
        (true, Some(_)) => "emulated".into(),
        (false, None) => format!("{}, attention on {processor}", card_name(device)),
        (false, Some(_)) => card_name(device),
    }
}

fn card_name(device: &Device) -> String {
    #[cfg(feature = "cuda")]
    if let Ok(cuda) = device.products.as_cuda_device()
        && let Ok(name) = cuda.cuda_stream().context().name()
    {
        return name;
    }
    let _ = device;
    "cuda".into()
}

/// Name of the device in results that are timings: with the processor and the number of threads. Beside a GPU the processor still
/// asks for everything, and computes attention if the GPU does not.
pub fn machine_name(device: &Device, threads: usize) -> String {
    let processor = processor_name().unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let is_host = device.products.is_cpu() && device.attention.is_none();
    let card = match (is_host, &device.refused) {
        (true, _) => String::new(),
        (false, None) => format!("{} beside ", device_name(device)),
        (false, Some(_)) => format!("{} with attention on the host, ", card_name(device)),
    };
    format!("{card}{processor} ({}), {}", vector::instruction_set(), counted(threads, "thread"))
}

/// Bytes of memory that this process can still take; `None` if the system does not say.
pub fn available_memory() -> Option<u64> {
    host_memory().map(|memory| memory.available)
}

/// Bytes of memory in use, by this process and on the GPU if it uses one. Memory that was freed but kept for later
/// use is returned to the system first. `None` if the system does not say.
pub fn resident_bytes(device: &Device) -> Option<u64> {
    // SAFETY: the call takes no pointer and changes no memory that is in use.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
    #[cfg(feature = "cuda")]
    if let Ok(cuda) = device.products.as_cuda_device() {
        crate::lm::gpu::cuda::give_memory_back(cuda);
    }
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let card =
        if device.products.is_cpu() { 0 } else { card_memory().map_or(0, |(free, total)| (total - free) as u64) };
    Some(kibibytes(&rollup, "Rss:")? + card)
}

//! Where a model is computed, and the memory in use there; attention on a GPU, as launches of kernels.

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

/// Where a model is computed.
#[derive(Clone, Debug)]
pub struct Device {
    /// Products with weights.
    pub(super) products: candle_core::Device,
    /// Attention, if not on the host.
    pub(super) attention: Option<Arc<GpuAttention>>,
    /// What a GPU is not used for, and why.
    pub(in crate::lm) refused: Option<Arc<str>>,
    /// Of products on the host.
    pub(super) arithmetic: Arithmetic,
}

impl Device {
    pub const CPU: Device =
        Device { products: candle_core::Device::Cpu, attention: None, refused: None, arithmetic: Arithmetic::F32 };

    /// The same device with another arithmetic of products.
    #[must_use]
    pub fn with_arithmetic(&self, arithmetic: Arithmetic) -> Device {
        Device { arithmetic, ..self.clone() }
    }

    /// Why the GPU does not compute attention, which then runs on the host, or is not used at all, in a sentence; `None` if it is, and
    /// without a GPU.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    pub(in crate::lm) fn without_attention(self, error: &anyhow::Error) -> Device {
        let refused = format!("attention runs on the host, because the GPU's failed its check: {error:#}");
        Device { attention: None, refused: Some(refused.into()), ..self }
    }

    /// Whether the device still works after an error.
    ///
    /// # Errors
    /// That error, if it is one of those of a GPU after which every call fails, as after an access to a wrong address.
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

    /// Frees the memory of a GPU that is kept for later calls.
    pub fn free_unused(&self) {
        if let Some(attention) = &self.attention {
            attention.free_unused();
        }
    }

    /// The number of the GPU.
    pub fn gpu(&self) -> Option<usize> {
        match self.products.location() {
            DeviceLocation::Cuda { gpu_id } => Some(gpu_id),
            _ => None,
        }
    }

    /// The number of the GPU that computes attention and holds the caches; `None` where the host does.
    pub fn gpu_of_caches(&self) -> Option<usize> {
        self.attention.as_ref().and(self.gpu())
    }

    /// The processor, with attention by GPU kernels that run there.
    ///
    /// # Errors
    /// Without a C++ compiler, or with kernels that do not compile.
    #[cfg(feature = "emulate")]
    pub fn emulated(emulation: &Emulation) -> Result<Device> {
        let attention = Some(Arc::new(GpuAttention::new(Box::new(EmulatedGpu::new(emulation)?))));
        Ok(Device { attention, ..Device::CPU })
    }
}

/// Whether a GPU's memory was not enough. Errors of candle, cuBLAS and our own calls have no type in common, and threads pass
/// them on as texts; the names in them are NVIDIA's.
pub fn is_out_of_memory(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    ["CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED"].iter().any(|name| text.contains(name))
}

/// Free and total bytes of the GPU that was used last on this thread; `None` without one.
pub fn card_memory() -> Option<(usize, usize)> {
    #[cfg(feature = "cuda")]
    return cudarc::driver::result::mem_get_info().ok();
    #[cfg(not(feature = "cuda"))]
    None
}

/// The device as result rows name it: the GPU's name, or `cpu` with its vector instruction set, on which the last
/// digits of results depend.
pub fn device_name(device: &Device) -> String {
    #[cfg(feature = "cuda")]
    if let Ok(cuda) = device.products.as_cuda_device() {
        let name = cuda.cuda_stream().context().name();
        return name.unwrap_or_else(|_| "cuda".into());
    }
    match (device.products.is_cpu(), &device.attention) {
        (true, None) => format!("cpu ({})", vector::instruction_set()),
        (true, Some(_)) => "emulated".into(),
        _ => "cuda".into(),
    }
}

/// The same with the processor and the number of threads, for results that are timings. Beside a GPU the processor still asks for
/// everything, and computes attention if the GPU's was refused.
pub fn machine_name(device: &Device, threads: usize) -> String {
    let processor = processor_name().unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let is_host = device.products.is_cpu() && device.attention.is_none();
    let card = match (is_host, &device.refused) {
        (true, _) => String::new(),
        (false, None) => format!("{} beside ", device_name(device)),
        (false, Some(_)) => format!("{} with attention on the host, ", device_name(device)),
    };
    format!("{card}{processor} ({}), {}", vector::instruction_set(), counted(threads, "thread"))
}

/// Memory this process can still take, in bytes; `None` if the system does not say.
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

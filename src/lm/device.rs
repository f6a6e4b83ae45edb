//! Where a model is computed, and the memory in use there.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use candle_core::DeviceLocation;

use super::cpu_peak::Processor;
#[cfg(feature = "emulate")]
use super::gpu::Emulation;
use super::gpu::{GpuAttention, Measured, Timed, Times};
use super::host::{host_memory, kibibytes};
use crate::format::counted;
use crate::vector;

/// Where a model is computed.
#[derive(Clone, Debug)]
pub struct Device {
    /// Products with weights.
    pub(super) products: candle_core::Device,
    /// Attention, if not on the host.
    pub(super) attention: Option<Arc<GpuAttention>>,
    /// Why a GPU does not compute attention.
    refused: Option<Arc<str>>,
}

impl Device {
    pub const CPU: Device = Device { products: candle_core::Device::Cpu, attention: None, refused: None };

    /// Why the GPU does not compute attention, which then runs on the host; `None` if it does, and without a GPU.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Compares attention on this device with the host's. Returns the number of cases; `None` where it is the host's.
    ///
    /// # Errors
    /// The first case that differs.
    pub fn check(&self) -> Result<Option<usize>> {
        let on_host = Device { attention: None, ..self.clone() };
        self.attention.as_ref().map(|_| super::gpu::check(self, &on_host)).transpose()
    }

    /// Measures what the device itself gives to attention or, with `kernels`, how long each kernel takes.
    ///
    /// # Errors
    /// A device whose attention is the host's, and errors of the device.
    pub fn benchmark(&self, kernels: bool) -> Result<Vec<Measured>> {
        let own = self.attention.as_ref().context("attention runs on the host, and only a GPU's is measured")?;
        if !kernels {
            return super::gpu::benchmark_card(self, own);
        }
        let times = Times::default();
        let timed = GpuAttention::new(Box::new(Timed::new(own.clone(), times.clone(), self.products.is_cpu())?));
        let timed = Device { attention: Some(Arc::new(timed)), ..self.clone() };
        super::gpu::benchmark_kernels(&timed, &times)
    }

    /// The same device if it computes attention as the host does, which is compared once for each card, driver and build of this
    /// program; otherwise with attention on the host.
    #[must_use]
    pub fn checked(self) -> Device {
        let Some(attention) = &self.attention else { return self };
        let folder = dirs::cache_dir().map(|folder| folder.join("tova-bench").join("checked-gpus"));
        let check = || self.check().map(Option::unwrap_or_default);
        let checked =
            attention.identity().and_then(|device| super::gpu::check_once(&device, folder.as_deref(), check));
        match checked {
            Ok(()) => self,
            Err(error) => {
                Device { attention: None, refused: Some(format!("{error:#}").into()), products: self.products }
            }
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
        let attention = Some(Arc::new(super::gpu::emulated(emulation)?));
        Ok(Device { attention, ..Device::CPU })
    }
}

/// `cpu`, `cuda`, `cuda:N`, `auto`, or `emulated` with that feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU if there is one and this build can use it, else the CPU.
    #[default]
    Auto,
    Cpu,
    Cuda(usize),
    /// Products on the processor, attention by the GPU's kernels on the processor.
    #[cfg(feature = "emulate")]
    Emulated,
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            #[cfg(feature = "emulate")]
            "emulated" => Ok(DeviceChoice::Emulated),
            _ => match text.strip_prefix("cuda:").map(str::parse) {
                Some(Ok(ordinal)) => Ok(DeviceChoice::Cuda(ordinal)),
                _ => Err(format!("{text:?} is no device; devices are cpu, cuda, cuda:N and auto")),
            },
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            #[cfg(feature = "emulate")]
            DeviceChoice::Emulated => f.write_str("emulated"),
        }
    }
}

impl DeviceChoice {
    /// Opens the device.
    ///
    /// # Errors
    /// A GPU that was asked for and cannot be used.
    pub fn open(self) -> Result<Device> {
        match self {
            DeviceChoice::Cpu => Ok(Device::CPU),
            DeviceChoice::Auto => Ok(cuda(0).unwrap_or(Device::CPU)),
            DeviceChoice::Cuda(ordinal) => cuda(ordinal),
            #[cfg(feature = "emulate")]
            DeviceChoice::Emulated => Device::emulated(&Emulation::default()),
        }
    }
}

#[cfg(not(feature = "cuda"))]
fn cuda(_ordinal: usize) -> Result<Device> {
    bail!("this build cannot use CUDA; build with `cargo build --release --features cuda`, or use --device cpu")
}

#[cfg(feature = "cuda")]
fn cuda(ordinal: usize) -> Result<Device> {
    // With one stream for all threads, as attention needs; `new_cuda` has one for each thread that asks for something, whose
    // work has no order.
    // Depending on how the driver is linked, loading it panics if there is none.
    match std::panic::catch_unwind(|| candle_core::Device::new_cuda_with_stream(ordinal)) {
        Ok(Ok(products)) => {
            let attention = super::gpu::on_cuda(products.as_cuda_device()?);
            Ok(match attention {
                Ok(attention) => {
                    Device { products, attention: Some(Arc::new(attention)), refused: None }.checked()
                }
                Err(error) => Device { products, attention: None, refused: Some(format!("{error:#}").into()) },
            })
        }
        Ok(Err(error)) => {
            // With RUST_BACKTRACE set, candle appends one to its message.
            let message = error.to_string();
            let reason = message.lines().next().unwrap_or_default();
            bail!("CUDA device {ordinal} cannot be used: {reason}; see `tova-bench doctor`")
        }
        Err(_) => bail!("the CUDA driver cannot be loaded; install it, or use --device cpu"),
    }
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
    let processor = Processor::here().name.unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let is_host = device.products.is_cpu() && device.attention.is_none();
    let card = match (is_host, &device.refused) {
        (true, _) => String::new(),
        (false, None) => format!("{} beside ", device_name(device)),
        (false, Some(_)) => format!("{} without attention beside ", device_name(device)),
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
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let card =
        if device.products.is_cpu() { 0 } else { card_memory().map_or(0, |(free, total)| (total - free) as u64) };
    Some(kibibytes(&rollup, "Rss:")? + card)
}

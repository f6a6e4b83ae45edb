//! Where a model is computed, and the memory in use there.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use candle_core::DeviceLocation;
#[cfg(feature = "cuda")]
use candle_core::cuda_backend::kernels::AFFINE;
#[cfg(feature = "cuda")]
use cudarc::driver::CudaContext;

#[cfg(feature = "emulate")]
use super::gpu::Emulation;
use super::gpu::{GpuAttention, Measured, Timed, Times};
use super::host::{host_memory, kibibytes, processor_name};
use super::transformer::Arithmetic;
use crate::format::counted;
use crate::vector;

/// Where a model is computed.
#[derive(Clone, Debug)]
pub struct Device {
    /// Products with weights.
    pub(super) products: candle_core::Device,
    /// Attention, if not on the host.
    pub(super) attention: Option<Arc<GpuAttention>>,
    /// What a GPU is not used for, and why.
    refused: Option<Arc<str>>,
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
            Err(error) => self.without_attention(&error),
        }
    }

    fn without_attention(self, error: &anyhow::Error) -> Device {
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
            DeviceChoice::Cuda(ordinal) => {
                let device = cuda(ordinal)?;
                match &device.refused {
                    Some(why) if device.products.is_cpu() => bail!("{why}"),
                    _ => Ok(device),
                }
            }
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
    let open = || -> Result<Device> {
        let context = CudaContext::new(ordinal)?;
        let card = Card::of(&context)?;
        if !card.fits() {
            let refused = Some(format!("the GPU cannot be used: {}", card.needs()).into());
            return Ok(Device { refused, ..Device::CPU });
        }
        // With one stream for all threads, as attention needs; `new_cuda` has one for each thread that asks for something, whose
        // work has no order.
        let products = candle_core::Device::new_cuda_with_stream(ordinal)?;
        let attention = super::gpu::on_cuda(products.as_cuda_device()?);
        let device = Device { products, ..Device::CPU };
        Ok(match attention {
            Ok(attention) => Device { attention: Some(Arc::new(attention)), ..device }.checked(),
            Err(error) => device.without_attention(&error),
        })
    };
    // Depending on how the driver is linked, loading it panics if there is none.
    match std::panic::catch_unwind(open) {
        Ok(Ok(device)) => Ok(device),
        Ok(Err(error)) => {
            // With RUST_BACKTRACE set, candle appends one to its message.
            let message = error.to_string();
            let reason = message.lines().next().unwrap_or_default();
            bail!("CUDA device {ordinal} cannot be used: {reason}; see `tova-bench doctor`")
        }
        Err(_) => bail!("the CUDA driver cannot be loaded; install it, or use --device cpu"),
    }
}

/// A GPU and its driver, as far as they decide which kernels run.
#[cfg(any(feature = "cuda", test))]
struct Card {
    name: String,
    /// The compute capability, and the CUDA version that the driver is for, which this build needs and which there are.
    needed: [(i32, i32); 2],
    present: [(i32, i32); 2],
}

#[cfg(any(feature = "cuda", test))]
impl Card {
    #[cfg(feature = "cuda")]
    fn of(context: &CudaContext) -> Result<Card> {
        // Unless `CUDA_COMPUTE_CAP` is set, candle's kernels are for the GPU that they were compiled beside.
        let target = AFFINE.ptx().split_once(".target sm_").map_or("", |(_, target)| target);
        let candle = &target[..target.find(|c: char| !c.is_ascii_digit()).unwrap_or(0)];
        let capability = env!("TOVA_BENCH_COMPUTE_CAPABILITY").parse::<i32>()?.max(candle.parse().unwrap_or(0));
        let (cuda, cuda_minor) =
            env!("TOVA_BENCH_CUDA").split_once('.').context("CUDA's version has two numbers")?;
        let driver = super::gpu::driver_version()?;
        Ok(Card {
            name: context.name()?,
            needed: [(capability / 10, capability % 10), (cuda.parse()?, cuda_minor.parse()?)],
            present: [context.compute_capability()?, (driver / 1000, driver % 1000 / 10)],
        })
    }

    fn fits(&self) -> bool {
        self.needed.iter().zip(&self.present).all(|(needed, present)| present >= needed)
    }

    fn needs(&self) -> String {
        let [(capability, minor), (cuda, cuda_minor)] = self.needed;
        let [(has, has_minor), (driver, driver_minor)] = self.present;
        format!(
            "this build needs compute capability {capability}.{minor} or newer and a driver for CUDA {cuda}.{cuda_minor} or newer, \
             and {} has {has}.{has_minor} and a driver for CUDA {driver}.{driver_minor}",
            self.name
        )
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
        super::gpu::give_memory_back(cuda);
    }
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let card =
        if device.products.is_cpu() { 0 } else { card_memory().map_or(0, |(free, total)| (total - free) as u64) };
    Some(kibibytes(&rollup, "Rss:")? + card)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_and_its_driver_must_be_as_new_as_the_kernels() {
        for (capability, driver, fits) in [
            ((8, 0), (13, 0), true),
            ((7, 5), (13, 0), false),
            ((8, 0), (12, 9), false),
            ((12, 0), (13, 1), true),
            ((9, 0), (14, 0), true),
        ] {
            let card = Card { name: "a card".into(), needed: [(8, 0), (13, 0)], present: [capability, driver] };
            assert_eq!(card.fits(), fits, "{}", card.needs());
        }
    }
}

//! Opens the device that a user names, if this build and its driver can use it.

use std::fmt;
use std::str::FromStr;
#[cfg(feature = "cuda")]
use std::sync::Arc;

#[cfg(feature = "cuda")]
use anyhow::Context;
use anyhow::{Result, bail};
#[cfg(feature = "cuda")]
use candle_core::cuda_backend::kernels::AFFINE;
#[cfg(feature = "cuda")]
use cudarc::driver::CudaContext;

use super::device::Device;
#[cfg(feature = "cuda")]
use super::device::attend::GpuAttention;
#[cfg(feature = "cuda")]
use super::gpu::cuda::CudaGpu;
#[cfg(feature = "emulate")]
use super::gpu::emulated::Emulation;

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
                _ => Err(format!("{text:?} is not a device; devices are cpu, cuda, cuda:N and auto")),
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
    /// Whether a GPU, or its emulation, is named.
    pub fn is_gpu(self) -> bool {
        !matches!(self, DeviceChoice::Auto | DeviceChoice::Cpu)
    }

    /// Whether a GPU, or its emulation, may be opened.
    pub fn may_be_gpu(self) -> bool {
        self.is_gpu() || (cfg!(feature = "cuda") && self == DeviceChoice::Auto)
    }

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
        let attention = CudaGpu::new(products.as_cuda_device()?);
        let device = Device { products, ..Device::CPU };
        Ok(match attention {
            Ok(gpu) => Device { attention: Some(Arc::new(GpuAttention::new(Box::new(gpu)))), ..device }.checked(),
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
        let driver = super::gpu::cuda::driver_version()?;
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

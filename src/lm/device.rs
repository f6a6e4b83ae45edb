//! Where the products with weights run, and how much memory is taken there.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use candle_core::Device;

use super::host::host_memory;
use crate::vector;

/// `cpu`, `cuda`, `cuda:N` or `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first card if this build can use one and one is there, else the CPU.
    #[default]
    Auto,
    Cpu,
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
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
        }
    }
}

impl DeviceChoice {
    /// The device, ready to use.
    ///
    /// # Errors
    /// A card that is asked for and cannot be used.
    pub fn open(self) -> Result<Device> {
        match self {
            DeviceChoice::Cpu => Ok(Device::Cpu),
            DeviceChoice::Auto => Ok(cuda(0).unwrap_or(Device::Cpu)),
            DeviceChoice::Cuda(ordinal) => cuda(ordinal),
        }
    }
}

#[cfg(not(feature = "cuda"))]
fn cuda(_ordinal: usize) -> Result<Device> {
    bail!("this build cannot use CUDA; build with `cargo build --release --features cuda`, or use --device cpu")
}

#[cfg(feature = "cuda")]
fn cuda(ordinal: usize) -> Result<Device> {
    // How the driver is linked is the build's business; some ways of loading it panic where there is none.
    match std::panic::catch_unwind(|| Device::new_cuda(ordinal)) {
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

/// Free and total bytes of the card that was opened last on this thread; `None` without one.
pub fn card_memory() -> Option<(usize, usize)> {
    #[cfg(feature = "cuda")]
    return cudarc::driver::result::mem_get_info().ok();
    #[cfg(not(feature = "cuda"))]
    None
}

/// The device as result rows name it: the card's name, or `cpu` with its vector instructions, which the last digits of
/// numbers hang on.
pub fn device_name(device: &Device) -> String {
    #[cfg(feature = "cuda")]
    if let Ok(cuda) = device.as_cuda_device() {
        let name = cuda.cuda_stream().context().name();
        return name.unwrap_or_else(|_| "cuda".into());
    }
    if device.is_cpu() { format!("cpu ({})", vector::instruction_set()) } else { "cuda".into() }
}

/// The same with the processor beside it and its threads, for what is measured against the clock: attention runs there,
/// whatever the device.
pub fn machine_name(device: &Device, threads: usize) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let brand = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let brand = brand.map_or(std::env::consts::ARCH, |(_, brand)| brand.trim());
    let card = if device.is_cpu() { String::new() } else { format!("{} beside ", device_name(device)) };
    let of = if threads == 1 { "thread" } else { "threads" };
    format!("{card}{brand} ({}), {threads} {of}", vector::instruction_set())
}

/// Memory this process can still take, in bytes: without swapping, and within the limits it runs under; `None` where the
/// system does not say.
pub fn available_memory() -> Option<u64> {
    host_memory().map(|memory| memory.available)
}

/// Bytes of memory that are taken now: by this process, and on the card if it uses one. What was freed and is only kept
/// for later is given back first. `None` where the system does not say.
pub fn resident_bytes(device: &Device) -> Option<u64> {
    give_back();
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    let card = if device.is_cpu() { 0 } else { card_memory().map_or(0, |(free, total)| (total - free) as u64) };
    Some((kib << 10) + card)
}

/// Gives freed memory back to the system.
fn give_back() {
    // SAFETY: the call takes no pointer and changes no memory that is in use.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}

//! How fast a device is: what the card itself gives, and how long each kernel takes where attention launches it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use candle_core::{DType, Tensor};
use indexmap::IndexMap;
use serde::Serialize;

use super::arithmetic::layers::{FEW_ROWS, compute_type};
use super::arithmetic::types::WeightType;
use super::cache::plan::MemoryPlan;
use super::device::Device;
use super::device::attend::GpuAttention;
use super::gpu::device::{Buffer, Elapsed, Factor, Gpu, Kernel, Launch, Product, launch_one};
use super::gpu::launch::TOKEN_THREADS;
use super::gpu::params::{Address, CopiedRows, Layer, Text, bytes_of};
use super::network::transformer::{LanguageModel, SEGMENT_ON_GPU};
use super::shape::config::ModelShape;
use crate::eviction::{Heads, Scope, presets};

/// A card reaches its clocks in this time.
const WARM_UP: Duration = Duration::from_millis(100);
/// Rounds, of which the median counts, and what is done so often in each.
const ROUNDS: usize = 5;
const REPEATS: usize = 20;
/// Tokens that are read with a full cache: first without a clock, then as blocks, then one by one.
const BEFORE: usize = 256;
const IN_BLOCKS: usize = 512;
const ONE_BY_ONE: usize = 16;

/// A number, and what it is of.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// `products in bf16`, `tova by layer, 512 entries, blocks`.
    pub of: String,
    /// `512 x 4096 x 4096`, `Scan`.
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
}

impl Device {
    /// Measures what the device itself gives to attention or, with `kernels`, how long each kernel takes.
    ///
    /// # Errors
    /// A device whose attention is the host's, and errors of the device.
    pub fn benchmark(&self, kernels: bool) -> Result<Vec<Measured>> {
        let own = self.attention.as_ref().context("attention runs on the host, and only a GPU's is measured")?;
        if !kernels {
            return benchmark_card(self, own);
        }
        let times = Times::default();
        let timed = GpuAttention::new(Box::new(Timed::new(own.clone(), times.clone(), self.products.is_cpu())?));
        let timed = Device { attention: Some(Arc::new(timed)), ..self.clone() };
        benchmark_kernels(&timed, &times)
    }
}

/// Rates of products, copies and launches. A product m x n x k is (m, k) by (k, n).
///
/// # Errors
/// Errors of the device.
pub fn benchmark_card(device: &Device, attention: &GpuAttention) -> Result<Vec<Measured>> {
    let gpu = &*attention.gpu;
    let is_small = device.products.is_cpu();
    let mut measured = Vec::new();
    let mut add = |of: &str, name: String, value: f64, unit| {
        measured.push(Measured { of: of.to_owned(), name, value, unit });
    };
    // LLaMA-2-7B's.
    let [hidden, mlp, vocab] = if is_small { [64, 172, 500] } else { [4096, 11008, 32000] };
    let dtype = compute_type(&device.products, DType::BF16, false);
    let random = |rows: usize, columns: usize| Tensor::rand(-1_f32, 1.0, (rows, columns), &device.products);
    let of = format!("products in {}", dtype.as_str());
    // A part of a text, and texts that are written.
    let many = if is_small { 512 } else { SEGMENT_ON_GPU };
    let by_weights = [[many, hidden, hidden], [many, mlp, hidden], [many, hidden, mlp], [many, vocab, hidden]];
    for [m, n, k] in by_weights.into_iter().chain([[FEW_ROWS, mlp, hidden]]) {
        let (x, weights) = (random(m, k)?.to_dtype(dtype)?, random(n, k)?.to_dtype(dtype)?.t()?);
        let time = microseconds(gpu, &mut || Ok(x.matmul(&weights).map(drop)?))?;
        // A few rows take as long as the weights are read.
        let (value, unit) = match m == many {
            true => (2.0 * (m * n * k) as f64 / time / 1e6, "TFLOP/s"),
            false => ((n * k * dtype.size_in_bytes()) as f64 / time / 1e3, "GB/s of weights"),
        };
        add(&of, format!("{m} x {n} x {k}"), value, unit);
    }
    let (heads, dim) = if is_small { (4, 16) } else { (32, 128) };
    for shape in [[512, hidden, hidden, 1], [128, 640, dim, heads], [128, dim, 640, heads]] {
        let (product, _memory) = product_of(gpu, shape)?;
        let time = microseconds(gpu, &mut || gpu.product(product))?;
        let [m, n, k, batches] = shape;
        add(
            "products in f32",
            format!("{m} x {n} x {k}, {batches} at once"),
            2.0 * shape.iter().product::<usize>() as f64 / time / 1e6,
            "TFLOP/s",
        );
    }
    let bytes = if is_small { 1 << 20 } else { 256 << 20 };
    let (from, to, mut host) = (gpu.allocate(bytes)?, gpu.allocate(bytes)?, vec![1; bytes]);
    let rate = |bytes: usize, time: f64| bytes as f64 / time / 1e3;
    let (rows, words) = (1 << 10, bytes / (4 << 10));
    let (from_pitch, to_pitch, width) = (words, words, words);
    let copied = CopiedRows { from: from.address, to: to.address, from_pitch, to_pitch, width, rows };
    let shape = (rows, TOKEN_THREADS, 0);
    gpu.upload(from.address, &host)?;
    let time = microseconds(gpu, &mut || launch_one(gpu, Kernel::Copy, shape, Layer::default(), &[copied]))?;
    add("copies", "on the card, read and written".into(), rate(2 * bytes, time), "GB/s");
    let time = microseconds(gpu, &mut || gpu.upload(from.address, &host))?;
    add("copies", "host to card".into(), rate(bytes, time), "GB/s");
    let time = microseconds(gpu, &mut || gpu.download(from.address, &mut host))?;
    add("copies", "card to host".into(), rate(bytes, time), "GB/s");
    // A text without rows leaves nothing to do.
    gpu.upload(from.address, bytes_of(&[Text::default()]))?;
    let (layer, texts) = (Layer { heads: 1, kv_heads: 1, dim: 1, ..Layer::default() }, from.address);
    let empty = Launch { kernel: Kernel::Place, grid: [1, 1], threads: 32, shared_bytes: 0, layer, texts };
    add("launches", "empty".into(), microseconds(gpu, &mut || gpu.launch(empty))?, "µs");
    let time = microseconds(gpu, &mut || {
        gpu.launch(empty)?;
        gpu.download(texts, &mut [0; 4])
    })?;
    add("launches", "empty, and waited for".into(), time, "µs");
    Ok(measured)
}

/// How long some work takes, in microseconds.
fn microseconds(gpu: &dyn Gpu, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    while started.elapsed() < WARM_UP {
        gpu.timed(work)?()?;
    }
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        // Memory that was freed before a wait is taken anew, while the device would have nothing to do.
        work()?;
        let elapsed = gpu.timed(&mut || (0..REPEATS).try_for_each(|_| work()))?;
        rounds.push(elapsed()? / REPEATS as f64);
    }
    Ok(median(rounds))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A product of random numbers, and its memory.
fn product_of(gpu: &dyn Gpu, [m, n, k, batches]: [usize; 4]) -> Result<(Product, Vec<Buffer>)> {
    let mut memory = Vec::new();
    let mut matrix = |rows: usize, columns: usize| {
        let numbers: Vec<f32> = (0..batches * rows * columns).map(|_| fastrand::f32() - 0.5).collect();
        let buffer = gpu.allocate(size_of_val(&*numbers))?;
        let address = buffer.address;
        memory.push(buffer);
        gpu.upload(address, bytes_of(&numbers))?;
        anyhow::Ok(Factor { address, stride: columns, batch: rows * columns })
    };
    let (a, b, c) = (matrix(m, k)?, matrix(n, k)?, matrix(m, n)?);
    Ok((Product { m, n, k, a, b, b_is_transposed: true, c, batches, factors: DType::F32 }, memory))
}

/// The same device, but its launches and products are timed.
pub struct Timed {
    attention: Arc<GpuAttention>,
    times: Times,
    /// Takes longer than a call's launches take the host, and its memory.
    long: (Product, Vec<Buffer>),
    /// Whether the device may be waiting for the host.
    is_idle: AtomicBool,
}

/// With the name of the kernel, in order.
pub type Times = Arc<Mutex<Vec<(String, Elapsed)>>>;

impl Timed {
    pub fn new(attention: Arc<GpuAttention>, times: Times, is_small: bool) -> Result<Timed> {
        let side = if is_small { 16 } else { 4096 };
        let long = product_of(&*attention.gpu, [side, side, side, 1])?;
        Ok(Timed { attention, times, long, is_idle: AtomicBool::new(true) })
    }

    fn time(&self, name: String, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let gpu = &self.attention.gpu;
        // A device that has nothing to do would be timed until the host has asked for the work.
        if self.is_idle.swap(false, Ordering::Relaxed) {
            gpu.product(self.long.0)?;
        }
        let elapsed = gpu.timed(work)?;
        self.times.lock().unwrap_or_else(PoisonError::into_inner).push((name, elapsed));
        Ok(())
    }
}

impl fmt::Debug for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.attention.gpu.fmt(f)
    }
}

impl Gpu for Timed {
    fn identity(&self) -> Result<String> {
        self.attention.gpu.identity()
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        self.attention.gpu.allocate(bytes)
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()> {
        self.is_idle.store(true, Ordering::Relaxed);
        self.attention.gpu.upload(to, bytes)
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<()> {
        self.is_idle.store(true, Ordering::Relaxed);
        self.attention.gpu.download(from, bytes)
    }

    fn address_of(&self, tensor: &Tensor) -> Result<Address> {
        self.attention.gpu.address_of(tensor)
    }

    fn product(&self, product: Product) -> Result<()> {
        let name = if product.b_is_transposed { "queries x keys" } else { "attention x values" };
        self.time(name.into(), &mut || self.attention.gpu.product(product))
    }

    fn launch(&self, launch: Launch) -> Result<()> {
        self.time(format!("{:?}", launch.kernel), &mut || self.attention.gpu.launch(launch))
    }

    fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Elapsed> {
        self.attention.gpu.timed(work)
    }

    fn threads(&self, kernel: Kernel, wanted: usize) -> usize {
        self.attention.gpu.threads(kernel, wanted)
    }

    fn is_checked(&self) -> bool {
        self.attention.gpu.is_checked()
    }
}

/// The median time of each kernel's launches in a layer of LLaMA-2-7B's shape with a full cache, by policy and size, of blocks of
/// tokens and of single ones. The device's attention is [`Timed`] and adds to `times`.
///
/// # Errors
/// Errors of the device.
pub fn benchmark_kernels(device: &Device, times: &Times) -> Result<Vec<Measured>> {
    let is_small = device.products.is_cpu();
    let (count, head_dim) = if is_small { (4, 16) } else { (32, 128) };
    // What comes before attention does not matter, so it is small.
    let heads = Heads { heads: count, kv_heads: count };
    let (hidden, layers, vocab) = (64, 1, 256);
    let sizes =
        ModelShape { hidden, intermediate: hidden, layers, heads, head_dim, vocab, ..ModelShape::default() };
    let model = LanguageModel::random(ModelShape::random(sizes), 1.0, 1, WeightType::F32, device)?;
    let mut measured = Vec::new();
    for size in if is_small { [16, 64, 160] } else { [64, 512, 2048] } {
        for (case, plan) in cases(size)? {
            let mut memory = model.new_memory(&plan);
            let mut read = |tokens: usize| -> Result<IndexMap<String, Vec<f64>>> {
                let tokens: Vec<u32> = (0..tokens).map(|_| fastrand::u32(..256)).collect();
                // While there is a copy, what is written to is copied first.
                let _copy = memory.clone();
                model.nll(&model.read(&tokens, &mut memory)?, &tokens)?;
                let mut of_kernels: IndexMap<String, Vec<f64>> = IndexMap::new();
                for (name, elapsed) in times.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                    of_kernels.entry(name).or_default().push(elapsed()?);
                }
                Ok(of_kernels)
            };
            read(size + BEFORE)?;
            let blocks = read(IN_BLOCKS)?;
            let mut single: IndexMap<String, Vec<f64>> = IndexMap::new();
            for _ in 0..ONE_BY_ONE {
                read(1)?.into_iter().for_each(|(name, times)| single.entry(name).or_default().extend(times));
            }
            for (kind, of_kernels) in [("blocks", blocks), ("single tokens", single)] {
                let of = format!("{case}, {size} entries, {kind}");
                measured.extend(of_kernels.into_iter().map(|(name, times)| Measured {
                    of: of.clone(),
                    name,
                    value: median(times),
                    unit: "µs",
                }));
            }
        }
    }
    Ok(measured)
}

/// Caches that together need every kernel, and their names.
fn cases(size: usize) -> Result<Vec<(&'static str, MemoryPlan<'static>)>> {
    let of = |name: &str| {
        let policy = presets::by_name(name).context("the policy is built in")?.at(size)?;
        anyhow::Ok(MemoryPlan::bounded(policy))
    };
    let full = MemoryPlan { expect: size + BEFORE + IN_BLOCKS + ONE_BY_ONE, ..MemoryPlan::unbounded() };
    Ok(vec![
        ("full", full),
        ("full before h2o", MemoryPlan { fork_scopes: &[Scope::Head], fork_points: &[usize::MAX], ..full }),
        ("window by layer", of("window")?),
        ("h2o by head", of("h2o")?),
        ("tova by layer", of("tova")?),
        ("tova by layer, compared to full", MemoryPlan { measure_loss: true, ..of("tova")? }),
        ("keyformer by head", of("keyformer")?),
    ])
}

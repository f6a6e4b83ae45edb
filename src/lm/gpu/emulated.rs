//! A device without a card: the kernels' own source, compiled for the host. See `kernels/emulation.h`.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Storage, Tensor};
use sha2::{Digest, Sha256};

use super::device::{Buffer, Elapsed, Factor, Gpu, Kernel, Launch, Product};
use super::params::{Address, Layer, Text};
use crate::lm::arithmetic::product::{Right, product};

/// How the kernels are compiled and run.
#[derive(Clone, Debug)]
pub struct Emulation {
    /// Folder of the kernels' sources.
    pub kernels: PathBuf,
    /// More flags for the compiler, such as `-fsanitize=address`.
    pub flags: Vec<String>,
    /// Order of the warps; with a missing barrier another order gives other results.
    pub order: WarpOrder,
    /// Largest number of threads of a block, a multiple of 32. A GPU has up to 1,024; every thread is a fiber here, so fewer are
    /// faster.
    pub threads: usize,
    /// Whether a call has one piece of memory, which later calls use again, as on a GPU. Otherwise everything in it is an
    /// allocation of its own, whose bounds sanitizers check.
    pub is_packed: bool,
    /// Number of a launch that fails; the first is 0.
    pub failing_launch: Option<usize>,
    /// Number of launches after which every call fails, as after an access to a wrong address.
    pub launches: usize,
    /// Number of bytes that can be allocated.
    pub memory: usize,
    /// Counts what is asked for: launches by the names of their kernels, `Upload`, `Download`, and the bytes of all uploads, `Uploaded`.
    pub counts: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// Order in which the warps of a block go on, each to its next barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarpOrder {
    Ascending,
    /// Descending order, also of the threads of a warp.
    Descending,
    /// Order drawn at each barrier, with this seed.
    Random(u32),
}

impl Default for Emulation {
    fn default() -> Emulation {
        let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lm/gpu/kernels");
        Emulation {
            kernels: kernels.into(),
            flags: Vec::new(),
            order: WarpOrder::Ascending,
            threads: 64,
            is_packed: false,
            failing_launch: None,
            launches: usize::MAX,
            memory: usize::MAX,
            counts: Arc::default(),
        }
    }
}

type Emulate =
    unsafe extern "C" fn(c_int, c_uint, c_uint, c_uint, usize, *const Layer, *const Text, c_uint) -> *const c_char;

/// Device whose addresses are those of the host.
#[derive(Debug)]
pub(in crate::lm) struct EmulatedGpu {
    /// Library of the kernels, named after a digest of their sources.
    library: PathBuf,
    emulate: Emulate,
    emulation: Emulation,
    launches: AtomicUsize,
    memory_left: Arc<AtomicUsize>,
    uploads: Arc<Mutex<Uploads>>,
}

/// Uploads that were asked for. They are done only before something is asked for that could need them, as on a GPU.
type Uploads = Vec<(Address, Vec<u8>)>;

/// Memory of the host, which can be allocated again when dropped.
struct Owned {
    memory: Vec<u64>,
    bytes: usize,
    left: Arc<AtomicUsize>,
    uploads: Arc<Mutex<Uploads>>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes, Ordering::Relaxed);
        let range = self.memory.as_ptr_range();
        let range = range.start as Address..range.end as Address;
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner).retain(|(to, _)| !range.contains(to));
    }
}

impl EmulatedGpu {
    /// Compiles and loads the kernels.
    pub fn new(emulation: &Emulation) -> Result<EmulatedGpu> {
        let library = compiled(emulation)?;
        let path = CString::new(library.clone().into_os_string().into_encoded_bytes())?;
        // SAFETY: the library has no code that runs when it is loaded; it stays loaded. emulation.cpp defines `emulate` with this type.
        #[expect(unsafe_code)]
        let emulate = unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            ensure!(!handle.is_null(), "the emulated kernels {path:?} cannot be loaded");
            let emulate = libc::dlsym(handle, c"emulate".as_ptr());
            ensure!(!emulate.is_null(), "the emulated kernels {path:?} have no function `emulate`");
            std::mem::transmute::<*mut c_void, Emulate>(emulate)
        };
        let memory_left = Arc::new(emulation.memory.into());
        let (launches, uploads, emulation) = (AtomicUsize::new(0), Arc::default(), emulation.clone());
        Ok(EmulatedGpu { library, emulate, emulation, launches, memory_left, uploads })
    }

    fn count(&self, what: String, more: usize) {
        *self.emulation.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += more;
    }

    fn check_launches(&self) -> Result<()> {
        let is_lost = self.launches.load(Ordering::Relaxed) >= self.emulation.launches;
        ensure!(!is_lost, "CUDA_ERROR_ILLEGAL_ADDRESS, as it was asked for");
        Ok(())
    }

    fn upload_all(&self) {
        // Other threads wait meanwhile: what they ask for may need it too.
        for (to, bytes) in self.uploads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: callers give addresses of buffers with room for the bytes, and `Owned` forgets uploads to memory that is freed.
            #[expect(unsafe_code)]
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len());
            }
        }
    }
}

/// Finds the library of the kernels, and compiles it if it is not there yet.
fn compiled(emulation: &Emulation) -> Result<PathBuf> {
    let Emulation { kernels, flags, .. } = emulation;
    let folder = |path: &Path| format!("the kernels' folder {}", path.display());
    let mut files: Vec<PathBuf> = fs::read_dir(kernels)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .with_context(|| folder(kernels))?;
    files.sort();
    let mut digest = Sha256::new();
    for file in &files {
        digest.update(fs::read(file).with_context(|| folder(kernels))?);
    }
    flags.iter().for_each(|flag| digest.update(flag));
    let name = format!("kernels-{:x}", digest.finalize());
    let library = Path::new(env!("OUT_DIR")).join(&name[..24]).with_extension("so");
    // Of this program's threads one compiles, and the others find its library.
    static COMPILING: Mutex<()> = Mutex::new(());
    let _compiling = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    if !library.exists() {
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| OsString::from("c++"));
        let own = library.with_extension(format!("{}.so", std::process::id()));
        let output = Command::new(&compiler)
            // Every operation rounds by itself, as on the host.
            .args(["-std=c++17", "-O2", "-g", "-ffp-contract=off", "-fPIC", "-shared"])
            .args(flags)
            .arg(kernels.join("emulation.cpp"))
            .arg("-o")
            .arg(&own)
            .output()
            .with_context(|| format!("the C++ compiler {} cannot be run; set CXX", compiler.display()))?;
        ensure!(
            output.status.success(),
            "the kernels do not compile:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::rename(&own, &library).with_context(|| format!("cannot write {}", library.display()))?;
    }
    Ok(library)
}

/// Numbers at an address.
///
/// # Safety
///
/// There must be `len` numbers, which nothing else changes meanwhile.
#[expect(unsafe_code)]
unsafe fn floats<'a>(address: Address, len: usize) -> &'a [f32] {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(address as *const f32, len) }
}

impl Gpu for EmulatedGpu {
    fn identity(&self) -> Result<String> {
        Ok(format!("emulated {}", self.library.display()))
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        self.check_launches()?;
        let rest = |left: usize| left.checked_sub(bytes);
        let taken = self.memory_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        ensure!(taken.is_ok(), "{bytes} bytes cannot be allocated: CUDA_ERROR_OUT_OF_MEMORY");
        // What nobody has written is not a number. In whole words for their alignment, and none too many: sanitizers see what
        // is read or written behind them.
        let memory = vec![u64::MAX; bytes.div_ceil(8)];
        let address = memory.as_ptr() as Address;
        let (left, uploads) = (Arc::clone(&self.memory_left), Arc::clone(&self.uploads));
        Ok(Buffer { address, bytes, _owner: Box::new(Owned { memory, bytes, left, uploads }) })
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()> {
        self.count("Upload".into(), 1);
        self.count("Uploaded".into(), bytes.len());
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner).push((to, bytes.to_vec()));
        Ok(())
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<()> {
        self.count("Download".into(), 1);
        self.check_launches()?;
        self.upload_all();
        // SAFETY: callers give addresses of buffers with as many bytes.
        #[expect(unsafe_code)]
        unsafe {
            ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len());
        }
        Ok(())
    }

    fn address_of(&self, tensor: &Tensor) -> Result<Address> {
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else { bail!("a tensor is not on the host") };
        Ok(storage.as_slice::<f32>()?[layout.start_offset()..].as_ptr() as Address)
    }

    fn product(&self, asked: Product) -> Result<()> {
        self.upload_all();
        let Product { m, n, k, a, b, b_is_transposed, c, batches, factors } = asked;
        ensure!(factors == DType::F32, "the emulated device has no product of {factors:?}");
        let at =
            |factor: Factor, batch: usize| factor.address + (batch * factor.batch * size_of::<f32>()) as Address;
        for batch in 0..batches {
            // SAFETY: callers give tables of these sizes, and the result is in a buffer of its own.
            #[expect(unsafe_code)]
            let (a_numbers, b_numbers, c_numbers) = unsafe {
                let c_len = (m - 1) * c.stride + n;
                (
                    floats(at(a, batch), (m - 1) * a.stride + k),
                    floats(at(b, batch), n * k),
                    std::slice::from_raw_parts_mut(at(c, batch) as *mut f32, c_len),
                )
            };
            let b = if b_is_transposed { Right::Transposed(b_numbers) } else { Right::Rows(b_numbers) };
            product((m, n, k), (c_numbers, c.stride), (a_numbers, a.stride), b);
        }
        Ok(())
    }

    fn launch(&self, launch: Launch) -> Result<()> {
        let Launch { kernel, grid, threads, shared_bytes, layer, texts } = launch;
        self.check_launches()?;
        let number = self.launches.fetch_add(1, Ordering::Relaxed);
        self.count(format!("{kernel:?}"), 1);
        ensure!(self.emulation.failing_launch != Some(number), "launch {number} fails, of the kernel {kernel:?}");
        self.upload_all();
        let order = match self.emulation.order {
            WarpOrder::Ascending => 0,
            WarpOrder::Descending => 1,
            WarpOrder::Random(seed) => seed.saturating_add(2),
        };
        // SAFETY: the texts' addresses are of buffers as large as the kernels need; sanitizers check it.
        #[expect(unsafe_code)]
        let error = unsafe {
            let [x, y] = grid.map(|blocks| blocks as c_uint);
            (self.emulate)(
                kernel as c_int,
                x,
                y,
                threads as c_uint,
                shared_bytes,
                &layer,
                texts as *const Text,
                order,
            )
        };
        if !error.is_null() {
            // SAFETY: the text ends with 0 and stays until this thread's next launch.
            #[expect(unsafe_code)]
            let error = unsafe { CStr::from_ptr(error) };
            bail!("{}", error.to_string_lossy());
        }
        Ok(())
    }

    fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Elapsed> {
        let started = Instant::now();
        work()?;
        let elapsed = started.elapsed();
        Ok(Box::new(move || Ok(1e6 * elapsed.as_secs_f64())))
    }

    fn threads(&self, _: Kernel, wanted: usize) -> usize {
        wanted.min(self.emulation.threads)
    }

    fn is_checked(&self) -> bool {
        !self.emulation.is_packed
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::Arena;
    use super::*;

    fn bytes(len: usize, mark: u8) -> Vec<u8> {
        (0..len).map(|at| mark.wrapping_mul(31).wrapping_add(at as u8)).collect()
    }

    /// Pieces hold what was written to each, also where the memory has been used before.
    #[test]
    fn pieces_of_packed_memory_hold_what_was_written_to_each() {
        let gpu = EmulatedGpu::new(&Emulation { is_packed: true, ..Emulation::default() }).unwrap();
        let mut memory = None;
        for lens in [[1, 255, 257, 8], [600, 256, 0, 3], [3, 1, 512, 255]] {
            let mut arena = Arena::default();
            let pieces = lens.map(|len| {
                let (put, state) = (arena.put(&bytes(len, 1)), arena.state(&bytes(len, 2)));
                [put, state, arena.result::<u8>(len), arena.scratch::<u8>(len)]
            });
            arena.place(&gpu, memory.take()).unwrap();
            for (len, [put, _, result, scratch]) in lens.into_iter().zip(pieces) {
                for (piece, mark) in [(put, 1), (result, 3), (scratch, 4)] {
                    assert_eq!(arena.at(piece) % 8, 0);
                    if mark > 1 {
                        gpu.upload(arena.at(piece), &bytes(len, mark)).unwrap();
                    }
                }
            }
            arena.read_back(&gpu).unwrap();
            for (len, [put, state, result, scratch]) in lens.into_iter().zip(pieces) {
                assert_eq!(arena.values::<u8>(state), bytes(len, 2));
                assert_eq!(arena.values::<u8>(result), bytes(len, 3));
                for (piece, mark) in [(put, 1), (scratch, 4)] {
                    let mut there = vec![0; len];
                    gpu.download(arena.at(piece), &mut there).unwrap();
                    assert_eq!(there, bytes(len, mark));
                }
            }
            memory = arena.memory.take();
        }
    }

    #[test]
    fn an_upload_is_there_when_something_could_need_it_and_never_after_its_memory_was_freed() {
        let gpu = EmulatedGpu::new(&Emulation::default()).unwrap();
        let (from, to) = (gpu.allocate(8).unwrap(), gpu.allocate(8).unwrap());
        gpu.upload(from.address, &[7; 8]).unwrap();
        // SAFETY: the buffer has so many numbers.
        #[expect(unsafe_code)]
        let there = unsafe { floats(from.address, 2) }.iter().map(|number| number.to_bits());
        assert_eq!(there.collect::<Vec<_>>(), [u32::MAX; 2]);
        let mut read = [0; 8];
        gpu.download(from.address, &mut read).unwrap();
        assert_eq!(read, [7; 8]);
        gpu.upload(from.address, &[8; 8]).unwrap();
        gpu.upload(to.address, &[9; 8]).unwrap();
        drop(from);
        assert_eq!(*gpu.uploads.lock().unwrap(), [(to.address, vec![9; 8])]);
    }
}

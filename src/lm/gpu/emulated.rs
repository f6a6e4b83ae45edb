//! A device that is none: the kernels' own source, compiled for the host. See `kernels/emulation.h`.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use candle_core::{Storage, Tensor};
use sha2::{Digest, Sha256};

use super::device::{Buffer, Elapsed, Factor, Gpu, Launch, Product, Rows};
use super::params::{Address, Layer, Text};
use crate::lm::product::{Right, product};

/// How the kernels are compiled and run.
#[derive(Clone, Debug)]
pub struct Emulation {
    /// Folder of their sources.
    pub kernels: PathBuf,
    /// More flags for the compiler, such as `-fsanitize=address`.
    pub flags: Vec<String>,
    /// Runs the threads of a block from the last to the first: a missing barrier then gives other results.
    pub descending: bool,
}

impl Default for Emulation {
    fn default() -> Emulation {
        let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lm/gpu/kernels");
        Emulation { kernels: kernels.into(), flags: Vec::new(), descending: false }
    }
}

type Emulate =
    unsafe extern "C" fn(c_int, c_uint, c_uint, c_uint, usize, *const Layer, *const Text, c_int) -> *const c_char;

/// Addresses are those of the host.
#[derive(Debug)]
pub(super) struct EmulatedGpu {
    /// The library of the kernels, named after a digest of them.
    library: PathBuf,
    emulate: Emulate,
    descending: bool,
}

impl EmulatedGpu {
    /// Compiles and loads the kernels.
    pub fn new(emulation: &Emulation) -> Result<EmulatedGpu> {
        let library = compiled(emulation)?;
        let path = CString::new(library.clone().into_os_string().into_encoded_bytes())?;
        // SAFETY: the library has no code that runs when it is loaded; it stays loaded.
        #[expect(unsafe_code)]
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        ensure!(!handle.is_null(), "the emulated kernels {path:?} cannot be loaded: {}", loader_error());
        let emulate = symbol(handle, c"emulate")?;
        // SAFETY: emulation.cpp defines it with this type.
        #[expect(unsafe_code)]
        let emulate = unsafe { std::mem::transmute::<*mut c_void, Emulate>(emulate) };
        Ok(EmulatedGpu { library, emulate, descending: emulation.descending })
    }
}

/// The library of the kernels, compiled if it is not there yet.
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

fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void> {
    // SAFETY: the handle is of an open library.
    #[expect(unsafe_code)]
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
    ensure!(!symbol.is_null(), "the emulated kernels have no {name:?}");
    Ok(symbol)
}

fn loader_error() -> String {
    // SAFETY: the text stays until the loader's next error on this thread.
    #[expect(unsafe_code)]
    let error = unsafe {
        let error = libc::dlerror();
        (!error.is_null()).then(|| CStr::from_ptr(error).to_string_lossy().into_owned())
    };
    error.unwrap_or_default()
}

/// Numbers at an address.
///
/// # Safety
/// There must be `len` of them, which nothing else changes meanwhile.
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
        // What nobody has written is not a number. In whole words for their alignment, and none too many: sanitizers see what
        // is read or written behind them.
        let owner = vec![u64::MAX; bytes.div_ceil(8)];
        Ok(Buffer { address: owner.as_ptr() as Address, bytes, _owner: Box::new(owner) })
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()> {
        // SAFETY: callers give addresses of buffers with room for the bytes.
        #[expect(unsafe_code)]
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len());
        }
        Ok(())
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: callers give addresses of buffers with as many bytes.
        #[expect(unsafe_code)]
        unsafe {
            ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len());
        }
        Ok(())
    }

    fn copy(&self, from: Rows, to: Rows, width: usize, rows: usize) -> Result<()> {
        for row in 0..rows {
            let (from, to) = (from.address as usize + row * from.pitch, to.address as usize + row * to.pitch);
            // SAFETY: callers give tables with so many rows, in two buffers.
            #[expect(unsafe_code)]
            unsafe {
                ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, width);
            }
        }
        Ok(())
    }

    fn address_of(&self, tensor: &Tensor) -> Result<Address> {
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else { bail!("a tensor is not on the host") };
        Ok(storage.as_slice::<f32>()?[layout.start_offset()..].as_ptr() as Address)
    }

    fn product(&self, asked: Product) -> Result<()> {
        let Product { m, n, k, a, b, b_is_transposed, c, batches } = asked;
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
        // SAFETY: the texts' addresses are of buffers as large as the kernels need; sanitizers check it.
        #[expect(unsafe_code)]
        let error = unsafe {
            let [x, y] = grid.map(|blocks| blocks as c_uint);
            let order = c_int::from(self.descending);
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

    fn threads(&self, wanted: usize) -> usize {
        wanted.min(64) // two warps: every thread is a fiber
    }

    fn is_checked(&self) -> bool {
        true
    }
}

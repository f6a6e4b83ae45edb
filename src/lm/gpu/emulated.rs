//! A device that is none: the kernels' own source, compiled for the host. See `kernels/emulation.h`.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

use anyhow::{Result, bail, ensure};
use candle_core::{Storage, Tensor};

use super::device::{Buffer, Factor, Gpu, Launch, Product, Rows};
use super::params::{Address, Layer, Text};
use crate::eviction::formula::LoweredInstruction;
use crate::lm::product::{Right, product};

#[expect(unsafe_code)]
unsafe extern "C" {
    fn emulate(
        kernel: c_int,
        grid_x: c_uint,
        grid_y: c_uint,
        threads: c_uint,
        shared_bytes: usize,
        layer: *const Layer,
        texts: *const Text,
        descending: c_int,
    ) -> *const c_char;
    fn emulated_sizes(layer: *mut usize, text: *mut usize, instruction: *mut usize);
}

/// Addresses are those of the host.
#[derive(Debug)]
pub(super) struct EmulatedGpu {
    /// Runs the threads of a block from the last to the first: a missing barrier then gives other results.
    descending: bool,
}

impl EmulatedGpu {
    pub fn new(descending: bool) -> Result<EmulatedGpu> {
        let mut sizes = [0; 3];
        let [layer, text, instruction] = &mut sizes;
        // SAFETY: writes three numbers.
        #[expect(unsafe_code)]
        unsafe {
            emulated_sizes(layer, text, instruction);
        }
        let own = [size_of::<Layer>(), size_of::<Text>(), size_of::<LoweredInstruction>()];
        ensure!(sizes == own, "the kernels' structs have {sizes:?} bytes, and the program's have {own:?}");
        Ok(EmulatedGpu { descending })
    }
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
            emulate(kernel as c_int, x, y, threads as c_uint, shared_bytes, &layer, texts as *const Text, order)
        };
        if !error.is_null() {
            // SAFETY: the text ends with 0 and stays until this thread's next launch.
            #[expect(unsafe_code)]
            let error = unsafe { CStr::from_ptr(error) };
            bail!("{}", error.to_string_lossy());
        }
        Ok(())
    }

    fn threads(&self, wanted: usize) -> usize {
        wanted.min(64) // two warps: every thread is a fiber
    }

    fn is_checked(&self) -> bool {
        true
    }
}

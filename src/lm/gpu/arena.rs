//! The memory of one call: data that a device gets, works on and gives back, laid out so that each direction takes one copy.

use anyhow::Result;

use super::device::{Buffer, Gpu};
use super::params::{Address, Plain, bytes_of, bytes_of_mut};

/// Divisor of the byte at which each piece starts.
const ALIGNMENT: usize = 256;

/// Piece of the memory, by its index.
#[derive(Clone, Copy, Debug)]
pub(in crate::lm) struct Piece(usize);

#[derive(Debug)]
struct Content {
    /// Bytes that the device gets, at the start of the memory.
    given: Vec<u8>,
    bytes: usize,
    is_read_back: bool,
    address: Address,
    /// Place of the piece in the bytes that are read back.
    at: usize,
}

#[derive(Debug, Default)]
pub(in crate::lm) struct Arena {
    pieces: Vec<Content>,
    read_back: Vec<u8>,
    /// Memory of a device with checked bounds, one buffer for each piece.
    buffers: Vec<Buffer>,
    /// Memory of any other device, one buffer for all pieces.
    pub memory: Option<Buffer>,
}

impl Arena {
    fn add(&mut self, given: Vec<u8>, bytes: usize, is_read_back: bool) -> Piece {
        self.pieces.push(Content { given, bytes, is_read_back, address: 0, at: 0 });
        Piece(self.pieces.len() - 1)
    }

    /// Adds numbers for the device.
    pub fn put<T: Plain>(&mut self, values: &[T]) -> Piece {
        self.add(bytes_of(values).to_vec(), size_of_val(values), false)
    }

    /// Adds numbers that the device changes and gives back.
    pub fn state<T: Plain>(&mut self, values: &[T]) -> Piece {
        self.add(bytes_of(values).to_vec(), size_of_val(values), true)
    }

    /// Adds room for `len` numbers that the device gives back.
    pub fn result<T: Plain>(&mut self, len: usize) -> Piece {
        self.add(Vec::new(), len * size_of::<T>(), true)
    }

    /// Adds room for `len` numbers that only the device sees.
    pub fn scratch<T: Plain>(&mut self, len: usize) -> Piece {
        self.add(Vec::new(), len * size_of::<T>(), false)
    }

    /// Lays out all pieces and uploads the numbers for the device. `reused` is the memory of an earlier call. The memory is freed
    /// with the arena.
    pub fn place(&mut self, gpu: &dyn Gpu, reused: Option<Buffer>) -> Result<()> {
        if gpu.is_checked() {
            for piece in &mut self.pieces {
                let buffer = gpu.allocate(piece.bytes)?;
                piece.address = buffer.address;
                gpu.upload(piece.address, &piece.given)?;
                self.buffers.push(buffer);
            }
            return Ok(());
        }
        // Given, given and read back, read back, neither.
        let kind = |piece: &Content| match (piece.given.is_empty(), piece.is_read_back) {
            (false, false) => 0,
            (false, true) => 1,
            (true, true) => 2,
            (true, false) => 3,
        };
        let mut order: Vec<usize> = (0..self.pieces.len()).collect();
        order.sort_by_key(|piece| kind(&self.pieces[*piece]));
        let (mut end, mut given) = (0, Vec::new());
        for index in &order {
            let piece = &mut self.pieces[*index];
            piece.at = end;
            if !piece.given.is_empty() {
                given.resize(end, 0);
                given.append(&mut piece.given);
            }
            end = (end + piece.bytes).next_multiple_of(ALIGNMENT);
        }
        // Not both at once.
        let reused = reused.filter(|memory| memory.bytes >= end);
        let memory = reused.map_or_else(|| gpu.allocate(end), Ok)?;
        let base = memory.address;
        self.memory = Some(memory);
        gpu.upload(base, &given)?;
        self.pieces.iter_mut().for_each(|piece| piece.address = base + piece.at as Address);
        Ok(())
    }

    /// Address of a piece, after [`place`](Self::place).
    pub fn at(&self, piece: Piece) -> Address {
        self.pieces[piece.0].address
    }

    /// Address of a piece, or 0 for none.
    pub fn at_any(&self, piece: Option<Piece>) -> Address {
        piece.map_or(0, |piece| self.at(piece))
    }

    /// Waits for the device and takes what it gives back.
    pub fn read_back(&mut self, gpu: &dyn Gpu) -> Result<()> {
        let pieces: Vec<&mut Content> = self.pieces.iter_mut().filter(|piece| piece.is_read_back).collect();
        if gpu.is_checked() {
            for piece in pieces {
                piece.at = self.read_back.len();
                self.read_back.resize(piece.at + piece.bytes, 0);
                gpu.download(piece.address, &mut self.read_back[piece.at..])?;
            }
            return Ok(());
        }
        let Some(first) = pieces.iter().map(|piece| piece.at).min() else { return Ok(()) };
        let end = pieces.iter().map(|piece| piece.at + piece.bytes).max().unwrap_or(first);
        let address = pieces.iter().map(|piece| piece.address).min().unwrap_or(0);
        pieces.into_iter().for_each(|piece| piece.at -= first);
        self.read_back.resize(end - first, 0);
        gpu.download(address, &mut self.read_back)
    }

    /// Numbers of a piece that the device gave back.
    pub fn values<T: Plain + Default>(&self, piece: Piece) -> Vec<T> {
        let Content { at, bytes, .. } = self.pieces[piece.0];
        let mut values = vec![T::default(); bytes / size_of::<T>()];
        bytes_of_mut(&mut values).copy_from_slice(&self.read_back[at..at + bytes]);
        values
    }
}

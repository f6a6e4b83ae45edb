//! The bytes of tensors in files: the numbers they stand for, and their order.

use anyhow::{Result, ensure};
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{DType, Device, Tensor};

use crate::lm::arithmetic::blocks::Blocks;
use crate::lm::arithmetic::stored_type::StoredType;

/// Converts the bytes of a stored type to a tensor.
pub(super) fn tensor(bytes: Vec<u8>, stored: StoredType, shape: &[usize]) -> Result<Tensor> {
    Ok(match stored {
        StoredType::Ggml(GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16) => {
            Tensor::from_raw_buffer(&bytes, float_type(stored), shape, &Device::Cpu)?
        }
        StoredType::Mxfp4 => {
            let numbers = shape.iter().product();
            let mut floats = vec![0.0; numbers];
            Blocks::new(StoredType::Mxfp4, bytes).expect("MXFP4 is unpacked").floats(0..numbers, &mut floats);
            Tensor::from_vec(floats, shape, &Device::Cpu)?
        }
        StoredType::Ggml(dtype) => {
            let blocks = QStorage::from_data(bytes.into(), &Device::Cpu, dtype)?;
            QTensor::new(blocks, shape)?.dequantize(&Device::Cpu)?
        }
    })
}

/// Type that a tensor takes in memory: the smallest that nearly keeps what it stores.
pub(super) fn float_type(stored: StoredType) -> DType {
    match stored {
        StoredType::Ggml(GgmlDType::F16) => DType::F16,
        StoredType::Ggml(GgmlDType::F32) => DType::F32,
        _ => DType::BF16,
    }
}

/// Joins blocks and scales to blocks of MXFP4 as GGUF files have them: the scale first, and the second half of the numbers in the
/// upper bits. In `blocks` two neighbours share a byte.
pub(super) fn with_scales(blocks: &[u8], scales: &[u8]) -> Vec<u8> {
    let number = |block: &[u8; 16], index: usize| block[index / 2] >> (index % 2 * 4) & 15;
    let block = |(block, scale): (&[u8; 16], &u8)| {
        let pairs = (0..16).map(|index| number(block, index) | number(block, index + 16) << 4);
        std::iter::once(*scale).chain(pairs).collect::<Vec<_>>()
    };
    blocks.as_chunks().0.iter().zip(scales).flat_map(block).collect()
}

/// Transposes a matrix (rows, columns).
pub(super) fn transposed(bytes: &[u8], rows: usize, columns: usize) -> Vec<u8> {
    let size = bytes.len() / (rows * columns);
    let places = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    places.flat_map(|place| &bytes[place * size..(place + 1) * size]).copied().collect()
}

/// Undoes the order of llama.cpp's converter, which in each head alternates the two rows of each rotary pair; checkpoints have all
/// first rows before all second ones.
pub(super) fn bytes_in_order(bytes: Vec<u8>, rows: usize, permuted_heads: Option<usize>) -> Result<Vec<u8>> {
    let Some(heads) = permuted_heads else { return Ok(bytes) };
    ensure!(rows.is_multiple_of(2 * heads), "its {rows} rows are no multiple of {heads} heads with pairs");
    let (row, pairs) = (bytes.len() / rows, rows / heads / 2);
    let mut ordered = Vec::with_capacity(bytes.len());
    for head in bytes.chunks_exact(2 * pairs * row) {
        for part in 0..2 {
            for pair in 0..pairs {
                ordered.extend_from_slice(&head[(2 * pair + part) * row..][..row]);
            }
        }
    }
    Ok(ordered)
}

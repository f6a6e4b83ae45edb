//! The header of a GGUF file: its metadata and its list of tensors, read by candle.

use std::collections::HashMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom};

use anyhow::{Context, Error, Result, anyhow, ensure};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value as Field};

use super::types;

/// Bytes of a header; those with the largest vocabularies have some ten million. In memory a byte may take 32.
const MOST_BYTES: u64 = 32 << 20;
/// What to do with a file that cannot be read.
const AGAIN: &str = "fetch it again";

pub(super) struct Header {
    pub fields: HashMap<String, Field>,
    pub tensors: Vec<ListedTensor>,
}

/// A tensor as the header lists it.
pub(super) struct ListedTensor {
    pub name: String,
    /// Rows first, as in a checkpoint.
    pub shape: Vec<usize>,
    pub stored: GgmlDType,
    /// Where it is in the file, of which it is a part.
    pub start: u64,
    pub length: usize,
}

impl Header {
    /// Reads the header of a file of `total` bytes.
    pub fn read(file: impl Read, total: u64) -> Result<Header> {
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        ensure!(
            bytes.starts_with(b"GGUF"),
            "it does not begin with the letters GGUF: it is empty, truncated or no GGUF file; {AGAIN}"
        );
        let mut reader = Remembering { bytes: Cursor::new(bytes), name: Vec::new(), reads: 0, number: 0 };
        let content = Content::read(&mut reader).map_err(|error| reader.explain(&error))?;
        let Content { metadata: fields, tensor_infos, tensor_data_offset: data, .. } = content;
        let mut infos: Vec<(String, TensorInfo)> = tensor_infos.into_iter().collect();
        infos.sort_by_key(|(_, info)| info.offset);
        let listed = |(name, info): (String, TensorInfo)| {
            let tensor = ListedTensor::new(&name, &info, data, total);
            tensor.with_context(|| format!("tensor {name} cannot be used"))
        };
        Ok(Header { fields, tensors: infos.into_iter().map(listed).collect::<Result<_>>()? })
    }
}

impl ListedTensor {
    /// A tensor of a file of `total` bytes, the first of whose tensors starts at `data`.
    fn new(name: &str, info: &TensorInfo, data: u64, total: u64) -> Result<ListedTensor> {
        let (shape, stored) = (info.shape.dims().to_vec(), info.ggml_dtype);
        let elements = shape.iter().try_fold(1, |product: usize, size| product.checked_mul(*size));
        let elements = elements.filter(|elements| *elements > 0);
        let elements =
            elements.with_context(|| format!("its shape is {shape:?}: the file is damaged; {AGAIN}"))?;
        let (columns, block) = (shape.last().copied().unwrap_or(1), stored.block_size());
        ensure!(
            columns.is_multiple_of(block),
            "its rows have {columns} numbers, no multiple of the {block} of a block of {}; convert the model again",
            types::name(stored)
        );
        let length = (elements / block).saturating_mul(stored.type_size());
        let start = data.saturating_add(info.offset);
        let end = start.saturating_add(length as u64);
        ensure!(end <= total, "it ends at byte {end} and the file at byte {total}: it is truncated; {AGAIN}");
        Ok(ListedTensor { name: name.to_owned(), shape, stored, start, length })
    }
}

/// The bytes of a header, and what was read of them last: candle's errors name neither the tensor nor its type.
struct Remembering {
    bytes: Cursor<Vec<u8>>,
    /// The last name or text.
    name: Vec<u8>,
    /// Reads since.
    reads: usize,
    /// The last number of four bytes.
    number: u32,
}

impl Remembering {
    fn explain(&self, error: &candle_core::Error) -> Error {
        let name = String::from_utf8_lossy(&self.name);
        let error = error.to_string();
        // A backtrace may follow.
        let error = error.lines().next().unwrap_or_default();
        if error.contains("unknown dtype for tensor") {
            return types::refused(self.number).context(format!("tensor {name} cannot be used"));
        }
        anyhow!("its header cannot be read after {name:?}: the file is truncated or damaged; {AGAIN} ({error})")
    }
}

impl Read for Remembering {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buffer)
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.bytes.read_exact(buffer)?;
        self.reads += 1;
        // candle divides by it. The type of the value comes before the value.
        if self.name == b"general.alignment" && self.reads == 2 && buffer.iter().all(|byte| *byte == 0) {
            return Err(io::Error::other("general.alignment is 0"));
        }
        match *buffer {
            [a, b, c, d] => self.number = u32::from_le_bytes([a, b, c, d]),
            // Other numbers, and lists of sizes.
            _ if buffer.len() <= 8 || buffer.contains(&0) => {}
            _ => (self.name, self.reads) = (buffer.to_vec(), 0),
        }
        Ok(())
    }
}

impl Seek for Remembering {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

/// Integers are stored in many widths.
pub(super) fn integer(field: &Field) -> Option<u64> {
    match *field {
        Field::U8(value) => Some(value.into()),
        Field::U16(value) => Some(value.into()),
        Field::U32(value) => Some(value.into()),
        Field::U64(value) => Some(value),
        Field::I8(value) => value.try_into().ok(),
        Field::I16(value) => value.try_into().ok(),
        Field::I32(value) => value.try_into().ok(),
        Field::I64(value) => value.try_into().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }

    /// A file with a text, a list of numbers in a list, and two tensors.
    fn file() -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend([2_u64, 2].map(u64::to_le_bytes).concat());
        text(&mut bytes, "general.architecture");
        bytes.extend(8_u32.to_le_bytes());
        text(&mut bytes, "llama\0");
        text(&mut bytes, "lists");
        bytes.extend([9_u32, 9].map(u32::to_le_bytes).concat());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(2_u64.to_le_bytes());
        bytes.extend([7_i16, -7].map(i16::to_le_bytes).concat());
        for (name, kind, offset) in [("a", 0_u32, 0_u64), ("b", 8, 256)] {
            text(&mut bytes, name);
            bytes.extend(2_u32.to_le_bytes());
            bytes.extend([32_u64, 2].map(u64::to_le_bytes).concat());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(32) + 256 + 2 * 34, 0);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Header> {
        Header::read(bytes, bytes.len() as u64)
    }

    #[test]
    fn a_header_is_read() {
        let Header { fields, tensors } = read(&file()).unwrap();
        assert_eq!(fields["general.architecture"].to_string().unwrap(), "llama");
        let lists = fields["lists"].to_vec().unwrap();
        assert!(matches!(lists[0].to_vec().unwrap()[..], [Field::I16(7), Field::I16(-7)]));
        let [a, b] = &tensors[..] else { panic!("{} tensors", tensors.len()) };
        assert_eq!((a.name.as_str(), &a.shape[..], a.stored, a.length), ("a", &[2, 32][..], GgmlDType::F32, 256));
        assert_eq!((b.stored, b.length, b.start - a.start), (GgmlDType::Q8_0, 68, 256));
        assert_eq!(b.start as usize + b.length, file().len());
    }

    #[test]
    fn a_file_cut_anywhere_is_refused() {
        let file = file();
        for length in 0..file.len() {
            assert!(read(&file[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn no_changed_byte_leads_outside_the_file() {
        let file = file();
        for place in 0..file.len() {
            for other in (0..8).map(|bit| file[place] ^ 1 << bit).chain([0, 0x7f, 0xff]) {
                let mut changed = file.clone();
                changed[place] = other;
                let Ok(header) = read(&changed) else { continue };
                for tensor in header.tensors {
                    assert!(tensor.start as usize + tensor.length <= file.len(), "byte {place} as {other}");
                }
            }
        }
    }
}

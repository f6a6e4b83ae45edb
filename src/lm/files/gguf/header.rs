//! The header of a GGUF file: its metadata and its list of tensors (ggml's docs/gguf.md).
//!
//! candle reads headers as well, but not one that lists a tensor of a type it does not know, such as MXFP4.

use std::io::Read;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

use crate::lm::arithmetic::stored_type::StoredType;

/// Largest header in bytes; those with the largest vocabularies have some ten million. In memory a byte may take 32.
const MOST_BYTES: u64 = 32 << 20;
/// Largest number of sides of a tensor, and deepest nesting of lists.
const MOST_SIDES: u32 = 4;
const DEEPEST: usize = 8;
/// Divisor of the byte at which each tensor starts, unless the metadata says otherwise.
const ALIGNMENT: u64 = 32;
/// Hint for a file that cannot be read.
const REFETCH: &str = "fetch it again";
const DAMAGED: &str = "the file is damaged; fetch it again, or convert the model again";

pub(super) struct Header {
    pub fields: Map<String, Value>,
    pub tensors: Vec<ListedTensor>,
}

/// Tensor as the header lists it.
pub(in crate::lm) struct ListedTensor {
    pub name: String,
    /// Name in the file.
    pub in_file: String,
    /// Sides, rows first as in a checkpoint.
    pub shape: Vec<usize>,
    pub stored: StoredType,
    /// First byte of the tensor in the file. The file has all bytes of the tensor.
    pub start: u64,
    pub length: usize,
    /// Number of heads whose rows the converter put into another order.
    pub permuted_heads: Option<usize>,
}

impl Header {
    /// Reads the header of a file of `total` bytes.
    pub fn read(file: impl Read, total: u64) -> Result<Header> {
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        let rest = bytes.strip_prefix(b"GGUF").with_context(|| {
            format!("it does not begin with the letters GGUF: it is empty, truncated or no GGUF file; {REFETCH}")
        })?;
        let mut reader = Reader { rest, name: String::new() };
        check_version(reader.u32().context("it ends after the letters GGUF: it is truncated; fetch it again")?)?;
        let listed = reader.listed().with_context(|| {
            let name = &reader.name;
            format!("its header cannot be read after {name:?}: the file is truncated or damaged; {REFETCH}")
        });
        let (fields, listed) = listed?;
        let alignment = match fields.get("general.alignment") {
            None => ALIGNMENT,
            Some(field) => field.as_u64().filter(|alignment| *alignment > 0).context(
                "general.alignment is 0 or no whole number: tensors cannot be found; convert the model again",
            )?,
        };
        let data = ((bytes.len() - reader.rest.len()) as u64).next_multiple_of(alignment);
        // Tensors follow each other without gaps, as llama.cpp demands too: otherwise the list is not that of these bytes.
        let (mut next, mut end) = (data, data);
        let mut tensor = |listed: Listed| {
            let tensor = ListedTensor::new(listed, data, total)?;
            let start = tensor.start;
            ensure!(
                start == next,
                "it starts at byte {start}, and the tensor before it ends at {next}: {DAMAGED}"
            );
            end = start + tensor.length as u64;
            next = end.checked_next_multiple_of(alignment).context(DAMAGED)?;
            Ok(tensor)
        };
        let tensors = listed.into_iter().map(|listed| {
            let name = listed.name.clone();
            tensor(listed).with_context(|| format!("tensor {name} cannot be used"))
        });
        let tensors = tensors.collect::<Result<_>>()?;
        ensure!(
            (end..=next).contains(&total),
            "its tensors end at byte {end} and the file at byte {total}: {DAMAGED}"
        );
        Ok(Header { fields, tensors })
    }
}

fn check_version(version: u32) -> Result<()> {
    ensure!(
        !(1..=3).contains(&version.swap_bytes()),
        "it is big-endian, as for IBM Z, and only little-endian files are read here: take the usual file, or convert the model without \
         `--bigendian`"
    );
    ensure!(
        version != 1,
        "it has version 1 of the format, of August 2023, which llama.cpp has dropped too: convert the model again"
    );
    ensure!(
        (2..=3).contains(&version),
        "it has version {version} of the format, which is not known here; only 2 and 3 are"
    );
    Ok(())
}

/// Entry of the header for a tensor.
struct Listed {
    name: String,
    /// Sides, columns first.
    sides: Vec<u64>,
    /// Number of the tensor's type.
    stored: u32,
    offset: u64,
}

impl ListedTensor {
    /// Checks an entry of a file of `total` bytes, the first of whose tensors starts at `data`.
    fn new(Listed { name, sides, stored, offset }: Listed, data: u64, total: u64) -> Result<ListedTensor> {
        let stored = StoredType::numbered(stored)?;
        let shape: Vec<usize> = sides.iter().rev().map(|side| *side as usize).collect();
        let elements = shape.iter().try_fold(1, |product: usize, size| product.checked_mul(*size));
        let elements = elements.filter(|elements| *elements > 0);
        let elements =
            elements.with_context(|| format!("its shape is {shape:?}: the file is damaged; {REFETCH}"))?;
        let (columns, block) = (shape.last().copied().unwrap_or(1), stored.block_size());
        ensure!(
            columns.is_multiple_of(block),
            "its rows have {columns} numbers, no multiple of the {block} of a block of {}; convert the model again",
            stored.name()
        );
        let length = (elements / block).saturating_mul(stored.type_size());
        let start = data.saturating_add(offset);
        let end = start.saturating_add(length as u64);
        ensure!(end <= total, "it ends at byte {end} and the file at byte {total}: it is truncated; {REFETCH}");
        Ok(ListedTensor { in_file: name.clone(), name, shape, stored, start, length, permuted_heads: None })
    }
}

/// Bytes of a header that are left, and the name that was read last.
struct Reader<'b> {
    rest: &'b [u8],
    name: String,
}

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.rest.split_first_chunk().context("it ends there")?;
        self.rest = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn text(&mut self) -> Result<String> {
        let length = usize::try_from(self.u64()?)?;
        let (text, rest) = self.rest.split_at_checked(length).context("a text ends behind the header")?;
        self.rest = rest;
        Ok(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
    }

    /// Reads the part after the version: the metadata and the tensors.
    fn listed(&mut self) -> Result<(Map<String, Value>, Vec<Listed>)> {
        let (tensors, fields) = (self.u64()?, self.u64()?);
        let mut metadata = Map::new();
        for _ in 0..fields {
            self.name = self.text()?;
            let kind = self.u32()?;
            metadata.insert(self.name.clone(), self.field(kind, 0)?);
        }
        let mut listed = Vec::new();
        for _ in 0..tensors {
            self.name = self.text()?;
            let sides = self.u32()?;
            ensure!(sides <= MOST_SIDES, "it has {sides} sides");
            let sides = (0..sides).map(|_| self.u64()).collect::<Result<_>>()?;
            listed.push(Listed { name: self.name.clone(), sides, stored: self.u32()?, offset: self.u64()? });
        }
        Ok((metadata, listed))
    }

    fn field(&mut self, kind: u32, depth: usize) -> Result<Value> {
        Ok(match kind {
            0 => u8::from_le_bytes(self.bytes()?).into(),
            1 => i8::from_le_bytes(self.bytes()?).into(),
            2 => u16::from_le_bytes(self.bytes()?).into(),
            3 => i16::from_le_bytes(self.bytes()?).into(),
            4 => self.u32()?.into(),
            5 => i32::from_le_bytes(self.bytes()?).into(),
            6 => f32::from_le_bytes(self.bytes()?).into(),
            7 => (self.bytes::<1>()? != [0]).into(),
            8 => self.text()?.into(),
            9 => {
                ensure!(depth < DEEPEST, "it is a list in more than {DEEPEST} lists");
                let (kind, length) = (self.u32()?, self.u64()?);
                // No room is made for what may not be there.
                Value::Array((0..length).map(|_| self.field(kind, depth + 1)).collect::<Result<_>>()?)
            }
            10 => self.u64()?.into(),
            11 => i64::from_le_bytes(self.bytes()?).into(),
            12 => f64::from_le_bytes(self.bytes()?).into(),
            _ => bail!("a field has type {kind}, which no version has"),
        })
    }
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::GgmlDType;
    use serde_json::json;

    use super::*;

    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }

    /// Bytes of a file with a text, a list of numbers in a list, and two tensors.
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
        assert_eq!(fields["general.architecture"], "llama");
        assert_eq!(fields["lists"], json!([[7, -7]]));
        let [a, b] = &tensors[..] else { panic!("{} tensors", tensors.len()) };
        assert_eq!(
            (a.name.as_str(), &a.shape[..], a.stored, a.length),
            ("a", &[2, 32][..], StoredType::Ggml(GgmlDType::F32), 256)
        );
        assert_eq!((b.stored, b.length, b.start - a.start), (StoredType::Ggml(GgmlDType::Q8_0), 68, 256));
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

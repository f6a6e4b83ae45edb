//! The header of a GGUF file: its metadata and its list of tensors.
//!
//! candle reads the same format, but its errors name neither the tensor nor its type, and of two tensors with one name it
//! keeps the last.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use anyhow::{Context, Result, bail, ensure};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{DEFAULT_ALIGNMENT, Value as Field};

use super::gguf_types;

/// Bytes of a header; those with the largest vocabularies have some ten million.
const MOST_BYTES: u64 = 64 << 20;
/// Values in the metadata, those in lists included. Each takes some thirty bytes in memory and at least one in the file.
const MOST_VALUES: u64 = 8 << 20;
/// Lists in lists.
const MOST_DEPTH: u32 = 4;
const MOST_DIMENSIONS: u32 = 4;

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
        let mut bytes = Bytes { file, read: 0, values: 0, total };
        ensure!(total > 0, "the file is empty; {AGAIN}");
        ensure!(bytes.array()? == *b"GGUF", "it does not begin with the letters GGUF: it is no GGUF file");
        let version = bytes.u32()?;
        let is_swapped = matches!(version.swap_bytes(), 1..=3);
        ensure!(!is_swapped, "its bytes are in big-endian order, which is not read; convert the model again");
        ensure!(
            matches!(version, 2 | 3),
            "its GGUF version is {version}, and 2 and 3 are read; convert the model again"
        );
        let (tensors, fields) = (bytes.u64()?, bytes.u64()?);
        let fields = bytes.fields(fields)?;
        let alignment = fields.get("general.alignment").map_or(Some(DEFAULT_ALIGNMENT), integer);
        let alignment = alignment.filter(|alignment| (1..=MOST_BYTES).contains(alignment));
        let alignment =
            alignment.context("its general.alignment is no number of bytes; convert the model again")?;
        let tensors = bytes.tensors(tensors)?;
        Ok(Header { fields, tensors: placed(tensors, bytes.read.next_multiple_of(alignment), total)? })
    }
}

/// Adds the start of the data to the places of the tensors, and checks that each lies in the file.
fn placed(tensors: Vec<ListedTensor>, data: u64, total: u64) -> Result<Vec<ListedTensor>> {
    let place = |tensor: ListedTensor| {
        let start = data.saturating_add(tensor.start);
        let end = start.saturating_add(tensor.length as u64);
        ensure!(
            end <= total,
            "tensor {} ends at byte {end} and the file at byte {total}: it is truncated; {AGAIN}",
            tensor.name
        );
        Ok(ListedTensor { start, ..tensor })
    };
    tensors.into_iter().map(place).collect()
}

/// A header's bytes, which are counted.
struct Bytes<R> {
    file: R,
    read: u64,
    values: u64,
    total: u64,
}

impl<R: Read> Bytes<R> {
    /// Counts bytes before they are read.
    fn count(&mut self, length: u64) -> Result<()> {
        let left = self.total - self.read;
        ensure!(length <= left, "the file ends too early: it is truncated or damaged; {AGAIN}");
        self.read += length;
        ensure!(
            self.read <= MOST_BYTES,
            "the header is longer than {MOST_BYTES} bytes: the file is damaged; {AGAIN}"
        );
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.count(N as u64)?;
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A name or text; some files end theirs with zeros.
    fn text(&mut self) -> Result<String> {
        let length = self.u64()?;
        self.count(length)?;
        let mut text = vec![0; length as usize];
        self.file.read_exact(&mut text)?;
        Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
    }

    fn fields(&mut self, count: u64) -> Result<HashMap<String, Field>> {
        let mut fields = HashMap::new();
        let mut last = "its start".to_owned();
        for _ in 0..count {
            let name = self.text().with_context(|| format!("in its metadata, after {last}"))?;
            let kind = self.u32();
            let field = kind.and_then(|kind| self.field(kind, 0));
            let field = field.with_context(|| format!("in its metadata, at {name}"))?;
            ensure!(
                fields.insert(name.clone(), field).is_none(),
                "its metadata has {name} twice; convert the model again"
            );
            last = name;
        }
        Ok(fields)
    }

    fn field(&mut self, kind: u32, depth: u32) -> Result<Field> {
        self.values += 1;
        ensure!(
            self.values <= MOST_VALUES,
            "there are more than {MOST_VALUES} values: the file is damaged; {AGAIN}"
        );
        Ok(match kind {
            0 => Field::U8(u8::from_le_bytes(self.array()?)),
            1 => Field::I8(i8::from_le_bytes(self.array()?)),
            2 => Field::U16(u16::from_le_bytes(self.array()?)),
            3 => Field::I16(i16::from_le_bytes(self.array()?)),
            4 => Field::U32(self.u32()?),
            5 => Field::I32(i32::from_le_bytes(self.array()?)),
            6 => Field::F32(f32::from_le_bytes(self.array()?)),
            7 => Field::Bool(self.array()? != [0]),
            8 => Field::String(self.text()?),
            9 => {
                ensure!(depth < MOST_DEPTH, "lists lie {depth} deep in lists: the file is damaged; {AGAIN}");
                let (kind, length) = (self.u32()?, self.u64()?);
                Field::Array((0..length).map(|_| self.field(kind, depth + 1)).collect::<Result<_>>()?)
            }
            10 => Field::U64(self.u64()?),
            11 => Field::I64(i64::from_le_bytes(self.array()?)),
            12 => Field::F64(f64::from_le_bytes(self.array()?)),
            other => bail!("{other} is no type of a value: the file is damaged; {AGAIN}"),
        })
    }

    /// The list of tensors; their starts are counted from the start of the data.
    fn tensors(&mut self, count: u64) -> Result<Vec<ListedTensor>> {
        let (mut tensors, mut names) = (Vec::new(), HashSet::new());
        let mut last = "its start".to_owned();
        for _ in 0..count {
            let name = self.text().with_context(|| format!("in its list of tensors, after {last}"))?;
            let tensor = self.tensor(&name).with_context(|| format!("tensor {name} cannot be used"))?;
            ensure!(names.insert(name.clone()), "tensor {name} is listed twice; convert the model again");
            tensors.push(tensor);
            last = name;
        }
        Ok(tensors)
    }

    fn tensor(&mut self, name: &str) -> Result<ListedTensor> {
        let dimensions = self.u32()?;
        ensure!(
            (1..=MOST_DIMENSIONS).contains(&dimensions),
            "it has {dimensions} dimensions: the file is damaged; {AGAIN}"
        );
        let mut shape = (0..dimensions).map(|_| Ok(self.u64()? as usize)).collect::<Result<Vec<_>>>()?;
        let columns = shape[0];
        shape.reverse();
        let stored = gguf_types::of(self.u32()?)?;
        let start = self.u64()?;
        let elements = shape.iter().try_fold(1, |product: usize, size| product.checked_mul(*size));
        let elements = elements.filter(|elements| *elements > 0);
        let elements =
            elements.with_context(|| format!("its shape is {shape:?}: the file is damaged; {AGAIN}"))?;
        let block = stored.block_size();
        ensure!(
            columns.is_multiple_of(block),
            "its rows have {columns} numbers, no multiple of the {block} of a block of {}; convert the model again",
            gguf_types::name(stored)
        );
        let length = (elements / block).saturating_mul(stored.type_size());
        Ok(ListedTensor { name: name.to_owned(), shape, stored, start, length })
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

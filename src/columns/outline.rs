//! A Parquet file's own account of itself, read before the Parquet library believes it.
//!
//! Knows the Thrift records of the format (parquet.thrift of apache/parquet-format) as far as they say how much there is to
//! read, and no value. A page of forty bytes may say that it unpacks to two gigabytes, a footer that it has 10^12 rows, and
//! a schema may nest deeper than a stack; each is refused here, before memory is taken for it.

use std::io::{Read, Seek, SeekFrom};

use anyhow::{Context, Result, bail, ensure};

/// Bytes of a footer: that of a thousand columns in a hundred groups has some dozens of megabytes.
const MOST_FOOTER: u64 = 64 << 20;
/// Columns and groups of columns, and groups in groups.
const MOST_NAMES: usize = 1 << 16;
const DEEPEST: usize = 16;
/// Rows by bytes of the file, and beyond any: the densest files of results have one for every second byte.
const ROWS_A_BYTE: u64 = 4;
const FEW_ROWS: u64 = 1 << 16;
/// Bytes that pages unpack to, by bytes of the file, and beyond any: texts shrink to a third, results to a twentieth.
const UNPACKED_A_BYTE: u64 = 256;
const LITTLE_UNPACKED: u64 = 1 << 26;
/// Bytes of a page's header, with the smallest and largest of its texts.
const LONGEST_HEADER: u64 = 1 << 20;
/// Each value is told by what it shares with the one before, so few bytes can stand for any number of long texts.
const DELTA_BYTE_ARRAY: i64 = 7;

/// What a footer says of a column in a group of rows.
#[derive(Default)]
struct Chunk {
    values: i64,
    packed: i64,
    first: i64,
    dictionary: Option<i64>,
}

/// What the header of a page says.
#[derive(Default)]
struct Page {
    unpacked: i64,
    packed: i64,
    values: i64,
    encoding: i64,
}

/// Checks a file.
///
/// # Errors
/// A file that is no Parquet file, is damaged, or says that there is far more in it than its bytes can hold.
pub(super) fn check(file: &mut (impl Read + Seek)) -> Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    let end = read(file, length.checked_sub(8).context("it is too short")?, 8)?;
    let (size, mark) = end.split_first_chunk::<4>().context("it is too short")?;
    ensure!(mark == b"PAR1", "it does not end as a Parquet file does");
    let size = u64::from(u32::from_le_bytes(*size));
    ensure!(size <= MOST_FOOTER, "its footer has {size} bytes, and {MOST_FOOTER} is the most");
    let footer = read(file, (length - 8).checked_sub(size).context("its footer is longer than the file")?, size)?;
    let most_rows = FEW_ROWS.saturating_add(length.saturating_mul(ROWS_A_BYTE));
    let chunks = footer_of(&footer, most_rows).context("its footer cannot be read")?;

    let most = LITTLE_UNPACKED.saturating_add(length.saturating_mul(UNPACKED_A_BYTE));
    let mut unpacked = 0;
    for Chunk { values, packed, first, dictionary } in chunks {
        let start = dictionary.filter(|start| (1..first).contains(start)).unwrap_or(first);
        let (mut at, end) = (number(start)?, number(start)?.saturating_add(number(packed)?));
        ensure!(end <= length, "a column lies beyond its end");
        ensure!(number(values)? <= most_rows, "a column has {values} values, far more than its bytes can hold");
        while at < end {
            let (page, header) = page_of(file, at, end)?;
            ensure!(
                page.encoding != DELTA_BYTE_ARRAY,
                "a column is stored as differences of texts (DELTA_BYTE_ARRAY)"
            );
            ensure!(
                number(page.values)? <= most_rows,
                "a page has {} values, far more than its bytes can hold",
                page.values
            );
            unpacked += number(page.unpacked)?;
            ensure!(
                unpacked <= most,
                "it unpacks to more than {most} bytes, far more than its own {length} can hold"
            );
            at += header + number(page.packed)?;
        }
    }
    Ok(())
}

fn number(value: i64) -> Result<u64> {
    u64::try_from(value).ok().with_context(|| format!("a size is {value}"))
}

fn read(file: &mut (impl Read + Seek), at: u64, length: u64) -> Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The header of the page at a place, and its length.
fn page_of(file: &mut (impl Read + Seek), at: u64, end: u64) -> Result<(Page, u64)> {
    // Most headers are short, and many are read.
    for longest in [256, LONGEST_HEADER] {
        let bytes = read(file, at, longest.min(end - at))?;
        let mut thrift = Thrift { bytes: &bytes, at: 0 };
        let mut page = Page::default();
        let whole = thrift.record(|thrift, field, kind| {
            match field {
                2 => page.unpacked = thrift.integer(kind)?,
                3 => page.packed = thrift.integer(kind)?,
                // Data, a dictionary, or data of the second version; they keep their encodings in different places.
                5 | 7 | 8 => thrift.record(|thrift, inner, kind| {
                    match (field, inner) {
                        (_, 1) => page.values = thrift.integer(kind)?,
                        (5, 2) | (8, 4) => page.encoding = thrift.integer(kind)?,
                        _ => thrift.skip(kind, DEEPEST)?,
                    }
                    Ok(())
                })?,
                _ => thrift.skip(kind, DEEPEST)?,
            }
            Ok(())
        });
        if whole.is_ok() {
            return Ok((page, thrift.at as u64));
        }
    }
    bail!("the header of a page at byte {at} cannot be read")
}

/// The columns of all groups of rows, if there are not too many rows and the schema is not too deep.
fn footer_of(bytes: &[u8], most_rows: u64) -> Result<Vec<Chunk>> {
    let mut thrift = Thrift { bytes, at: 0 };
    let (mut chunks, mut rows, mut told) = (Vec::new(), 0u64, 0);
    // Names still to come, of the groups that are open.
    let (mut open, mut names): (Vec<i64>, usize) = (Vec::new(), 0);
    thrift.record(|thrift, field, kind| {
        match field {
            2 => thrift.list(kind, |thrift| {
                let mut children = 0;
                thrift.record(|thrift, field, kind| {
                    match field {
                        5 => children = thrift.integer(kind)?,
                        _ => thrift.skip(kind, DEEPEST)?,
                    }
                    Ok(())
                })?;
                names += 1;
                ensure!(names <= MOST_NAMES, "it has more than {MOST_NAMES} columns");
                if let Some(left) = open.last_mut() {
                    *left -= 1;
                }
                if children > 0 {
                    open.push(children);
                }
                ensure!(open.len() <= DEEPEST, "its columns are nested more than {DEEPEST} deep");
                while open.last().is_some_and(|left| *left <= 0) {
                    open.pop();
                }
                Ok(())
            })?,
            3 => told = number(thrift.integer(kind)?)?,
            4 => thrift.list(kind, |thrift| {
                thrift.record(|thrift, field, kind| {
                    match field {
                        1 => thrift.list(kind, |thrift| {
                            chunks.push(chunk_of(thrift)?);
                            Ok(())
                        })?,
                        3 => rows = rows.saturating_add(number(thrift.integer(kind)?)?),
                        _ => thrift.skip(kind, DEEPEST)?,
                    }
                    Ok(())
                })
            })?,
            _ => thrift.skip(kind, DEEPEST)?,
        }
        Ok(())
    })?;
    let rows = rows.max(told);
    ensure!(rows <= most_rows, "it says that it has {rows} rows, far more than its bytes can hold");
    Ok(chunks)
}

fn chunk_of(thrift: &mut Thrift) -> Result<Chunk> {
    let mut chunk = Chunk::default();
    thrift.record(|thrift, field, kind| {
        if field != 3 {
            return thrift.skip(kind, DEEPEST);
        }
        thrift.record(|thrift, field, kind| {
            match field {
                5 => chunk.values = thrift.integer(kind)?,
                7 => chunk.packed = thrift.integer(kind)?,
                9 => chunk.first = thrift.integer(kind)?,
                11 => chunk.dictionary = Some(thrift.integer(kind)?),
                _ => thrift.skip(kind, DEEPEST)?,
            }
            Ok(())
        })
    })?;
    Ok(chunk)
}

/// Records in Thrift's compact protocol.
struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Kinds of values, as the protocol numbers them.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const RECORD: u8 = 12;

impl Thrift<'_> {
    fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).context("it ends too early")?;
        self.at += 1;
        Ok(byte)
    }

    fn advance(&mut self, length: u64) -> Result<()> {
        let left = self.bytes.len() - self.at;
        let length = usize::try_from(length).ok().filter(|length| *length <= left).context("it ends too early")?;
        self.at += length;
        Ok(())
    }

    /// Seven bits a byte, the lowest first.
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        bail!("a number does not end")
    }

    fn zigzag(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn integer(&mut self, kind: u8) -> Result<i64> {
        match kind {
            BYTE => Ok(i64::from(self.byte()?.cast_signed())),
            _ if (BYTE..=I64).contains(&kind) => self.zigzag(),
            _ => bail!("a number is of kind {kind}"),
        }
    }

    /// Gives the fields of a record, each to be read or skipped.
    fn record(&mut self, mut field: impl FnMut(&mut Self, i64, u8) -> Result<()>) -> Result<()> {
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            let (step, kind) = (head >> 4, head & 15);
            if kind == 0 {
                return Ok(());
            }
            id = if step == 0 { self.zigzag()? } else { id.saturating_add(i64::from(step)) };
            field(self, id, kind)?;
        }
    }

    /// Gives the items of a list of records. An item takes a byte at least, so a list ends with the file.
    fn list(&mut self, kind: u8, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        ensure!(kind == LIST, "a list is of kind {kind}");
        let (length, kind) = self.list_head()?;
        ensure!(kind == RECORD || length == 0, "an item of a list is of kind {kind}");
        (0..length).try_for_each(|_| item(self))
    }

    fn list_head(&mut self) -> Result<(u64, u8)> {
        let head = self.byte()?;
        let length = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Ok((length, head & 15))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<()> {
        let below = depth.checked_sub(1).context("its records are nested too deep")?;
        match kind {
            TRUE | FALSE => Ok(()),
            BYTE => self.advance(1),
            4..=I64 => self.varint().map(drop),
            DOUBLE => self.advance(8),
            BINARY => {
                let length = self.varint()?;
                self.advance(length)
            }
            LIST | SET => {
                let (length, kind) = self.list_head()?;
                (0..length).try_for_each(|_| self.skip_item(kind, below))
            }
            MAP => {
                let length = self.varint()?;
                if length == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                (0..length).try_for_each(|_| {
                    self.skip_item(kinds >> 4, below)?;
                    self.skip_item(kinds & 15, below)
                })
            }
            RECORD => self.record(|thrift, _, kind| thrift.skip(kind, below)),
            _ => bail!("a value is of kind {kind}"),
        }
    }

    /// Inside a list a truth value takes a byte, as every other does.
    fn skip_item(&mut self, kind: u8, depth: usize) -> Result<()> {
        if matches!(kind, TRUE | FALSE) { self.advance(1) } else { self.skip(kind, depth) }
    }
}

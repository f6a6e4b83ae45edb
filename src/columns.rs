//! Columns in Parquet files: the only place that knows the Parquet library.
//!
//! Knows named columns of seven types and nothing of what they mean. The results keep their rows here, and data
//! sets are read here, so files of other writers must open; what cannot be read is an error, never a panic.

mod outline;

use std::fs::File;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use polars::prelude as pl;
use polars::prelude::{IntoColumn, NamedFrom, SerReader};

/// A text that is cheap to copy, and needs no memory of its own where it is short.
pub type Text = ecow::EcoString;

/// A type a column can have.
pub trait Value: Sized {
    /// The type in words, for errors.
    const TYPE: &'static str;
    #[doc(hidden)]
    fn store(name: &str, values: Vec<Self>) -> pl::Column;
    #[doc(hidden)]
    fn load(column: &pl::Column) -> Option<Vec<Self>>;
}

/// A required value is stored as one that may be absent, and refused on reading where it is.
macro_rules! value {
    ($type:ty, $words:literal, $get:ident, $read:expr) => {
        impl Value for $type {
            const TYPE: &'static str = $words;
            fn store(name: &str, values: Vec<Self>) -> pl::Column {
                pl::Series::new(name.into(), values).into_column()
            }
            fn load(column: &pl::Column) -> Option<Vec<Self>> {
                column.$get().ok()?.iter().map(|value| value.map($read)).collect()
            }
        }
    };
    (optional $type:ty, $words:literal, $get:ident, $read:expr) => {
        impl Value for Option<$type> {
            const TYPE: &'static str = $words;
            fn store(name: &str, values: Vec<Self>) -> pl::Column {
                pl::Series::new(name.into(), values).into_column()
            }
            fn load(column: &pl::Column) -> Option<Vec<Self>> {
                Some(column.$get().ok()?.iter().map(|value| value.map($read)).collect())
            }
        }
    };
}

impl Value for Text {
    const TYPE: &'static str = "text";
    fn store(name: &str, values: Vec<Self>) -> pl::Column {
        store_texts(name, values.iter().map(|text| Some(text.as_str())))
    }
    fn load(column: &pl::Column) -> Option<Vec<Self>> {
        let mut last = Text::new();
        column.str().ok()?.iter().map(|text| text.map(|text| shared(&mut last, text))).collect()
    }
}

impl Value for Option<Text> {
    const TYPE: &'static str = "text or nothing";
    fn store(name: &str, values: Vec<Self>) -> pl::Column {
        store_texts(name, values.iter().map(Option::as_deref))
    }
    fn load(column: &pl::Column) -> Option<Vec<Self>> {
        let mut last = Text::new();
        Some(column.str().ok()?.iter().map(|text| text.map(|text| shared(&mut last, text))).collect())
    }
}

fn store_texts<'a>(name: &str, texts: impl Iterator<Item = Option<&'a str>>) -> pl::Column {
    let column: pl::StringChunked = texts.collect();
    column.with_name(name.into()).into_column()
}

/// A text, in the memory of the one before it where they are equal.
fn shared(last: &mut Text, text: &str) -> Text {
    if *last != text {
        *last = Text::from(text);
    }
    last.clone()
}

value!(String, "text", str, str::to_string);
value!(optional String, "text or nothing", str, str::to_string);
value!(f64, "f64", f64, |value| value);
value!(u32, "u32", u32, |value| value);
value!(optional u32, "u32 or nothing", u32, |value| value);
value!(u64, "u64", u64, |value| value);
value!(bool, "bool", bool, |value| value);

/// Bytes of the texts of a table of results, and of a column of a data set.
const MOST_TEXT: usize = 1 << 30;
const MOST_BOOKS: usize = 1 << 32;

/// Named columns of one length.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<pl::Column>,
}

impl Table {
    /// Adds a column at the end.
    pub fn push<T: Value>(&mut self, name: &str, values: Vec<T>) {
        self.columns.push(T::store(name, values));
    }

    /// The values of a column.
    ///
    /// # Errors
    /// No such column, another type, or an absent value where none may be.
    pub fn column<T: Value>(&self, name: &str) -> Result<Vec<T>> {
        let found = self.columns.iter().find(|column| column.name() == name);
        let names = || self.columns.iter().map(|column| column.name().as_str()).collect::<Vec<_>>().join(", ");
        let column = found.ok_or_else(|| anyhow!("there is no column `{name}`; the columns are {}", names()))?;
        T::load(column).ok_or_else(|| {
            let (dtype, absent) = (column.dtype(), column.null_count());
            anyhow!("column `{name}` is needed as {} but holds {dtype} ({absent} values are absent)", T::TYPE)
        })
    }

    /// Refuses texts that are small only as long as all values share them: a dictionary holds a text once, and here each row
    /// gets its own unless the row before has the same.
    fn check_texts(&self, most: usize) -> Result<()> {
        let mut bytes = 0;
        for column in &self.columns {
            let Ok(texts) = column.str() else { continue };
            let mut last = None;
            for text in texts.iter() {
                let own = if text == last { 0 } else { text.map_or(0, str::len) };
                bytes += own;
                last = text;
            }
            ensure!(bytes <= most, "its texts take more than {most} bytes");
        }
        Ok(())
    }

    /// Rows of the table.
    pub fn height(&self) -> usize {
        self.columns.first().map_or(0, pl::Column::len)
    }

    /// The table as the bytes of a Parquet file, compressed with zstd.
    ///
    /// # Errors
    /// Columns of different lengths or with one name.
    pub fn to_parquet(&self) -> Result<Vec<u8>> {
        let mut frame =
            pl::DataFrame::new(self.height(), self.columns.clone()).context("the columns make no table")?;
        let mut bytes = Vec::new();
        pl::ParquetWriter::new(&mut bytes)
            .with_compression(pl::ParquetCompression::Zstd(None))
            .finish(&mut frame)
            .context("the columns make no Parquet file")?;
        Ok(bytes)
    }

    /// All columns of a Parquet file, given as its bytes.
    ///
    /// # Errors
    /// Bytes that are not a whole Parquet file.
    pub fn from_parquet(bytes: Vec<u8>) -> Result<Table> {
        outline::check(&mut Cursor::new(&bytes))?;
        let frame = guarded(|| pl::ParquetReader::new(Cursor::new(bytes)).finish())?;
        let table = Table { columns: frame.into_columns() };
        table.check_texts(MOST_TEXT)?;
        Ok(table)
    }
}

/// The names and types of a Parquet file's columns, without reading them.
///
/// # Errors
/// A file that can't be read or is not a Parquet file.
pub fn columns_of(path: &Path) -> Result<Vec<(String, String)>> {
    let mut reader = open(path)?;
    let schema = guarded(|| reader.schema()).with_context(|| damaged(path))?;
    Ok(schema.iter().map(|(name, field)| (name.to_string(), type_name(&field.dtype))).collect())
}

/// One column of text of a Parquet file written by anyone; other columns are not read.
///
/// # Errors
/// A file that can't be read or is not a Parquet file; no column of that name (the error lists those there are); a
/// column that isn't text or misses a text.
pub fn read_text_column(path: &Path, name: &str) -> Result<Vec<String>> {
    let mut reader = open(path)?;
    let schema = guarded(|| reader.schema()).with_context(|| damaged(path))?;
    let Some(field) = schema.get(name) else {
        let names: Vec<&str> = schema.iter_names().map(|name| name.as_str()).collect();
        bail!("{} has no column `{name}`; its columns are {}", path.display(), names.join(", "));
    };
    // Texts that repeat may be stored as a dictionary of texts.
    let is_dictionary = type_name(&field.dtype) == DICTIONARY;
    if !is_dictionary && type_name(&field.dtype) != TEXT {
        bail!("column `{name}` of {} holds {}, and text is needed", path.display(), type_name(&field.dtype));
    }
    let frame = guarded(|| {
        let mut frame = reader.with_columns(Some(vec![name.to_string()])).finish()?;
        if is_dictionary {
            frame.try_apply(name, |texts| texts.cast(&pl::DataType::String))?;
        }
        Ok(frame)
    });
    let frame = frame.with_context(|| damaged(path))?;
    let table = Table { columns: frame.into_columns() };
    table.check_texts(MOST_BOOKS).and_then(|()| table.column(name)).with_context(|| path.display().to_string())
}

const TEXT: &str = "text";
const DICTIONARY: &str = "text (as a dictionary)";

/// A column's type for people: the library's own name, without how it is laid out.
fn type_name(dtype: &pl::ArrowDataType) -> String {
    use pl::ArrowDataType::{Dictionary, LargeUtf8, Utf8, Utf8View};
    match dtype {
        Utf8 | LargeUtf8 | Utf8View => TEXT.to_string(),
        Dictionary(_, values, _) if type_name(values) == TEXT => DICTIONARY.to_string(),
        other => {
            let words = format!("{other:?}").to_lowercase();
            let name = words.split(['(', ' ']).next().unwrap_or_default();
            name.trim_start_matches("large").trim_end_matches("view").to_string()
        }
    }
}

fn open(path: &Path) -> Result<pl::ParquetReader<File>> {
    let mut file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
    outline::check(&mut file).with_context(|| damaged(path))?;
    Ok(pl::ParquetReader::new(file))
}

fn damaged(path: &Path) -> String {
    format!("{} is not a Parquet file this program can read, or it is damaged", path.display())
}

/// The library may panic on damaged bytes and on types it was built without; both are the file's fault.
fn guarded<T>(read: impl FnOnce() -> pl::PolarsResult<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(outcome) => Ok(outcome?),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            bail!("{}", words.or(panic.downcast_ref::<&str>().copied()).unwrap_or("reading it failed"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::default();
        table.push("text", vec!["a".to_string(), String::new(), "größe ".repeat(200_000)]);
        table.push("maybe", vec![None, Some("b".to_string()), None]);
        table.push("number", vec![0.1, f64::NAN, f64::NEG_INFINITY]);
        table.push("count", vec![0, 1, u32::MAX]);
        table.push("limit", vec![None, Some(7u32), None]);
        table.push("bytes", vec![0, 1, u64::MAX]);
        table.push("flag", vec![true, false, true]);
        table
    }

    #[test]
    fn columns_survive_a_file() {
        let read = Table::from_parquet(table().to_parquet().unwrap()).unwrap();
        assert_eq!(read.height(), 3);
        assert_eq!(read.column::<String>("text").unwrap(), table().column::<String>("text").unwrap());
        assert_eq!(read.column::<Option<String>>("maybe").unwrap(), [None, Some("b".to_string()), None]);
        let numbers: Vec<u64> = read.column::<f64>("number").unwrap().into_iter().map(f64::to_bits).collect();
        assert_eq!(numbers, [0.1, f64::NAN, f64::NEG_INFINITY].map(f64::to_bits));
        assert_eq!(read.column::<u32>("count").unwrap(), [0, 1, u32::MAX]);
        assert_eq!(read.column::<Option<u32>>("limit").unwrap(), [None, Some(7), None]);
        assert_eq!(read.column::<u64>("bytes").unwrap(), [0, 1, u64::MAX]);
        assert_eq!(read.column::<bool>("flag").unwrap(), [true, false, true]);
    }

    #[test]
    fn what_is_not_there_is_told() {
        let told = |outcome: Result<()>, word: &str| {
            let error = format!("{:#}", outcome.unwrap_err());
            assert!(error.contains(word), "{error}");
        };
        told(table().column::<String>("txt").map(drop), "the columns are text, maybe, number");
        told(table().column::<f64>("count").map(drop), "holds u32");
        told(table().column::<String>("maybe").map(drop), "2 values are absent");
        let mut uneven = table();
        uneven.push("short", vec![true]);
        assert!(uneven.to_parquet().is_err());
        assert!(Table::from_parquet(b"no Parquet file".to_vec()).is_err());
    }

    #[test]
    fn texts_are_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("texts.parquet");
        std::fs::write(&path, table().to_parquet().unwrap()).unwrap();
        assert_eq!(read_text_column(&path, "text").unwrap(), table().column::<String>("text").unwrap());
        let types: Vec<String> = columns_of(&path).unwrap().into_iter().map(|(_, kind)| kind).collect();
        assert_eq!(types, ["text", "text", "float64", "uint32", "uint32", "uint64", "boolean"]);
        for (column, word) in [("body", "its columns are text, maybe"), ("count", "uint32"), ("maybe", "absent")] {
            let error = format!("{:#}", read_text_column(&path, column).unwrap_err());
            assert!(error.contains(word) && error.contains("texts.parquet"), "{error}");
        }
        let error = format!("{:#}", read_text_column(&folder.path().join("none"), "text").unwrap_err());
        assert!(error.contains("cannot be opened"), "{error}");
    }
}

//! Columns in Parquet files: the only place that knows the Parquet library.
//!
//! Knows named columns of seven types and nothing of what they mean. The results keep their rows here, and data
//! sets are read here, so files of other writers must open; what cannot be read is an error, never a panic.

use std::fs::File;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use polars::prelude as pl;
use polars::prelude::{IntoColumn, NamedFrom, SerReader};

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

value!(String, "text", str, str::to_string);
value!(optional String, "text or nothing", str, str::to_string);
value!(f64, "f64", f64, |value| value);
value!(u32, "u32", u32, |value| value);
value!(optional u32, "u32 or nothing", u32, |value| value);
value!(u64, "u64", u64, |value| value);
value!(bool, "bool", bool, |value| value);

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
            anyhow!("column `{name}` holds {dtype} with {absent} values absent, and {} is needed", T::TYPE)
        })
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

    /// All columns of a Parquet file.
    ///
    /// # Errors
    /// A file that can't be read or is not a whole Parquet file.
    pub fn read(path: &Path) -> Result<Table> {
        let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let table = guarded(|| pl::ParquetReader::new(Cursor::new(bytes)).finish());
        let frame = table.with_context(|| damaged(path))?;
        Ok(Table { columns: frame.into_columns() })
    }
}

/// The names and types of a Parquet file's columns, without reading them.
///
/// # Errors
/// A file that can't be read or is not a Parquet file.
pub fn columns_of(path: &Path) -> Result<Vec<(String, String)>> {
    let mut reader = open(path)?;
    let schema = guarded(|| reader.schema()).with_context(|| damaged(path))?;
    Ok(schema.iter().map(|(name, field)| (name.to_string(), format!("{:?}", field.dtype))).collect())
}

/// One column of text of a Parquet file written by anyone; other columns are not read.
///
/// # Errors
/// A file that can't be read or is not a Parquet file; no column of that name (the error lists those there are); a
/// column that isn't text or misses a text.
pub fn read_text_column(path: &Path, name: &str) -> Result<Vec<String>> {
    let columns = columns_of(path)?;
    if !columns.iter().any(|(column, _)| column == name) {
        let names: Vec<&str> = columns.iter().map(|(column, _)| column.as_str()).collect();
        bail!("{} has no column `{name}`; its columns are {}", path.display(), names.join(", "));
    }
    let reader = open(path)?.with_columns(Some(vec![name.to_string()]));
    let frame = guarded(|| reader.finish()).with_context(|| damaged(path))?;
    Table { columns: frame.into_columns() }.column(name).with_context(|| path.display().to_string())
}

fn open(path: &Path) -> Result<pl::ParquetReader<File>> {
    let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
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

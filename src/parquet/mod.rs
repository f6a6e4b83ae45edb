//! Named columns in Parquet files: the only module that uses the Parquet library.
//!
//! It stores result rows, and `foreign` reads data sets, files of other writers. A file that cannot be read is an error,
//! never a panic. What the columns mean is for the callers to know.

mod foreign;
mod values;

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result, anyhow, bail};
pub use foreign::{read_rows, read_text_column};
use polars::prelude as pl;
use polars::prelude::{IntoColumn, NamedFrom, SerReader};

/// A string that is cheap to clone; short ones need no allocation.
pub type Text = ecow::EcoString;

/// A type a column can have.
pub trait ColumnValue: Sized {
    /// The type as error messages call it.
    const TYPE: &'static str;
    #[doc(hidden)]
    fn store(name: &str, values: Vec<Self>) -> pl::Column;
    #[doc(hidden)]
    fn load(column: &pl::Column) -> Option<Vec<Self>>;
}

/// Implements [`ColumnValue`]. All columns are stored as nullable; reading a required type refuses nulls.
macro_rules! value {
    ($type:ty, $words:literal, $store:ident, $load:expr) => {
        impl ColumnValue for $type {
            const TYPE: &'static str = $words;
            fn store(name: &str, values: Vec<Self>) -> pl::Column {
                $store(name, values)
            }
            fn load(column: &pl::Column) -> Option<Vec<Self>> {
                $load(column)?.into_iter().collect()
            }
        }

        impl ColumnValue for Option<$type> {
            const TYPE: &'static str = concat!("optional ", $words);
            fn store(name: &str, values: Vec<Self>) -> pl::Column {
                $store(name, values)
            }
            fn load(column: &pl::Column) -> Option<Vec<Self>> {
                $load(column)
            }
        }
    };
}

value!(Text, "text", store_texts, load_texts);
value!(String, "text", store, |column: &pl::Column| {
    Some(column.str().ok()?.iter().map(|text| text.map(str::to_string)).collect::<Vec<_>>())
});
value!(f64, "f64", store, |column: &pl::Column| Some(column.f64().ok()?.iter().collect::<Vec<_>>()));
value!(u32, "u32", store, |column: &pl::Column| Some(column.u32().ok()?.iter().collect::<Vec<_>>()));
value!(u64, "u64", store, |column: &pl::Column| Some(column.u64().ok()?.iter().collect::<Vec<_>>()));
value!(bool, "bool", store, |column: &pl::Column| Some(column.bool().ok()?.iter().collect::<Vec<_>>()));

fn store<T>(name: &str, values: Vec<T>) -> pl::Column
where
    pl::Series: NamedFrom<Vec<T>, [T]>,
{
    pl::Series::new(name.into(), values).into_column()
}

fn store_texts<T: Into<Option<Text>>>(name: &str, texts: Vec<T>) -> pl::Column {
    let texts: Vec<Option<Text>> = texts.into_iter().map(Into::into).collect();
    let column: pl::StringChunked = texts.iter().map(Option::as_deref).collect();
    column.with_name(name.into()).into_column()
}

/// Reads texts; neighbours that are equal share their memory.
fn load_texts(column: &pl::Column) -> Option<Vec<Option<Text>>> {
    let mut last = Text::new();
    let mut shared = |text: &str| {
        if last != text {
            last = Text::from(text);
        }
        last.clone()
    };
    Some(column.str().ok()?.iter().map(|text| text.map(&mut shared)).collect())
}

/// Named columns of one length.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<pl::Column>,
}

impl Table {
    /// Adds a column at the end.
    pub fn push<T: ColumnValue>(&mut self, name: &str, values: Vec<T>) {
        self.columns.push(T::store(name, values));
    }

    /// Replaces the column called `name`.
    pub fn replace<T: ColumnValue>(&mut self, name: &str, values: Vec<T>) {
        if let Some(column) = self.columns.iter_mut().find(|column| column.name() == name) {
            *column = T::store(name, values);
        }
    }

    /// Returns the values of a column.
    ///
    /// # Errors
    ///
    /// A missing column, another type, or a null where none is allowed.
    pub fn column<T: ColumnValue>(&self, name: &str) -> Result<Vec<T>> {
        let found = self.columns.iter().find(|column| column.name() == name);
        let column = found.with_context(|| {
            format!("there is no column `{name}`; the columns are {}", self.names().join(", "))
        })?;
        T::load(column).ok_or_else(|| {
            let (dtype, nulls) = (column.dtype(), column.null_count());
            anyhow!("column `{name}` must be {} but holds {dtype} with {nulls} nulls", T::TYPE)
        })
    }

    /// Returns the values of a column, or as many defaults where there is none.
    ///
    /// # Errors
    ///
    /// Another type, or a null where none is allowed.
    pub fn column_or_default<T: ColumnValue + Clone + Default>(&self, name: &str) -> Result<Vec<T>> {
        if self.names().contains(&name) { self.column(name) } else { Ok(vec![T::default(); self.height()]) }
    }

    /// Names of the columns, in order.
    pub fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|column| column.name().as_str()).collect()
    }

    /// Number of rows.
    pub fn height(&self) -> usize {
        self.columns.first().map_or(0, pl::Column::len)
    }

    /// Writes a Parquet file, compressed with zstd, and returns its bytes.
    ///
    /// # Errors
    ///
    /// Columns of different lengths, or two of one name.
    pub fn to_parquet(&self) -> Result<Vec<u8>> {
        let mut frame =
            pl::DataFrame::new(self.height(), self.columns.clone()).context("the columns do not form a table")?;
        let mut bytes = Vec::new();
        pl::ParquetWriter::new(&mut bytes)
            .with_compression(pl::ParquetCompression::Zstd(None))
            .finish(&mut frame)
            .context("cannot be written as Parquet")?;
        Ok(bytes)
    }

    /// Reads all columns of a Parquet file from its bytes.
    ///
    /// # Errors
    ///
    /// Anything but a whole Parquet file.
    pub fn from_parquet(bytes: Vec<u8>) -> Result<Table> {
        let frame = no_panic(|| pl::ParquetReader::new(Cursor::new(bytes)).finish())?;
        Ok(Table { columns: frame.into_columns() })
    }
}

/// Runs a read and makes a panic an error: the library panics on some damaged files and on types it was built without.
fn no_panic<T>(read: impl FnOnce() -> pl::PolarsResult<T>) -> Result<T> {
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

    pub(super) fn table() -> Table {
        let mut table = Table::default();
        table.push("text", vec!["a".to_string(), String::new(), "größe ".repeat(200_000)]);
        table.push("maybe", vec![None, Some("b".to_string()), None]);
        table.push("count", vec![0, 1, u32::MAX]);
        table
    }

    #[test]
    fn missing_columns_and_wrong_types_are_errors() {
        let check = |outcome: Result<()>, word: &str| {
            let error = format!("{:#}", outcome.unwrap_err());
            assert!(error.contains(word), "{error}");
        };
        check(table().column::<String>("txt").map(drop), "the columns are text, maybe, count");
        check(table().column::<f64>("count").map(drop), "holds u32");
        check(table().column::<String>("maybe").map(drop), "2 nulls");
        let mut uneven = table();
        uneven.push("short", vec![true]);
        assert!(uneven.to_parquet().is_err());
        assert!(Table::from_parquet(b"no Parquet file".to_vec()).is_err());
    }
}

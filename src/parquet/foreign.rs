//! Columns of Parquet files by any writer.
//!
//! Each column is read by itself as Arrow has it, so a column of images, or of a type without a form in JSON, does not prevent
//! reading the others. How much a file may grow when it is unpacked is limited, and checked before anything is unpacked.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use polars_arrow::array::Array;
use polars_arrow::datatypes::{ArrowDataType, ArrowSchema, Field};
use polars_parquet::read::{self, BasicDecompressor, FileMetadata, PageReader};
use serde_json::{Map, Value};

use super::no_panic;
use super::values::{self, Budget};
use crate::bounded_read;

/// Largest file that is read, in bytes.
const MOST_BYTES: u64 = 4 << 30;
/// Largest unpacked size of a column, in bytes.
const MOST_UNPACKED: u64 = 4 << 30;
/// Largest number of rows of a file.
const MOST_ROWS: usize = 1 << 22;
/// Largest number of values of a column; lists count what they hold.
const MOST_VALUES: u64 = 1 << 26;

/// Reads one text column; other columns are not read.
///
/// # Errors
///
/// A file that cannot be read or is not Parquet; a missing column (the error lists the columns); a column that is not text or has
/// nulls.
pub fn read_text_column(path: &Path, name: &str) -> Result<Vec<String>> {
    let file = ForeignFile::open(path)?;
    let Some(field) = file.schema.get(name) else {
        let names: Vec<&str> = file.schema.iter_names().map(|name| name.as_str()).collect();
        bail!("{} has no column `{name}`; its columns are {}", path.display(), names.join(", "));
    };
    ensure!(
        plain(&field.dtype) == ArrowDataType::Utf8View,
        "column `{name}` of {} holds {:?}, not text",
        path.display(),
        field.dtype
    );
    let texts = file.column(field, &mut Budget::default())?.into_iter().map(|text| match text {
        Value::String(text) => Ok(text),
        _ => bail!("column `{name}` of {} must be text but has nulls", path.display()),
    });
    texts.collect()
}

/// Reads all rows, with nested values, as JSON objects. Columns that cannot be read are left out if `is_used` does not name them.
///
/// # Errors
///
/// A file that cannot be read or is not Parquet, or a used column that holds neither text nor numbers.
pub fn read_rows(path: &Path, is_used: &dyn Fn(&str) -> bool) -> Result<Vec<Map<String, Value>>> {
    let file = ForeignFile::open(path)?;
    let mut columns: Vec<(usize, &Field)> = file.schema.iter_values().enumerate().collect();
    // Those that are used come first, so that no other takes what may be read.
    columns.sort_by_key(|(_, field)| !is_used(&field.name));
    let mut budget = Budget::default();
    let mut read = BTreeMap::new();
    for (at, field) in columns {
        let mut left = budget;
        match file.column(field, &mut left) {
            Ok(values) => {
                budget = left;
                read.insert(at, (&field.name, values));
            }
            Err(error) if is_used(&field.name) => return Err(error),
            Err(_) => {}
        }
    }
    let mut rows = vec![Map::new(); file.metadata.num_rows];
    for (name, values) in read.into_values() {
        for (row, value) in rows.iter_mut().zip(values) {
            row.insert(name.to_string(), value);
        }
    }
    Ok(rows)
}

/// Opened Parquet file, of which no column is read yet.
struct ForeignFile {
    name: String,
    bytes: Vec<u8>,
    metadata: FileMetadata,
    schema: ArrowSchema,
}

impl ForeignFile {
    fn open(path: &Path) -> Result<ForeignFile> {
        let name = path.display().to_string();
        let bytes = bounded_read::bytes(path, MOST_BYTES).with_context(|| format!("{name} cannot be opened"))?;
        let (metadata, schema) = no_panic(|| {
            let metadata = read::read_metadata(&mut Cursor::new(&bytes))?;
            let schema = read::infer_schema(&metadata)?;
            Ok((metadata, schema))
        })
        .with_context(|| format!("{name} is not a Parquet file this program can read, or it is damaged"))?;
        let rows = metadata.num_rows;
        ensure!(rows <= MOST_ROWS, "{name} has {rows} rows, more than the {MOST_ROWS} that are read of a file");
        Ok(ForeignFile { name, bytes, metadata, schema })
    }

    /// Reads the values of a column, one for each row.
    fn column(&self, field: &Field, budget: &mut Budget) -> Result<Vec<Value>> {
        let (name, rows) = (field.name.as_str(), self.metadata.num_rows);
        let mut read = || -> Result<Vec<Value>> {
            values::check(&field.dtype)?;
            self.check_size(name)?;
            let mut found = Vec::with_capacity(rows);
            for array in no_panic(|| self.arrays(field))? {
                values::of_array(&field.dtype, &*array, budget, &mut found)?;
            }
            ensure!(found.len() == rows, "it has {} values, and the file {rows} rows", found.len());
            Ok(found)
        };
        read().with_context(|| format!("column `{name}` of {}", self.name))
    }

    /// Refuses a column that grows too large when it is unpacked.
    fn check_size(&self, name: &str) -> Result<()> {
        let (mut bytes, mut count) = (0u64, 0u64);
        let columns = self.metadata.row_groups.iter().filter_map(|group| group.columns_under_root_iter(name));
        for column in columns.flatten() {
            bytes = bytes.saturating_add(column.uncompressed_size().unsigned_abs());
            count = count.saturating_add(column.num_values().unsigned_abs());
        }
        ensure!(
            bytes <= MOST_UNPACKED,
            "it unpacks to {bytes} bytes, more than the {MOST_UNPACKED} that are read"
        );
        ensure!(count <= MOST_VALUES, "it has {count} values, more than the {MOST_VALUES} that are read");
        Ok(())
    }

    /// Reads a column as Arrow arrays, one for each group of rows.
    fn arrays(&self, field: &Field) -> polars::prelude::PolarsResult<Vec<Box<dyn Array>>> {
        let field = Field { dtype: plain(&field.dtype), ..field.clone() };
        let mut arrays = Vec::new();
        for group in &self.metadata.row_groups {
            let columns = group.columns_under_root_iter(&field.name).into_iter().flatten();
            let (pages, types): (Vec<_>, Vec<_>) = columns
                .map(|column| {
                    let range = column.byte_range();
                    let bytes = self.bytes[range.start as usize..range.end as usize].to_vec();
                    let pages = PageReader::new(Cursor::new(bytes.into()), column, Vec::new(), usize::MAX);
                    let primitive = &column.descriptor().descriptor.primitive_type;
                    (BasicDecompressor::new(pages, Vec::new()), primitive)
                })
                .unzip();
            arrays.extend(read::column_iter_to_arrays(pages, types, field.clone(), None)?.0);
        }
        Ok(arrays)
    }
}

/// Type as which a column is read: the type of a dictionary's values, and bytes for numbers of half precision.
fn plain(dtype: &ArrowDataType) -> ArrowDataType {
    let field = |field: &Field| Field { dtype: plain(&field.dtype), ..field.clone() };
    match dtype {
        ArrowDataType::Dictionary(_, values, _) => plain(values),
        ArrowDataType::Float16 => ArrowDataType::FixedSizeBinary(2),
        ArrowDataType::LargeList(inner) => ArrowDataType::LargeList(Box::new(field(inner))),
        ArrowDataType::FixedSizeList(inner, width) => ArrowDataType::FixedSizeList(Box::new(field(inner)), *width),
        ArrowDataType::Struct(fields) => ArrowDataType::Struct(fields.iter().map(field).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;

    /// Compares each column with what `datasets` and jinja2 show (`tests/golden/make/parquet_goldens.py`). Other types are refused
    /// only where they are used.
    #[test]
    fn values_of_every_type_look_as_in_python() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parquet");
        let shown = std::fs::read_to_string(golden.join("types.json")).unwrap();
        let shown: Map<String, Value> = serde_json::from_str(&shown).unwrap();
        let file = golden.join("types.parquet");
        let rows = read_rows(&file, &|_| false).unwrap();
        let columns: Vec<&String> = rows[0].keys().collect();
        assert_eq!(columns, shown.keys().collect::<Vec<_>>());
        for (name, expected) in &shown {
            let found: Vec<String> = rows.iter().map(|row| python(&row[name])).collect();
            assert_eq!(&Value::from(found), expected, "{name}");
        }
        for (name, words) in [
            ("bytes", "neither text nor a number"),
            ("image", "neither text nor a number"),
            ("zone", "Europe/Berlin"),
            ("dates", "inside lists or objects"),
            ("nested", "inside lists or objects"),
        ] {
            let error = format!("{:#}", read_rows(&file, &|column| column == name).unwrap_err());
            assert!(error.contains(words) && error.contains(&format!("column `{name}` of")), "{error}");
        }
    }

    /// Text that Python's `str` gives for the types in the golden.
    fn python(value: &Value) -> String {
        match value {
            Value::Null => "None".into(),
            Value::Bool(true) => "True".into(),
            Value::Bool(false) => "False".into(),
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", ")),
            Value::Object(fields) => {
                let quoted = |value: &Value| value.as_str().map_or(python(value), |text| format!("'{text}'"));
                let pairs = fields.iter().map(|(key, value)| format!("'{key}': {}", quoted(value)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
        }
    }

    #[test]
    fn what_grows_too_large_is_refused_before_it_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.parquet");
        let mut table = Table::default();
        table.push("text", vec![None::<String>; MOST_ROWS + 1]);
        let bytes = table.to_parquet().unwrap();
        assert!(bytes.len() < 1 << 20, "{}", bytes.len());
        std::fs::write(&path, bytes).unwrap();
        for error in [read_rows(&path, &|_| true).unwrap_err(), read_text_column(&path, "text").unwrap_err()] {
            assert!(format!("{error:#}").contains("4194305 rows, more than the 4194304"), "{error:#}");
        }
    }

    #[test]
    fn texts_are_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("texts.parquet");
        let mut table = Table::default();
        let texts = vec!["a".to_string(), String::new(), "größe ".repeat(200_000)];
        table.push("text", texts.clone());
        table.push("maybe", vec![None, Some("b".to_string()), None]);
        table.push("count", vec![0, 1, u32::MAX]);
        std::fs::write(&path, table.to_parquet().unwrap()).unwrap();
        assert_eq!(read_text_column(&path, "text").unwrap(), texts);
        for (column, word) in [("body", "its columns are text, maybe"), ("count", "UInt32"), ("maybe", "nulls")] {
            let error = format!("{:#}", read_text_column(&path, column).unwrap_err());
            assert!(error.contains(word) && error.contains("texts.parquet"), "{error}");
        }
        let error = format!("{:#}", read_text_column(&folder.path().join("none"), "text").unwrap_err());
        assert!(error.contains("cannot be opened"), "{error}");
    }
}

//! The rows of a task: from files, folders and archives, or from a data set of the hub, by split.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use serde_json::value::RawValue;

use super::columns;
use super::definition::Definition;
use super::splits::{self, is_rows};
use crate::bounded_read;
use crate::lm::source::{RepoId, expand_home, is_path};
use crate::parquet;
use crate::task::data::{check_length, files_below, is_archive, json_lines, names, text_of};
use crate::task::spec::PrepareContext;

/// Where the rows are.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub path: String,
    pub name: Option<String>,
    /// Files by split.
    pub files: BTreeMap<String, Vec<String>>,
}

impl Dataset {
    /// The data set as rows name it.
    pub fn name_in_rows(&self) -> String {
        let files: Vec<&str> = self.files.values().flatten().map(String::as_str).collect();
        match (&self.name, files.is_empty()) {
            (_, false) => files.join(" "),
            (Some(name), true) => format!("{} {name}", self.path),
            (None, true) => self.path.clone(),
        }
    }
}

/// The most rows of a split: a hundred times those of the largest benchmark here.
const MOST_ROWS: usize = 1 << 22;

/// Rows, as JSON objects.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Every column that a row has.
    pub columns: BTreeSet<String>,
    pub rows: Vec<Value>,
    /// The file and row of each, for errors.
    pub places: Vec<String>,
}

/// Reads the rows of a split. `over` is a file, folder or data set that the sweep names in place of the task's own.
///
/// # Errors
/// A data set that is missing or has no such split, or a row that is not an object; file and row are named.
pub fn read(
    definition: &Definition,
    over: Option<&str>,
    split: &str,
    context: &PrepareContext<'_>,
) -> Result<Rows> {
    let mut rows = Rows::default();
    for path in files(&definition.dataset, over, split, context)? {
        rows.read_file(&path, &definition.columns())?;
    }
    ensure!(!rows.rows.is_empty(), "the split {split} has no rows");
    columns::widen(rows.rows.iter_mut().collect());
    Ok(rows)
}

fn files(
    dataset: &Dataset,
    over: Option<&str>,
    split: &str,
    context: &PrepareContext<'_>,
) -> Result<Vec<PathBuf>> {
    let is_builder = matches!(dataset.path.as_str(), "json" | "csv" | "parquet" | "text");
    match over {
        Some(over) if is_path(over) => local(&expand_home(over)?, dataset, split),
        Some(over) => hub(over, dataset, split, context),
        None if is_builder || !dataset.files.is_empty() => {
            let splits: Vec<&str> = dataset.files.keys().map(String::as_str).collect();
            let missing = || format!("`data_files` names no split {split}, but these: {}", splits.join(", "));
            dataset.files.get(split).with_context(missing)?.iter().map(|file| expand_home(file)).collect()
        }
        None if is_path(&dataset.path) => local(&expand_home(&dataset.path)?, dataset, split),
        None => hub(&dataset.path, dataset, split, context),
    }
}

/// A file is every split; a folder is looked through.
fn local(path: &Path, dataset: &Dataset, split: &str) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    ensure!(path.is_dir(), "{} is neither a file nor a folder", path.display());
    let files = files_below(path).with_context(|| format!("cannot read the folder {}", path.display()))?;
    let name = |file: &PathBuf| Some(file.strip_prefix(path).ok()?.to_string_lossy().replace('\\', "/"));
    let mut names: Vec<String> = files.iter().filter_map(name).collect();
    names.sort();
    let readme = path.join("README.md");
    let readme =
        if readme.is_file() { bounded_read::text(&readme, 1 << 22).unwrap_or_default() } else { String::new() };
    let found = splits::files(&names, &readme, dataset.name.as_deref(), split)
        .with_context(|| path.display().to_string())?;
    Ok(found.iter().map(|name| path.join(name)).collect())
}

fn hub(name: &str, dataset: &Dataset, split: &str, context: &PrepareContext<'_>) -> Result<Vec<PathBuf>> {
    let repo: RepoId =
        name.parse().with_context(|| format!("`{name}` is not a data set: a path begins with ./, ../ or /"))?;
    context.hub.dataset_rows(&repo, |names, readme| {
        splits::files(names, readme, dataset.name.as_deref(), split).with_context(|| name.to_owned())
    })
}

impl Rows {
    /// Adds the rows of a file. `used` are the columns that are needed; of the others, what cannot be read does not matter.
    ///
    /// # Errors
    /// A file that cannot be read, or a row that is not an object; file and row are named.
    pub fn read_file(&mut self, path: &Path, used: &BTreeSet<&str>) -> Result<()> {
        let name = path.display().to_string();
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        if ending == "parquet" {
            let rows = parquet::read_rows(path, &|column| used.contains(column))?;
            return rows.into_iter().try_for_each(|row| self.push(Value::Object(row), &name));
        }
        let inner = || names(path)?.into_iter().find(|name| is_rows(name)).context("it has no file of rows");
        let inner = if is_archive(path) { vec![inner().context(name)?] } else { Vec::new() };
        let (text, name) = text_of(path, &inner)?;
        let ending = name.rsplit('.').next().unwrap_or_default().to_lowercase();
        match ending.as_str() {
            "csv" | "tsv" => self.read_table(&text, if ending == "csv" { b',' } else { b'\t' }, &name),
            "txt" => text.lines().try_for_each(|line| self.push(serde_json::json!({"text": line}), &name)),
            _ => self.read_json(&text, &name),
        }
    }

    /// JSON lines, or an array.
    fn read_json(&mut self, text: &str, name: &str) -> Result<()> {
        if text.trim_start().starts_with('[') {
            let rows: Vec<&RawValue> =
                serde_json::from_str(text).with_context(|| format!("{name} is not valid JSON"))?;
            for (at, row) in rows.into_iter().enumerate() {
                let place = format!("{name}, row {}", at + 1);
                check_length(row.get(), &place)?;
                self.add(serde_json::from_str(row.get()).with_context(|| place.clone())?, place)?;
            }
            return Ok(());
        }
        for line in json_lines(text, name) {
            let (place, row) = line?;
            self.add(row, place)?;
        }
        Ok(())
    }

    /// A table with a header.
    fn read_table(&mut self, text: &str, delimiter: u8, name: &str) -> Result<()> {
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(text.as_bytes());
        let header: Vec<String> =
            reader.headers().with_context(|| name.to_owned())?.iter().map(str::to_owned).collect();
        let records = reader
            .records()
            .take(MOST_ROWS + 1)
            .collect::<Result<Vec<_>, _>>()
            .with_context(|| name.to_owned())?;
        let mut rows = vec![serde_json::Map::new(); records.len()];
        for (at, column) in header.iter().enumerate() {
            let cells: Vec<&str> = records.iter().map(|record| record.get(at).unwrap_or_default()).collect();
            for (row, value) in rows.iter_mut().zip(columns::of_table(&cells)) {
                row.insert(column.clone(), value);
            }
        }
        rows.into_iter().try_for_each(|row| self.push(Value::Object(row), name))
    }

    fn push(&mut self, row: Value, file: &str) -> Result<()> {
        self.add(row, format!("{file}, row {}", self.rows.len() + 1))
    }

    /// Adds a row; `place` is its file and row, for errors.
    ///
    /// # Errors
    /// A row that is not an object, or one too many.
    pub fn add(&mut self, row: Value, place: String) -> Result<()> {
        ensure!(self.rows.len() < MOST_ROWS, "{place}: more than {MOST_ROWS} rows are not read; split the file");
        let Value::Object(fields) = &row else {
            bail!("{place}: a row is an object with a value for each column")
        };
        self.columns.extend(fields.keys().cloned());
        self.rows.push(row);
        self.places.push(place);
        Ok(())
    }
}

//! Finds LongBench's files: in a folder, in the archive of the hub, or named themselves.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::{SUBSETS, Version};
use crate::bounded_read;
use crate::lm::source::{Hub, expand_home};
use crate::task::data::{DataSource, utf8};
use crate::task::questions::{names, unpack};
use crate::task::spec::PrepareContext;

/// The most bytes of a file. LongBench v2's, the largest, has hundreds of millions.
const MOST_BYTES: u64 = 1 << 30;

/// The archive of LongBench and LongBench-E on the hub.
pub const ARCHIVE: &str = "data.zip";

/// The file of LongBench v2.
pub const V2_FILE: &str = "data.json";

/// Where the rows of a subset are.
#[derive(Debug)]
pub enum Place {
    File(PathBuf),
    /// A file of an archive, by its possible names.
    Packed(PathBuf, [String; 2]),
}

impl Place {
    /// The text, and the file's name for errors.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(&self) -> Result<(String, String)> {
        match self {
            Place::File(path) => Ok((read(path)?, path.display().to_string())),
            Place::Packed(archive, names) => {
                let (member, bytes) = unpack(archive, names, MOST_BYTES)?;
                let file = format!("{}:{member}", archive.display());
                Ok((utf8(bytes, &file)?, file))
            }
        }
    }
}

/// The folder or file of a data set; `wanted` is the file of it that is downloaded if it is on the hub.
///
/// # Errors
/// A data set that is none of LongBench's, or cannot be downloaded.
pub fn path(dataset: &DataSource, wanted: &str, context: &PrepareContext<'_>) -> Result<PathBuf> {
    match dataset {
        DataSource::Path(path) => expand_home(path),
        DataSource::Hub(repo) => {
            let hub = Hub { settings: context.hub, progress: context.progress };
            let mut found = hub.dataset_files(repo, |name| name == wanted)?;
            let Some(file) = found.pop() else {
                bail!("{repo} has no {wanted}, as LongBench's repository has it")
            };
            Ok(file)
        }
        other => bail!("{other} holds nothing of LongBench"),
    }
}

/// The subsets' files. `wanted` are the subsets asked for; if it is empty, all that are found.
///
/// # Errors
/// A subset without a file, a path with none of them, or an archive that cannot be read.
pub fn subsets(path: &Path, version: Version, wanted: &[&str]) -> Result<Vec<(&'static str, Place)>> {
    let archive = path.join(ARCHIVE);
    let is_zip = |path: &Path| path.extension().is_some_and(|extension| extension == "zip") && path.is_file();
    if path.is_file() && !is_zip(path) {
        return Ok(vec![(of_file(path, version, wanted)?, Place::File(path.to_path_buf()))]);
    }
    let packed = if is_zip(path) { Some(path) } else { Some(&*archive).filter(|archive| archive.is_file()) };
    let listed = packed.map(names).transpose()?.unwrap_or_default();
    let mut found = Vec::new();
    for (subset, _) in SUBSETS.iter().filter(|(_, in_e)| version != Version::E || *in_e) {
        if !wanted.is_empty() && !wanted.contains(subset) {
            continue;
        }
        let file = file_name(subset, version);
        let places = [file.clone(), format!("data/{file}")];
        if let Some(file) = places.iter().map(|place| path.join(place)).find(|file| file.is_file()) {
            found.push((*subset, Place::File(file)));
        } else if let Some(archive) = packed.filter(|_| places.iter().any(|place| listed.contains(place))) {
            found.push((*subset, Place::Packed(archive.to_path_buf(), places)));
        } else if !wanted.is_empty() {
            bail!(
                "{} has no {file} for the subset {subset}; get it, or remove the subset from `subsets`",
                path.display()
            );
        }
    }
    ensure!(
        !found.is_empty(),
        "{} has none of LongBench's files, such as {}, and no {ARCHIVE} of them",
        path.display(),
        file_name(EXAMPLE, version)
    );
    Ok(found)
}

/// The text of LongBench v2 and the file's name for errors. `path` is the file, or a folder with it.
///
/// # Errors
/// A file that is missing or cannot be read.
pub fn v2(path: &Path) -> Result<(String, String)> {
    let file = if path.is_dir() { path.join(V2_FILE) } else { PathBuf::from(path) };
    Ok((read(&file)?, file.display().to_string()))
}

/// The subset of a file that is named itself.
fn of_file(path: &Path, version: Version, wanted: &[&str]) -> Result<&'static str> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let known = SUBSETS.iter().filter(|(_, in_e)| version != Version::E || *in_e).map(|(subset, _)| *subset);
    let subset = known.into_iter().find(|subset| name == file_name(subset, version)).ok_or_else(|| {
        anyhow!(
            "{} is not named after a subset, as {} is; rename it, or name its folder",
            path.display(),
            file_name(EXAMPLE, version)
        )
    })?;
    ensure!(
        wanted.iter().all(|other| *other == subset),
        "{} is the file of {subset} alone, and `subsets` asks for others; name its folder",
        path.display()
    );
    Ok(subset)
}

/// A subset that all versions have, for errors.
const EXAMPLE: &str = "qasper";

fn file_name(subset: &str, version: Version) -> String {
    format!("{subset}{}.jsonl", if version == Version::E { "_e" } else { "" })
}

fn read(file: &Path) -> Result<String> {
    let bytes =
        bounded_read::bytes(file, MOST_BYTES).with_context(|| format!("cannot read {}", file.display()))?;
    utf8(bytes, file.display())
}

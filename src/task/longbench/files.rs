//! Finds LongBench's files: in a folder, in the archive of the hub, or named themselves.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::Version;
use super::subsets::{SUBSETS, Subset};
use crate::bounded_read;
use crate::task::data::utf8;
use crate::task::questions::{names, unpack};

/// The most bytes of a file. LongBench v2's, the largest, has hundreds of millions.
const MOST_BYTES: u64 = 1 << 30;

/// The archive of LongBench and LongBench-E on the hub.
pub const ARCHIVE: &str = "data.zip";

/// The file of LongBench v2.
pub const V2_FILE: &str = "data.json";

/// The texts of the subsets' files, each with the file's name for errors. `wanted` are the subsets asked for; if it is empty,
/// all that are found.
///
/// # Errors
/// A subset without a file, a path with none of them, or a file that cannot be read.
pub fn subsets(
    path: &Path,
    version: Version,
    wanted: &[&'static Subset],
) -> Result<Vec<(&'static Subset, String, String)>> {
    let archive = path.join(ARCHIVE);
    let is_zip = |path: &Path| path.extension().is_some_and(|extension| extension == "zip") && path.is_file();
    if path.is_file() && !is_zip(path) {
        let subset = of_file(path, version, wanted)?;
        return Ok(vec![(subset, read(path)?, path.display().to_string())]);
    }
    let packed = if is_zip(path) { Some(path) } else { Some(&*archive).filter(|archive| archive.is_file()) };
    let listed = packed.map(names).transpose()?.unwrap_or_default();
    let mut found = Vec::new();
    for subset in SUBSETS.iter().filter(|subset| version != Version::E || subset.in_e) {
        if !wanted.is_empty() && !wanted.iter().any(|other| other.name == subset.name) {
            continue;
        }
        let file = file_name(subset, version);
        let places = [file.clone(), format!("data/{file}")];
        if let Some(file) = places.iter().map(|place| path.join(place)).find(|file| file.is_file()) {
            found.push((subset, read(&file)?, file.display().to_string()));
        } else if let Some(archive) = packed.filter(|_| places.iter().any(|place| listed.contains(place))) {
            let (member, bytes) = unpack(archive, &places, MOST_BYTES)?;
            let file = format!("{}:{member}", archive.display());
            found.push((subset, utf8(bytes, &file)?, file));
        } else if !wanted.is_empty() {
            bail!(
                "{} has no {file} for the subset {}; get it, or remove the subset from `subsets`",
                path.display(),
                subset.name
            );
        }
    }
    ensure!(
        !found.is_empty(),
        "{} has none of LongBench's files, such as {}, and no {ARCHIVE} of them",
        path.display(),
        file_name(&SUBSETS[1], version)
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
fn of_file(path: &Path, version: Version, wanted: &[&'static Subset]) -> Result<&'static Subset> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let subset = SUBSETS.iter().find(|subset| name == file_name(subset, version));
    let subset = subset.filter(|subset| version != Version::E || subset.in_e).ok_or_else(|| {
        anyhow!(
            "{} is not named after a subset, as {} is; rename it, or name its folder",
            path.display(),
            file_name(&SUBSETS[1], version)
        )
    })?;
    ensure!(
        wanted.iter().all(|other| other.name == subset.name),
        "{} is the file of {} alone, and `subsets` asks for others; name its folder",
        path.display(),
        subset.name
    );
    Ok(subset)
}

fn file_name(subset: &Subset, version: Version) -> String {
    format!("{}{}.jsonl", subset.name, if version == Version::E { "_e" } else { "" })
}

fn read(file: &Path) -> Result<String> {
    let bytes =
        bounded_read::bytes(file, MOST_BYTES).with_context(|| format!("cannot read {}", file.display()))?;
    utf8(bytes, file.display())
}

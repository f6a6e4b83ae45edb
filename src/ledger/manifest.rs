//! What a results folder is about: the cells of the sweep that was run last, in its order and under its names.
//!
//! Cells that the sweep no longer has stay in the folder, and are found again if it has them again.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use super::disk::{read_unless_removed, write_whole};
use super::layout::Ledger;
use super::row::Text;

/// The file `sweep.json` of a results folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The sweep's name.
    pub sweep: Text,
    pub seed: u64,
    /// In the order of the sweep: by model, task, policy and size.
    pub cells: Vec<ManifestCell>,
    /// The comparisons that the sweep plans; policies are called as reports call them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contrasts: Vec<Contrast>,
}

/// A comparison that is planned before anything is measured: one policy minus another, written `tova - window+4`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Contrast {
    pub policy: Text,
    pub against: Text,
}

impl Contrast {
    /// The two names as some `policies` have them; `None` where one is missing. A model without windows has none to leave alone, so
    /// its policies lack `@exempt`.
    pub fn among<'p>(&self, policies: &[&'p str]) -> Option<[&'p str; 2]> {
        let find = |name: &str| {
            let plain = name.strip_suffix("@exempt").unwrap_or(name);
            [name, plain].iter().find_map(|name| policies.iter().copied().find(|policy| policy == name))
        };
        Some([find(&self.policy)?, find(&self.against)?])
    }
}

impl fmt::Display for Contrast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.policy, self.against)
    }
}

impl FromStr for Contrast {
    type Err = String;

    /// Reads two different names with ` - ` between them; that there are such policies is not checked.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            [policy, "-" | "\u{2212}", against] if policy != against => {
                Ok(Self { policy: policy.into(), against: against.into() })
            }
            _ => Err(format!(
                "`{text}` is not a contrast: write two different policies, such as \"tova - window+4\""
            )),
        }
    }
}

/// A cell as the sweep calls it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestCell {
    /// Digest of what the sweep says of the cell, from which its id follows once model and texts are read.
    pub spec: Text,
    /// The id; `None` until model and texts were read.
    pub cell: Option<Text>,
    pub model: Text,
    pub dataset: Text,
    pub policy: Text,
    /// Samples of the cell; 0 until texts were read.
    pub samples: usize,
    /// Whether the machine is part of the id, so that a sweep has such a cell once for each machine it ran on.
    pub timed: bool,
}

const FILE: &str = "sweep.json";
const MOST_BYTES: u64 = 256 << 20;

impl Manifest {
    /// Takes ids that only `other` knows, complete cells that it timed on another machine, and with `all` the cells and contrasts that
    /// only `other` has.
    fn complete_with(&mut self, other: &Manifest, all: bool, is_complete: impl Fn(&str) -> bool) {
        let name = |cell: &ManifestCell| (cell.spec.clone(), cell.policy.clone());
        let places: HashMap<_, usize> = self.cells.iter().enumerate().map(|(at, cell)| (name(cell), at)).collect();
        let known: HashSet<_> = self.cells.iter().map(|cell| (cell.cell.clone(), cell.policy.clone())).collect();
        if all {
            let others = other.contrasts.iter().filter(|contrast| !self.contrasts.contains(contrast));
            self.contrasts.extend(others.cloned().collect::<Vec<_>>());
        }
        for theirs in &other.cells {
            let is_new = !known.contains(&(theirs.cell.clone(), theirs.policy.clone()));
            let is_measured = theirs.cell.as_deref().is_some_and(&is_complete);
            match places.get(&name(theirs)) {
                Some(&at) if self.cells[at].cell.is_none() => self.cells[at] = theirs.clone(),
                Some(_) if is_new && is_measured && (all || theirs.timed) => self.cells.push(theirs.clone()),
                Some(_) => {}
                None if all => self.cells.push(theirs.clone()),
                None => {}
            }
        }
    }
}

impl Ledger {
    fn manifest_path(&self) -> PathBuf {
        self.folder().join(FILE)
    }

    /// The sweep that was run last; `None` in folders of earlier versions.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn manifest(&self) -> Result<Option<Manifest>> {
        let path = self.manifest_path();
        let Some(bytes) = read_unless_removed(&path, MOST_BYTES)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            let hint = "hint: remove the file and run the sweep again; nothing is measured twice";
            anyhow!("{} is damaged: {error}\n{hint}", path.display())
        })
    }

    /// Makes this the sweep of the folder. Cells whose model or texts were not read this time keep the ids they had. Returns
    /// the former sweep's name and its complete cells that this sweep has not, if there are any.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn set_manifest(&self, mut manifest: Manifest) -> Result<Option<(Text, usize)>> {
        let Some(former) = self.manifest()? else {
            self.write_manifest(&manifest)?;
            return Ok(None);
        };
        let complete = self.complete()?;
        manifest.complete_with(&former, false, |id| complete.contains_key(id));
        if former == manifest {
            return Ok(None);
        }
        self.write_manifest(&manifest)?;
        // The run may be killed: from here on the file of rows must not hold those of the former sweep.
        self.write_current()?;
        let own: HashSet<_> = manifest.cells.iter().filter_map(|cell| cell.cell.as_ref()).collect();
        let theirs: HashSet<_> = former.cells.iter().filter_map(|cell| cell.cell.as_ref()).collect();
        let left = theirs.difference(&own).filter(|id| complete.contains_key(id.as_str())).count();
        Ok((left > 0).then_some((former.sweep, left)))
    }

    /// Adds the cells of another folder's sweep. Their rows come with the next [`Ledger::write_current`].
    pub(super) fn merge_manifest(&self, other: &Ledger) -> Result<()> {
        let (own, theirs) = (self.manifest()?, other.manifest()?);
        let Some(mut manifest) = own.or(theirs.clone()) else { return Ok(()) };
        if let Some(theirs) = theirs {
            let complete = self.complete()?;
            manifest.complete_with(&theirs, true, |id| complete.contains_key(id));
        }
        self.write_manifest(&manifest)
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        let text = serde_json::to_vec_pretty(manifest).context("the sweep cannot be written as JSON")?;
        write_whole(&self.manifest_path(), &text)
    }
}

//! The options of `longbench`: which of its files are measured.

use std::sync::Arc;

use super::{NOT_IN_E, SUBSETS, Subset, V2};
use crate::task::benchmark::{Chosen, Definition, Keys, builtin_definition};
use crate::task::canonical::limit_text;
use crate::task::data::check_source;
use crate::yaml::{self, ConfigError, Spanned};

/// Which of the three benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// LongBench: 16 English and code subsets, each with a measure of its own.
    V1,
    /// LongBench-E: 13 of them, with rows of all lengths.
    E,
    /// LongBench v2: questions with four choices.
    V2,
}

impl Version {
    /// The name in YAML and cell ids.
    pub fn name(self) -> &'static str {
        ["v1", "e", "v2"][self as usize]
    }

    /// Its subsets, in LongBench's order.
    pub fn subsets(self) -> impl Iterator<Item = &'static str> {
        let has = move |name: &&str| self == Version::V1 || self == Version::E && !NOT_IN_E.contains(name);
        SUBSETS.split(' ').filter(has)
    }
}

/// The options of `rows: longbench_subsets`.
pub const OPTIONS: &[&str] = &["version", "subsets"];

/// Settles which files of LongBench are measured together.
///
/// # Errors
/// A subset that is unknown or cannot be measured, or a data set without files.
pub fn choose(keys: &Keys, chosen: &mut Chosen) -> Result<(), ConfigError> {
    keys.dataset.as_ref().map(|dataset| check_source(dataset, &[])).transpose()?;
    let versions = [Version::V1, Version::E, Version::V2];
    let name = yaml::word("version", &keys.version, &versions.map(Version::name))?;
    let version = versions.into_iter().find(|version| Some(version.name()) == name).unwrap_or(Version::V1);
    let subsets = self::chosen(keys.subsets.as_deref().unwrap_or_default(), version)?;
    if version == Version::V2 {
        chosen.definitions =
            vec![Definition { reader: Some(Arc::new(V2)), ..builtin_definition("longbench_v2")? }];
        chosen.dataset = chosen.over.clone().unwrap_or_else(|| chosen.definitions[0].dataset.name_in_rows());
    }
    chosen.definitions.retain_mut(|definition| {
        let Some(name) = definition.dataset.name.clone() else { return true };
        if version == Version::E {
            definition.dataset.name = Some(format!("{name}_e"));
        }
        definition.reader = Some(Arc::new(Subset { is_optional: subsets.is_empty() }));
        definition.cache.is_plain = !definition.cache.chat_template;
        let is_known = version.subsets().any(|subset| subset == name);
        is_known && (subsets.is_empty() || subsets.contains(&name.as_str()))
    });
    chosen.settings.push(("version", version.name().to_owned()));
    let subsets = if subsets.is_empty() { "all".to_owned() } else { subsets.join(",") };
    chosen.selection.extend([("subsets", subsets), ("samples", limit_text(chosen.samples))]);
    Ok(())
}

/// The subsets of the sweep, in LongBench's order.
fn chosen(names: &[Spanned<String>], version: Version) -> Result<Vec<&'static str>, ConfigError> {
    if let Some(name) = names.first().filter(|_| version == Version::V2) {
        return yaml::refuse(name.referenced, "LongBench v2 has no subsets", "remove `subsets`");
    }
    let known: Vec<&str> = version.subsets().collect();
    let chosen = yaml::words("subsets", names, &known)?;
    Ok(known.into_iter().filter(|name| chosen.contains(name)).collect())
}

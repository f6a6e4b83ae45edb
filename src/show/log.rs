//! A sample's eviction log, as the task `retention` writes it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Side, Unit, View};
use crate::eviction::Eviction;
use crate::ledger::Row;
use crate::parquet::Table;
use crate::task::Lifetimes;

impl View {
    /// Of the sample that a row is about; its log's files begin with `base`. A log has neither likelihoods nor attention.
    ///
    /// # Errors
    /// Files that cannot be read, or that do not fit together.
    pub fn of_log(row: &Row, base: &Path) -> Result<View> {
        let table = |ending: &str| {
            let path = base.with_added_extension(ending);
            let bytes = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            Table::from_parquet(bytes).with_context(|| path.display().to_string())
        };
        let (log, tokens) = (table("parquet")?, table("tokens.parquet")?);
        let groups: Vec<usize> =
            table("groups.parquet")?.column::<u32>("groups")?.into_iter().map(|groups| groups as usize).collect();
        let texts = tokens.column::<String>("text")?;
        let mut evictions = vec![Vec::new(); groups.len()];
        let (layers, steps) = (log.column::<u32>("layer")?, log.column::<u32>("step")?);
        let (of_groups, victims) = (log.column::<u32>("group")?, log.column::<u32>("victim")?);
        for (((layer, group), step), victim) in layers.iter().zip(of_groups).zip(steps).zip(victims) {
            let known = groups.get(*layer as usize).is_some_and(|groups| (group as usize) < *groups);
            ensure!(known && (victim as usize) < texts.len(), "{}: the log is of another text", base.display());
            evictions[*layer as usize].push(Eviction { step, group, victim });
        }
        let mut lifetimes = Lifetimes::new(&groups, texts.len());
        lifetimes.add(&evictions);
        let size = row.cache_size.map_or(String::new(), |size| format!(" with {size} entries"));
        let side = Side { name: format!("{}{size}", row.policy), lifetimes, nll: Vec::new() };
        Ok(View {
            title: row.sample.to_string(),
            model: row.model.to_string(),
            tokens: texts.len(),
            units: texts.into_iter().map(|text| Unit { text, tokens: 1 }).collect(),
            written: 0,
            full: Vec::new(),
            sides: vec![side],
            attention: None,
        })
    }
}

//! A sample's eviction log, as the tasks `retention` and `perplexity` write it.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Side, Unit, View};
use crate::bounded_read;
use crate::eviction::Eviction;
use crate::ledger::Row;
use crate::parquet::Table;
use crate::report::Size;
use crate::task::Lifetimes;

/// The most bytes of a file: far more than a log of the longest text that is shown.
const MOST_BYTES: u64 = 4 << 30;

impl View {
    /// Shows the sample that `row` is about; its log's files begin with `base`. Of `perplexity` it has the likelihoods, and
    /// those under the full cache where the files that begin with `full` have them. A log has no attention.
    ///
    /// # Errors
    /// Files that cannot be read, or that do not fit together.
    pub fn of_log(row: &Row, base: &Path, full: Option<&Path>) -> Result<View> {
        let table = |ending: &str| table(base, ending);
        let (log, tokens) = (table("parquet")?, table("tokens.parquet")?);
        let nll = likelihoods(&tokens)?;
        let full = match full.filter(|_| !nll.is_empty()) {
            Some(full) => {
                let of_full = self::table(full, "tokens.parquet")?;
                let same = of_full.column::<u32>("token")? == tokens.column::<u32>("token")?;
                ensure!(same, "{} is of another text than {}", full.display(), base.display());
                likelihoods(&of_full)?
            }
            None => Vec::new(),
        };
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
        let size = Size::of(row).map_or(String::new(), |size| format!(" with {}", size.words()));
        let side = Side { name: format!("{}{size}", row.variant()), lifetimes, nll };
        Ok(View {
            title: row.sample.to_string(),
            model: row.model.to_string(),
            tokens: texts.len(),
            units: texts.into_iter().map(|text| Unit { text, tokens: 1 }).collect(),
            written: 0,
            full,
            sides: vec![side],
            attention: None,
        })
    }
}

fn table(base: &Path, ending: &str) -> Result<Table> {
    let path = base.with_added_extension(ending);
    let bytes =
        bounded_read::bytes(&path, MOST_BYTES).with_context(|| format!("{} cannot be read", path.display()))?;
    Table::from_parquet(bytes).with_context(|| path.display().to_string())
}

/// The likelihoods of every token after the first; none where the table has none.
fn likelihoods(tokens: &Table) -> Result<Vec<Option<f32>>> {
    if !tokens.names().contains(&"nll") {
        return Ok(Vec::new());
    }
    let nlls = tokens.column::<Option<f64>>("nll")?;
    Ok(nlls.into_iter().skip(1).map(|nll| nll.map(|nll| nll as f32)).collect())
}

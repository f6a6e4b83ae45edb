//! The rows of a question benchmark, from wherever they are published: the code that `rows: squality` and `rows: qasper` name.

use anyhow::{Context, Result};
use indexmap::IndexMap;

use super::files::read_rows;
use super::release::{self, Release, Split};
use crate::task::benchmark::{Asked, Reader, Rows};
use crate::task::data::{self, DataSource};
use crate::task::spec::PrepareContext;

/// Documents of `embedded` unless the sweep sets another number.
const EMBEDDED_DOCUMENTS: usize = 8;
/// Questions about each of them unless the sweep sets another number.
const EMBEDDED_QUESTIONS: usize = 8;

/// Questions about documents.
#[derive(Debug)]
pub struct Questions {
    pub release: &'static Release,
    /// Only the first.
    pub documents: Option<usize>,
    /// Only the first of each document.
    pub questions: Option<usize>,
}

impl Reader for Questions {
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows> {
        let dataset: DataSource = asked.dataset.parse()?;
        let split = Split::ALL.into_iter().find(|split| split.name() == asked.split);
        let split =
            split.with_context(|| format!("the split {} is none of train, validation and test", asked.split))?;
        let rows = self.read(&dataset, split, asked.context)?;
        let (rows, there) = limit(rows, self.documents, self.questions)?;
        data::note_fewer(asked.context.hub.progress, &dataset, "documents", self.documents.unwrap_or(0), there);
        Ok(rows)
    }
}

impl Questions {
    fn read(&self, dataset: &DataSource, split: Split, context: &PrepareContext<'_>) -> Result<Rows> {
        let release = self.release;
        if *dataset == DataSource::Embedded {
            let documents = self.documents.unwrap_or(EMBEDDED_DOCUMENTS);
            let each = self.questions.unwrap_or(EMBEDDED_QUESTIONS);
            return release::rows((release.embedded)(documents, each), "embedded");
        }
        // On the hub it is ZeroSCROLLS that has it.
        let path = data::path_of(dataset, &format!("{}.zip", release.name), context.hub)?;
        read_rows(release, &path, split)
    }
}

/// The rows of the first documents, of each the first `each`, and how many documents there are.
fn limit(rows: Rows, documents: Option<usize>, each: Option<usize>) -> Result<(Rows, usize)> {
    let [documents, each] = [documents, each].map(|limit| limit.unwrap_or(usize::MAX));
    let mut counts: IndexMap<String, usize> = IndexMap::new();
    let mut kept = Rows::default();
    for (row, place) in rows.rows.into_iter().zip(rows.places) {
        let entry = counts.entry(row["cluster"].as_str().unwrap_or_default().to_owned());
        let number = entry.index();
        let count = entry.or_insert(0);
        *count += 1;
        if number < documents && *count <= each {
            kept.add(row, place)?;
        }
    }
    Ok((kept, counts.len()))
}

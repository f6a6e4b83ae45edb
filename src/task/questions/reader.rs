//! The rows of a question benchmark, from wherever they are published: the code that `rows: squality` and `rows: qasper` name.

use std::collections::HashMap;

use anyhow::{Context, Result};

use super::files::read_rows;
use super::release::{self, Release, Split};
use super::splits;
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
    /// As the sweep says, if it does.
    pub split: Option<Split>,
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
        let (rows, counts) = limit(rows, self.documents, self.questions)?;
        let asked_for = self.documents.unwrap_or(0);
        let progress = asked.context.progress;
        data::note_fewer(progress, &dataset, "documents", asked_for, counts.len());
        let asked_for = self.questions.unwrap_or(0);
        let fewer = counts.iter().filter(|count| **count < asked_for).count();
        if fewer > 0 {
            let all = counts.len();
            progress.note(&format!(
                "{dataset}: {fewer} of {all} documents have fewer than the {asked_for} questions asked for"
            ));
        }
        Ok(rows)
    }
}

impl Questions {
    /// All questions of a release.
    pub fn of(release: &'static Release) -> Questions {
        Questions { release, split: None, documents: None, questions: None }
    }

    fn read(&self, dataset: &DataSource, split: Split, context: &PrepareContext<'_>) -> Result<Rows> {
        let release = self.release;
        if *dataset == DataSource::Embedded {
            let documents = self.documents.unwrap_or(EMBEDDED_DOCUMENTS);
            let each = self.questions.unwrap_or(EMBEDDED_QUESTIONS);
            return release::rows((release.embedded)(documents, each), "embedded");
        }
        // On the hub it is ZeroSCROLLS that has it.
        let path = data::path_of(dataset, &format!("{}.zip", release.name), context)?;
        if self.split.is_some() && path.is_file() {
            splits::check(release, &path, split)?;
        }
        read_rows(release, &path, split)
    }
}

/// The rows of the first documents, of each the first `each`, and how many rows each document has left.
fn limit(rows: Rows, documents: Option<usize>, each: Option<usize>) -> Result<(Rows, Vec<usize>)> {
    let [documents, each] = [documents, each].map(|limit| limit.unwrap_or(usize::MAX));
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut counts: Vec<usize> = Vec::new();
    let mut kept = Rows::default();
    for (row, place) in rows.rows.into_iter().zip(rows.places) {
        let cluster = row["cluster"].as_str().unwrap_or_default().to_owned();
        let next = numbers.len();
        let number = *numbers.entry(cluster).or_insert(next);
        if number >= documents {
            continue;
        }
        if number == counts.len() {
            counts.push(0);
        }
        if counts[number] < each {
            counts[number] += 1;
            kept.add(row, place)?;
        }
    }
    Ok((kept, counts))
}

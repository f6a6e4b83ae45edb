//! Problems with a known answer, reasoned about in writing: MATH-500, AIME, or arithmetic made in the program.

mod arithmetic;
mod problems;

use std::sync::Arc;

use anyhow::Result;

use super::benchmark::{Asked, Chosen, Keys, Reader, Rows};
use super::data::{DataSource, EMBEDDED, check_source, json_files};
use super::embedded::MOST_EMBEDDED_BOOKS;
use crate::yaml::ConfigError;

/// Problems of `embedded` unless the sweep asks for another number.
const EMBEDDED_PROBLEMS: usize = 16;

/// Checks the data set; each answer to a problem is named, also where there is one.
///
/// # Errors
/// A data set without problems.
pub fn choose(keys: &Keys, chosen: &mut Chosen) -> Result<(), ConfigError> {
    keys.dataset.as_ref().map(|dataset| check_source(dataset, &[EMBEDDED])).transpose()?;
    if chosen.dataset == EMBEDDED {
        chosen.samples = chosen.samples.or(Some(EMBEDDED_PROBLEMS));
    }
    let definition = &mut chosen.definitions[0];
    definition.repeats = definition.repeats.or(Some(1));
    definition.reader = Some(Arc::new(Problems));
    Ok(())
}

/// Problems with a known answer: published ones, or arithmetic made in the program.
#[derive(Debug)]
pub struct Problems;

impl Reader for Problems {
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows> {
        match asked.dataset.parse()? {
            DataSource::Embedded => arithmetic::problems(MOST_EMBEDDED_BOOKS),
            source => problems::read(&json_files(&source, asked.context.hub)?),
        }
    }
}

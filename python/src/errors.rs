//! Errors as exceptions, with the sentences that the command prints.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tova_bench::format::printable;
use tova_bench::text::InvalidSettings;
use tova_bench::yaml::ConfigError;

pyo3::create_exception!(
    tova_bench,
    Error,
    PyRuntimeError,
    "What the command `tova-bench` would print as an error."
);

/// A `ValueError` where other settings mend it.
pub fn exception(error: &anyhow::Error) -> PyErr {
    let message = printable(&format!("{error:#}")).into_owned();
    let is_setting = error.chain().any(|cause| cause.is::<InvalidSettings>() || cause.is::<ConfigError>());
    if is_setting { PyValueError::new_err(message) } else { Error::new_err(message) }
}

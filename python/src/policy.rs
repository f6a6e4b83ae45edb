//! Policies: a definition as in a sweep, or one whose score a function computes.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tova_bench::eviction::{self, CustomScore, Score, Step};
use tova_bench::sweep::parse_definitions;

use crate::bytes;
use crate::errors::exception;
use crate::work::raise;

#[pyclass(frozen)]
pub struct Policy(pub eviction::Policy);

#[pymethods]
impl Policy {
    /// `definition` is a sweep's `define:` of one policy, as JSON. Its score is replaced with that of `function`, if there is one,
    /// which is called with a layer, a group, and the bytes of positions (u32) and attention (f32), and returns the bytes of
    /// scores (f64). `identity` says what it computes.
    #[new]
    #[pyo3(signature = (definition, function=None, identity=None))]
    fn new(definition: &str, function: Option<Py<PyAny>>, identity: Option<String>) -> PyResult<Policy> {
        let defined = parse_definitions(definition, "policy").map_err(|error| exception(&error.into()))?;
        let Some((_, mut policy)) = defined.into_iter().next() else {
            return Err(exception(&anyhow::anyhow!("no policy is defined")));
        };
        if let Some(function) = function {
            let id = format!("python({})", identity.unwrap_or_default());
            policy.score = Score::Custom(CustomScore::new(id, Box::new(move |step| scores(&function, step))));
        }
        Ok(Policy(policy))
    }
}

/// What the function returns; `None` after an exception, which ends the work.
fn scores(function: &Py<PyAny>, step: &Step<'_>) -> Option<Vec<f64>> {
    Python::attach(|py| {
        let positions = PyBytes::new(py, &bytes(step.positions, u32::to_ne_bytes));
        let attention = PyBytes::new(py, &bytes(step.attention, f32::to_ne_bytes));
        let scores = function.call1(py, (step.layer, step.group, positions, attention));
        let scores = scores.and_then(|scores| scores.extract::<Vec<u8>>(py));
        match scores {
            Ok(scores) => Some(
                scores
                    .chunks_exact(8)
                    .map(|bytes| f64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
                    .collect(),
            ),
            Err(error) => {
                raise(error);
                None
            }
        }
    })
}

//! Policies: a definition as in a sweep, or one whose score a function computes.

use std::sync::PoisonError;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use scoped_tls_hkt::scoped_thread_local;
use tova_bench::eviction::{CustomScore, DefinedPolicy, Remembered, Score, Step};
use tova_bench::sweep::parse_definitions;

use crate::bytes;
use crate::errors::exception;
use crate::work::raise;

scoped_thread_local! {
    /// What the function that this thread calls now is asked about.
    static STEP: for<'a> &'a Step<'a>
}

#[pyclass(frozen)]
pub struct Policy(pub DefinedPolicy);

#[pymethods]
impl Policy {
    /// `definition` is a sweep's `define:` of one policy, as JSON. Its score is replaced with that of `function`, if there is one,
    /// which is called with a layer, a group, the number of tokens read, and the bytes of positions (u32) and attention (f32), and
    /// returns the bytes of scores (f64). `identity` says what it computes.
    #[new]
    #[pyo3(signature = (definition, function=None, identity=None))]
    fn new(definition: &str, function: Option<Py<PyAny>>, identity: Option<String>) -> PyResult<Policy> {
        let defined = parse_definitions(definition, "policy").map_err(|error| exception(&error.into()))?;
        let Some(mut own) = defined.into_iter().next() else {
            return Err(exception(&anyhow::anyhow!("no policy is defined")));
        };
        if let Some(function) = function {
            let id = format!("python({})", identity.unwrap_or_default());
            own.policy.score = Score::Custom(CustomScore::new(id, Box::new(move |step| scores(&function, step))));
        }
        Ok(Policy(own))
    }
}

/// What the function returns; `None` after an exception, which ends the work.
fn scores(function: &Py<PyAny>, step: &Step<'_>) -> Option<Vec<f64>> {
    Python::attach(|py| {
        let positions = PyBytes::new(py, &bytes(step.positions, u32::to_ne_bytes));
        let attention = PyBytes::new(py, &bytes(step.attention, f32::to_ne_bytes));
        let call = || function.call1(py, (step.layer, step.group, step.seen, positions, attention));
        let scores = STEP.set(step, call).and_then(|scores| scores.extract::<Vec<u8>>(py));
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

/// Asks about the step of the function that this thread calls now.
fn of_step<T>(ask: impl FnOnce(&Step<'_>) -> PyResult<T>) -> PyResult<T> {
    if STEP.is_set() {
        return STEP.with(ask);
    }
    let message = "a step can be asked only while the function that it was given to is called, and in its thread; \
                   keep copies of what you need later";
    Err(PyRuntimeError::new_err(message))
}

/// An array of the step by its name, and the sides of it that its length leaves open: `keys` and `values` (key-value heads, entries,
/// dim), `queries` (tokens, query heads, dim), `hidden` (tokens, hidden) in f32, and `token_ids` (entries) in u32.
#[pyfunction]
pub fn step_array<'py>(py: Python<'py>, name: &str) -> PyResult<(Bound<'py, PyBytes>, Vec<usize>)> {
    of_step(|step| {
        let (dim, entries) = (step.vectors.dim(), step.positions.len());
        let heads = step.attention.len() / entries;
        let floats = |numbers: &[f32]| bytes(numbers, f32::to_ne_bytes);
        let tokens = step.queries.len() / (heads * dim);
        let (array, sides) = match name {
            "keys" => (floats(&step.keys()), vec![step.kv_heads.len(), entries, dim]),
            "values" => (floats(&step.values()), vec![step.kv_heads.len(), entries, dim]),
            "queries" => (floats(&step.queries), vec![tokens, heads, dim]),
            "hidden" => (floats(step.hidden), vec![tokens, step.hidden.len() / tokens]),
            _ => (bytes(&step.token_ids, u32::to_ne_bytes), vec![entries]),
        };
        Ok((PyBytes::new(py, &array), sides))
    })
}

/// Cosines and sines by which pairs of dimensions are rotated at some positions: (positions, pairs) each, f32.
#[pyfunction]
pub fn step_rotation(py: Python<'_>, positions: Vec<f64>) -> PyResult<[Bound<'_, PyBytes>; 2]> {
    of_step(|step| {
        Ok(step.vectors.angles(&positions).map(|angles| PyBytes::new(py, &bytes(&angles, f32::to_ne_bytes))))
    })
}

/// What the newest query's products with keys are multiplied by.
#[pyfunction]
pub fn step_scale() -> PyResult<f32> {
    of_step(|step| Ok(step.vectors.scale(step.seen - 1)))
}

/// What the function remembers of the step's layer, head and text.
#[pyfunction]
pub fn step_state(py: Python<'_>) -> PyResult<Py<PyDict>> {
    of_step(|step| {
        let mut state = step.state.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            state.0.as_deref().and_then(|state| (state as &dyn std::any::Any).downcast_ref::<Dictionary>());
        if let Some(Dictionary(known)) = known {
            return Ok(known.clone_ref(py));
        }
        let new = PyDict::new(py).unbind();
        state.0 = Some(Box::new(Dictionary(new.clone_ref(py))));
        Ok(new)
    })
}

struct Dictionary(Py<PyDict>);

impl Remembered for Dictionary {
    /// A deep copy, so that a function may change what it finds.
    fn copy(&self) -> Box<dyn Remembered> {
        Python::attach(|py| {
            let copy = || {
                py.import("copy")?.call_method1("deepcopy", (&self.0,))?.cast_into::<PyDict>().map_err(PyErr::from)
            };
            let copied = copy().map(Bound::unbind).unwrap_or_else(|error| {
                raise(error);
                PyDict::new(py).unbind()
            });
            Box::new(Dictionary(copied)) as Box<dyn Remembered>
        })
    }
}

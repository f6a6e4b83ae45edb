//! The native part of the Python module `tova_bench`. Arrays pass as bytes, in the machine's order; the Python part makes NumPy
//! arrays of them.

mod errors;
mod model;
mod policy;
mod sweep;
mod work;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::errors::Error;
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::policy::{Policy, step_array, step_rotation, step_scale, step_state};
    #[pymodule_export]
    use crate::sweep::run;

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        // The engine has its own threads. candle would otherwise use this pool for each product; the Python part tells it so.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
        Ok(())
    }

    /// Writes a file whole, or not at all.
    #[pyfunction]
    fn write_file(path: std::path::PathBuf, text: &str) -> PyResult<()> {
        tova_bench::ledger::write_output(&path, text.as_bytes()).map_err(|error| crate::errors::exception(&error))
    }

    /// Runs the command with its arguments, the program's name first. Returns the exit code.
    #[pyfunction]
    fn main(py: Python<'_>, arguments: Vec<String>) -> u8 {
        py.detach(|| tova_bench::cli::run(arguments))
    }
}

/// Numbers as the bytes of an array.
fn bytes<T: Copy, const N: usize>(numbers: &[T], of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| of(*number)).collect()
}

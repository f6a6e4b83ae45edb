//! `schema`: the JSON Schemas of sweeps and of task files.

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::output::print;

/// Print the JSON Schema of sweeps or of task files, for completion and checks in editors
///
/// Save it beside a sweep, `tova-bench schema > sweep.schema.json`, and begin the sweep with the line
/// `# yaml-language-server: $schema=sweep.schema.json`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Which files it is for
    #[arg(value_enum, default_value_t = Files::Sweep)]
    files: Files,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Files {
    /// Sweeps
    Sweep,
    /// Task files of benchmarks (docs/task-files.md)
    Benchmark,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let schema = match arguments.files {
        Files::Sweep => crate::sweep::json_schema()?,
        Files::Benchmark => crate::task::benchmark_schema()?,
    };
    print(&schema)
}

//! `schema`: the JSON Schema of sweep files.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::output::print;

/// Print the JSON Schema of sweep files, for completion and checks in editors
///
/// Save it beside a sweep, `tova-bench schema > sweep.schema.json`, and begin the sweep with the line
/// `# yaml-language-server: $schema=sweep.schema.json`.
#[derive(Debug, Args)]
pub(super) struct Arguments {}

pub(super) fn run(_: &Arguments) -> Result<ExitCode> {
    print(&crate::sweep::json_schema()?)
}

//! `manual`: the help of every command as manual pages.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};

use super::Program;
use super::output::print;

/// Write manual pages, one for each command, into a folder
///
/// `tova-bench manual ~/.local/share/man/man1` makes `man tova-bench-run` show the help of `run`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The folder; made if it is missing
    folder: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let folder = &arguments.folder;
    let cannot = || format!("cannot write manual pages to {}", folder.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    clap_mangen::generate_to(Program::command(), folder).with_context(cannot)?;
    let pages = fs::read_dir(folder).with_context(cannot)?.count();
    print(&format!("{pages} files in {}\n", folder.display()))
}

//! `completions`: what a shell completes after `tova-bench`.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::Program;
use super::output::print;

/// Print completions of commands and options for a shell
///
/// bash: `tova-bench completions bash > ~/.local/share/bash-completion/completions/tova-bench`. zsh: write it as `_tova-bench`
/// into a folder of `$fpath`. fish: `tova-bench completions fish > ~/.config/fish/completions/tova-bench.fish`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let mut script = Vec::new();
    generate(arguments.shell, &mut Program::command(), "tova-bench", &mut script);
    // clap_complete spells the hyphen of the program's name in two ways, so that bash finds no option of a command
    // (clap-rs/clap#6421). Other shells' scripts do not have the word.
    print(&String::from_utf8(script)?.replace("tova__subcmd__bench", "tova__bench"))
}

//! The terminal that bars are drawn on, and its width.

use console::Term;
use indicatif::ProgressDrawTarget;

/// Drawings a second.
const RATE: u8 = 5;

/// stderr, or nothing if it is no terminal.
pub(super) fn stderr() -> ProgressDrawTarget {
    match std::env::var_os("TERM").is_none_or(|name| name == "dumb") {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr_with_hz(RATE),
    }
}

/// Columns of stdout: those of its terminal up to `most`, which is also the answer where there is none.
pub(super) fn columns(most: usize) -> usize {
    Term::stdout().size_checked().map_or(most, |(_, columns)| usize::from(columns).min(most))
}

/// Whether stdout shows faint text: it is a terminal, and nothing such as `NO_COLOR` speaks against it.
pub(super) fn is_dimmed() -> bool {
    Term::stdout().is_term() && console::colors_enabled()
}

//! Errors as users see them, and usage errors, which exit with code 2 instead of 1.

use std::fmt::Display;

use super::output::tell;
use crate::ledger::OnlyError;
use crate::text::InvalidSettings;
use crate::yaml::ConfigError;

/// A mistake on the command line: typing something else mends it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UsageError(String);

impl UsageError {
    pub(super) fn new(message: impl Display, hint: impl Display) -> UsageError {
        UsageError(format!("{message}\nhint: {hint}"))
    }

    /// An error that brings its own hint.
    pub(super) fn from_error(error: impl Display) -> UsageError {
        UsageError(error.to_string())
    }
}

/// The exit code of an error.
pub(super) fn code(error: &anyhow::Error) -> u8 {
    let is_usage = error.chain().any(|cause| {
        cause.is::<UsageError>()
            || cause.is::<InvalidSettings>()
            || cause.is::<ConfigError>()
            || cause.is::<OnlyError>()
    });
    if is_usage { 2 } else { 1 }
}

/// Prints an error with its causes, hints last, and gives the exit code.
pub(super) fn show(error: &anyhow::Error) -> u8 {
    // Any cause may carry a hint.
    let chain = format!("{error:#}");
    let (message, hints): (Vec<&str>, Vec<&str>) = chain.lines().partition(|line| !line.starts_with("hint:"));
    tell(format!("error: {}", message.join("\n")));
    for hint in hints {
        tell(hint);
    }
    code(error)
}

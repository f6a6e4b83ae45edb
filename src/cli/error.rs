//! Errors as users see them, and usage errors, which exit with code 2 instead of 1.

use std::fmt;
use std::process::ExitCode;

use crate::yaml::ConfigError;

/// A mistake on the command line: typing something else mends it.
#[derive(Debug)]
pub(super) struct UsageError {
    message: String,
    hint: String,
}

impl UsageError {
    pub(super) fn new(message: impl Into<String>, hint: impl Into<String>) -> UsageError {
        UsageError { message: message.into(), hint: hint.into() }
    }

    pub(super) fn from_error(error: impl fmt::Display) -> UsageError {
        UsageError::new(error.to_string(), "")
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, "\nhint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for UsageError {}

/// Prints an error with its causes, hints last, and gives the exit code.
pub(super) fn show(error: &anyhow::Error) -> ExitCode {
    // Any cause may carry a hint.
    let chain = format!("{error:#}");
    let (message, hints): (Vec<&str>, Vec<&str>) = chain.lines().partition(|line| !line.starts_with("hint:"));
    eprintln!("error: {}", message.join("\n"));
    for hint in hints {
        eprintln!("{hint}");
    }
    let is_usage = error.chain().any(|cause| cause.is::<UsageError>() || cause.is::<ConfigError>());
    ExitCode::from(if is_usage { 2 } else { 1 })
}

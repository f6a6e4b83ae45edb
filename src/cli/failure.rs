//! Mistakes of the command line or a sweep file, told apart from failures: they exit with code 2.

use std::fmt;

/// A mistake the user can mend by typing something else.
#[derive(Debug)]
pub struct Usage {
    message: String,
    hint: String,
}

impl Usage {
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Usage {
        Usage { message: message.into(), hint: hint.into() }
    }

    pub fn from_error(error: impl fmt::Display) -> Usage {
        Usage::new(error.to_string(), "")
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, "\nhint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Usage {}

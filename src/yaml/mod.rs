//! Strict reading of YAML files: a file becomes values, or an error that names the place and says what to do.
//!
//! [`parse_yaml`] checks syntax, spelling and types; `check` checks values against their ranges; `schema` has the
//! building blocks of the JSON Schema that editors use. What the values of a sweep or a task mean is not known here.

mod check;
mod read;
pub mod schema;
mod text;

pub use check::{MOST_MADE, between, count, distinct, distinct_counts, limit, made, refuse, word, words};
pub use read::{ConfigError, Location, Spanned, parse_yaml, read_file};
pub use text::from_text;

//! Tests of the repository, not of the program: its documentation, and the rules of its sources.

mod docs_rows;
mod links;
mod tidy;

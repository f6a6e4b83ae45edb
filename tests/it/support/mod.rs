//! What the tests of the command line share: the program itself, sweeps and checkpoints to give it, and rows to compare.
//!
//! Everything is real and small: the binary as built, files in a folder of their own, no mocks. A test file uses the
//! part it needs.

#![allow(dead_code)]

pub mod checkpoint;
pub mod gguf;
pub mod http;
pub mod hub_server;
#[cfg(unix)]
pub mod judge_server;
pub mod material;
pub mod program;
pub mod rows;
pub mod sweep;

//! The integration tests: one program, so that tova-bench and its dependencies are linked once.
//!
//! The tests of a file run beside those of every other in one process. What would change that process (environment variables,
//! the current folder, limits, signal handlers, rayon's global pool) is done in a child process, which `support::program`
//! starts. `tests/device` is a second program for devices that a build has with a feature only.

mod support;

mod answers;
mod arithmetic;
mod benchmarks;
mod budgets;
mod candle;
mod cli;
mod cluster;
mod compare;
mod docs_rows;
mod doctor;
mod faults;
mod folder;
mod foreign;
mod forks;
mod gguf;
mod gguf_tokenizers;
mod golden;
mod hostile;
mod hub;
mod judge;
mod links;
mod long;
mod longbench;
mod lost_cells;
mod metrics;
mod multimodal;
mod progress;
mod readers;
mod recall;
mod retention;
mod schedules;
mod secrets;
mod settling;
mod show;
mod statistics;
mod stream;
mod task_files;
mod threads;
mod tidy;
mod timing;
mod variants;
mod windows;
mod writing;

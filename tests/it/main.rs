//! The integration tests: one program, so that tova-bench and its dependencies are linked once.
//!
//! The tests of a file run beside those of every other in one process. What would change that process (environment variables,
//! the current folder, limits, signal handlers, rayon's global pool) is done in a child process, which `support::program`
//! starts. `tests/device` is a second program for devices that a build has with a feature only.

mod support;

mod answers;
mod arithmetic;
mod benchmarks;
mod books;
mod budgets;
mod candle;
mod cli;
mod cluster;
mod compare;
mod doctor;
mod faults;
mod foreign;
mod formats;
mod fuzz_seeds;
mod gguf;
mod gguf_tokenizers;
mod golden;
mod hub;

mod judge;
mod long;
mod longbench;
mod lost_cells;
mod memory;
mod metrics;
mod multimodal;
mod progress;
mod question_files;
mod recall;
mod repository;
mod results_folder_over_time;
mod retention;
mod schedules;
mod secrets;
mod shared_prefix;
mod show;
mod shrunk_memory;
mod single_texts;
mod statistics;
mod task_files;
mod threads;
mod timing;
mod variants;
mod windows;
mod writing;

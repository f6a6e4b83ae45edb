//! The tasks: what a model is asked to do under a bounded cache, and how the results are measured.
//!
//! Each task is a folder with its settings in YAML, which become a [`TaskSpec`], and its [`Samples`]; `registry` lists
//! them. Tasks that generate text share `generation`; benchmarks of prompts and answers are files, which `benchmark` reads. Which
//! combinations of tasks, models and policies exist, and where results go, is not known here.
//!
//! A part uses only those before it, in this order: keys and values of settings (`canonical`), the texts in the program (`embedded`),
//! `cache`, what caches hold (`memory`), texts (`data`), what is asked of a model (`request`), what every task has (`prepared` and
//! `spec`), `generation`, `retention`, `perplexity`, `benchmark`, the tasks that are files of it (`longbench`, `math`, `needle`,
//! `questions`, `ruler`), `story` and `timing`, `registry`.

mod benchmark;
mod cache;
mod canonical;
mod data;
pub(crate) mod embedded;
mod generation;
mod longbench;
mod math;
mod memory;
mod needle;
mod perplexity;
mod prepared;
mod questions;
mod registry;
mod request;
mod retention;
mod ruler;
mod spec;
mod story;
mod timing;

pub use benchmark::{
    RollingText, builtin as builtin_benchmarks, files_of as benchmark_files, json_schema as benchmark_schema,
    metrics as benchmark_metrics,
};
pub use cache::{CacheConfig, FullCachePrefix};
pub use canonical::Setting;
pub use data::{Books, DataSource, LocatedRecall, TextSample, clean, digest_of, read_text};
pub use embedded::MOST_EMBEDDED_BOOKS;
pub use generation::{TokenAnswer, TokenRequest, TokenSettings, answer_tokens};
pub use perplexity::{Piece, measure, pieces};
pub use prepared::{Batch, CHUNK, PreparedTask, SampleResult, Samples, TokenCost};
pub use questions::{PromptStyle, QASPER, Release, SQUALITY, Split, read_questions};
pub use registry::{TaskYaml, check_benchmark};
pub use request::{Cut, GenerationConfig, MOST_TEMPERATURE, Prompt, REPETITION_PENALTIES, Request, Unmeasurable};
pub use retention::Lifetimes;
pub use spec::{PrepareContext, TaskSpec};
pub use story::{STORY_REQUEST, request_of};
pub use timing::sequences_that_fit;

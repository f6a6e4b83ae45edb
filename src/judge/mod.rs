//! Pairwise comparison of stories by a judge model: each story that a bounded cache wrote beside the one that the full
//! cache wrote from the same seed, as the paper did with GPT-4 (appendix D).
//!
//! Judges prefer a position, so each pair is asked about in both orders; a story wins only if it is preferred both
//! times. Identical stories are counted and not asked about. If an answer cannot be read, the question is asked twice
//! more with a reminder of its form; then the pair counts as unreadable, and as nothing else.
//!
//! # What a kill costs
//!
//! A cell of verdicts is named by the hash of both stories' cells and texts, the judge's name and the version of the
//! question. Each pair is one line of the cell's journal, written as soon as both calls are answered. So when a process is
//! killed and the command is run again, no written pair is repeated, none is left out, and every result is in the ledger
//! once. Repeated are at most the pairs in work at the kill, one per thread; SIGINT and SIGTERM wait for those.

mod answer;
mod client;
mod endpoint;
mod pairing;
mod prompt;
mod rows;
mod run;
mod verdict;

pub use endpoint::{Endpoint, Key};
pub use pairing::JUDGE;
pub use prompt::PROMPT_VERSION;
pub use rows::Counts;
pub use run::{Event, Outcome, Settings, judge};

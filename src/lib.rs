//! tova-bench answers one question: how small can a transformer's key-value cache be?
//!
//! A cache-bounded transformer is a recurrent network ([`lm`]) whose memory a policy ([`eviction`]) keeps bounded.
//! A sweep ([`sweep`]) names experiments, [`run`] performs them, the ledger ([`ledger`]) keeps what was measured,
//! [`judge`] asks another model which stories in it are better, and [`report`] draws from the ledger alone.
//! ARCHITECTURE.md has the bird's-eye view.

pub mod bounded_read;
pub mod cli;
pub mod compare;
pub mod eviction;
pub mod format;
pub mod jinja;
pub mod judge;
pub mod ledger;
pub mod lm;
pub mod metric;
pub mod paper;
pub mod parquet;
pub mod report;
pub mod run;
pub mod show;
pub mod sweep;
pub mod task;
pub mod text;
pub mod vector;
pub mod yaml;

//! tova-bench answers one question: how small can a transformer's key-value cache be?
//!
//! A cache-bounded transformer is a recurrent network ([`lm`]) whose memory a policy ([`eviction`]) keeps bounded.
//! A sweep ([`sweep`]) names experiments, [`run`] performs them, the ledger ([`results`]) keeps what was measured,
//! [`judge`] asks another model which stories in it are better, and [`report`] draws from the ledger alone.
//! ARCHITECTURE.md has the bird's-eye view.

pub mod cli;
pub mod columns;
pub mod compare;
pub mod eviction;
pub mod intake;
pub mod judge;
pub mod lm;
pub mod metric;
pub mod report;
pub mod results;
pub mod run;
pub mod sweep;
pub mod task;
pub mod vector;
pub mod world;

//! What may happen to a run: kills, signals, other processes, a full disk, a folder that is read-only or vanishes, damaged
//! files, files that change, clocks that jump. Each time the same command resumes where it stopped, and in the end the rows
//! are those of an undisturbed run.

#![cfg(unix)]

mod changes;
mod concurrency;
pub mod disks;
mod kills;
mod scene;
mod vanishing;

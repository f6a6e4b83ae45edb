//! What may happen to a run: kills, signals, other processes, a full disk, a folder that is read-only or vanishes, damaged
//! files, files that change, clocks that jump. Each time the same command resumes where it stopped, and in the end the rows
//! are those of an undisturbed run.

#![cfg(unix)]

#[path = "faults/changes.rs"]
mod changes;
#[path = "faults/concurrency.rs"]
mod concurrency;
#[path = "faults/disks.rs"]
mod disks;
#[path = "faults/kills.rs"]
mod kills;
#[path = "faults/scene.rs"]
mod scene;
#[path = "faults/vanishing.rs"]
mod vanishing;

mod support;

//! What may happen to a run: kills, signals, company, a full disk, a folder that cannot be written or vanishes, damaged
//! files, files that change, clocks that jump. Whatever it is, the same command goes on where it stopped, and in the end the
//! rows are those of an undisturbed run.

#![cfg(unix)]

#[path = "faults/changes.rs"]
mod changes;
#[path = "faults/company.rs"]
mod company;
#[path = "faults/disks.rs"]
mod disks;
#[path = "faults/kills.rs"]
mod kills;
#[path = "faults/scene.rs"]
mod scene;
#[path = "faults/vanishing.rs"]
mod vanishing;

mod support;

//! The readers of foreign files, each as one function of bytes: what the fuzzer calls, and `tests/it/fuzz_seeds.rs` with
//! every seed.
//!
//! They call the program's public functions on real files in a folder of their own, as a run does. An error is the
//! right result for most inputs; a panic, a path outside the folder or a broken promise is not.

mod hub;
mod models;
mod rows;
mod scratch;
mod texts;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook};
use std::sync::{Mutex, Once, PoisonError};

/// A reader, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// Every target; the folder of its seeds has the same name.
pub const TARGETS: [Target; 13] = [
    ("sweep", texts::sweep),
    ("task_file", texts::task_file),
    ("weights", models::weights),
    ("gguf", models::gguf),
    ("config", models::config),
    ("index", models::index),
    ("tokenizer", models::tokenizer),
    ("chat_template", models::chat_template),
    ("zeroscrolls", texts::zeroscrolls),
    ("qasper", texts::qasper),
    ("ledger", rows::ledger),
    ("journal", rows::journal),
    ("hub", hub::hub),
];

/// The message of the last panic, caught or not.
static LAST: Mutex<String> = Mutex::new(String::new());

/// Runs one target on one input.
///
/// # Panics
/// If the program panics or breaks a promise, and for an unknown target.
pub fn read(target: &str, input: &[u8]) {
    static HOOK: Once = Once::new();
    // libFuzzer's own hook ends the process at every panic, also at panics of a library that the program catches.
    // With this hook only uncaught panics count.
    HOOK.call_once(|| {
        set_hook(Box::new(|panic| *LAST.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string()));
    });
    let (_, reader) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target of the list");
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| reader(input))) {
        eprintln!("{target}: {}", LAST.lock().unwrap_or_else(PoisonError::into_inner));
        resume_unwind(panic);
    }
}

//! Calls of the tokenizers library, whose panics become errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use anyhow::{Result, anyhow, bail};

thread_local! {
    /// Whether panics of this thread become errors.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Turns panics of the library into errors, and prints nothing: it unwraps and indexes if a file or a token is not as it expects.
pub(super) fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            if !IS_GUARDED.get() {
                usual(panicked);
            }
        }));
    });
    let was_guarded = IS_GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    IS_GUARDED.set(was_guarded);
    match outcome {
        Ok(outcome) => outcome.map_err(|error| anyhow!("{error}")),
        Err(_) => bail!("the tokenizer's file is damaged: the tokenizers library panicked"),
    }
}

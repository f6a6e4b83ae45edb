//! Downloads, one file after the other, and what there is to say about them and the texts.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::json;

use super::events;
use super::output::tell;
use super::progress::{Mode, Progress};
use crate::format::Bytes;
use crate::lm::source::DownloadProgress;

/// Shows downloads on stderr.
pub(super) struct Downloads {
    mode: Mode,
    /// The name of the current file, and its progress.
    current: Mutex<(String, Progress)>,
    /// The notes so far. A text that several models read is noted once.
    notes: Mutex<HashSet<String>>,
}

impl Downloads {
    pub(super) fn new(mode: Mode) -> Downloads {
        Downloads { mode, current: Mutex::new((String::new(), Progress::new(mode))), notes: Mutex::default() }
    }

    fn current(&self) -> MutexGuard<'_, (String, Progress)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DownloadProgress for Downloads {
    fn start(&self, name: &str, bytes: u64) {
        let (current, progress) = &mut *self.current();
        name.clone_into(current);
        progress.start(bytes, 0);
        match self.mode {
            Mode::Json => write(name, 0, bytes),
            Mode::None => {}
            _ if !progress.has_bar() => tell(format!("fetching {name} ({})", Bytes(bytes))),
            _ => {}
        }
    }

    fn advance(&self, bytes: u64) {
        let (name, progress) = &mut *self.current();
        let done = progress.bar.position() + bytes;
        let total = progress.bar.length().unwrap_or(done);
        if self.mode != Mode::Json {
            let summary = format!("{name}: {} of {}", Bytes(done), Bytes(total));
            return progress.update(done, summary);
        }
        progress.bar.set_position(done);
        if progress.is_line_due() || done == total {
            write(name, done, total);
        }
    }

    fn finish(&self) {
        self.current().1.finish();
    }

    fn note(&self, message: &str) {
        if self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(message.to_owned()) {
            self.mode.note(message);
        }
    }
}

fn write(file: &str, bytes_done: u64, bytes: u64) {
    events::write("download", json!({ "file": file, "bytes_done": bytes_done, "bytes": bytes }));
}

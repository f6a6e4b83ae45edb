//! The machine: its memory, the name of its processor, and threads for one text at a time.

pub(super) mod host;
pub(super) mod text_threads;

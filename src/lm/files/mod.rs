//! Checkpoints: where they come from, and what is read from them: weights, tokenizers and chat templates.

pub(super) mod chat;
pub(super) mod file_stamps;
pub(super) mod gguf;
mod guard;
mod normalizer;
pub(super) mod pocket;
pub mod source;
mod stored_bytes;
pub(super) mod tokenizer;
pub(super) mod weights;

//! The network: layers with their weights, and reads of tokens through them into a memory.

mod altup;
mod attention;
mod awake;
mod decoder;
mod delta;
mod latent;
mod loader;
mod mlp;
mod parts;
pub(super) mod random;
pub(super) mod second_reading;
pub(super) mod transformer;

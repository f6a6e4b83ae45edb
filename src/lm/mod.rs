//! The language model as a recurrent network: `read(tokens, &mut memory)`, one state per token.
//!
//! The only home of candle, tokenizers and hf-hub. It knows checkpoints, devices and arithmetic; what is asked of a
//! model, and what the answers are worth, it refuses to know.

mod anchored;
mod attention;
mod config;
mod layers;
mod memory;
mod product;
mod rope;
mod score;
pub mod source;
mod transformer;
mod weights;

pub use config::{ModelShape, RopeScaling, RopeShape};
pub use memory::{BLOCK, Memory, MemoryPlan, Work};
pub use score::Divergence;
pub use transformer::{Interrupted, LanguageModel, WeightType};

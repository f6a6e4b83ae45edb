//! The language model as a recurrent network: `read(tokens, &mut memory)`, one state per token.
//!
//! The only home of candle, tokenizers and hf-hub. It knows checkpoints, devices and arithmetic; what is asked of a
//! model, and what the answers are worth, it refuses to know.

mod anchored;
mod attention;
mod chat;
mod config;
mod decoder;
mod device;
mod host;
mod jinja;
mod layers;
mod memory;
mod open;
mod peak;
mod pocket;
mod product;
mod random;
mod rope;
mod rope_override;
mod score;
mod seen;
pub mod source;
mod tokenizer;
mod tokenizer_outline;
mod transformer;
mod weights;
mod write;

pub use candle_core::{Device, DeviceLocation, Tensor};
pub use chat::{ChatTemplate, Frame};
pub use config::{ModelShape, RopeScaling, RopeShape};
pub use device::{DeviceChoice, available_memory, card_memory, device_name, machine_name, occupied};
pub use host::{HostMemory, LimitKind, MemoryLimit, Mount, host_memory, mounts};
pub use memory::{BLOCK, Memory, MemoryPlan, Work};
pub use open::ModelFiles;
pub use peak::{Peak, Processor, peak};
pub use product::matrix_rate;
pub use random::tiny_shape;
pub use rope_override::{Real, RopeOverride, RopeOverrideKind};
pub use score::{Divergence, Scores};
pub use tokenizer::{Tokenizer, Tokens};
pub use transformer::{Interrupted, LanguageModel, WeightType, same_error};
pub use write::{Decode, Sampling, Start, Writing, Written};

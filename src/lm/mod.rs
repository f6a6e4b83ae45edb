//! The language model as a recurrent network: `read(tokens, &mut memory)`, one state per token.
//!
//! Only this module uses candle, tokenizers and hf-hub. It knows checkpoints, devices and arithmetic; tasks and metrics are
//! left to others.

mod altup;
mod attention;
mod block_vectors;
mod chat;
mod config;
mod decoder;
mod delta;
mod device;
mod family;
mod file_stamps;
mod generate;
mod gguf;
mod gpu;
mod host;
mod integers;
mod latent;
mod layers;
mod loader;
mod matrix;
mod memory;
mod mlp;
mod open;
mod parts;
mod pocket;
mod product;
mod random;
mod rerotation;
mod rope;
mod rope_override;
mod rope_shape;
mod score;
mod second_reading;
pub mod source;
mod table;
mod text_threads;
mod tokenizer;
mod transformer;
mod weights;

pub use candle_core::Tensor;
pub use chat::{ChatFormat, ChatTemplate};
pub use config::{
    Activation, AltUpShape, AttentionTemperature, Experts, HeadNorms, LayerAttention, LayerNorms, ModelShape,
};
pub use device::{
    Device, DeviceChoice, available_memory, card_memory, device_name, is_out_of_memory, machine_name,
    resident_bytes,
};
pub use generate::{Decode, Ended, Generated, GenerationSettings, Generator, PrefilledPrompt, Sampling};
pub use gpu::Measured;
#[cfg(feature = "emulate")]
pub use gpu::{Emulation, WarpOrder};
pub use host::{HostMemory, host_memory};
pub use memory::{BLOCK, Memory, MemoryPlan, PromptScores, ReadStats};
pub use open::ModelFiles;
pub use product::matrix_rate;
pub use random::tiny_shape;
pub use rope_override::{Real, RopeOverride, RopeOverrideKind};
pub use rope_shape::{RopeScaling, RopeShape};
pub use score::Scores;
pub use second_reading::RepeatRequest;
pub use text_threads::TextThreads;
pub use tokenizer::{Tokenizer, Tokens};
pub use transformer::{Arithmetic, Interrupted, LanguageModel, SEGMENT, SEGMENT_ON_GPU, WeightType, clone_error};

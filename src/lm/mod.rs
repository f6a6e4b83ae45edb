//! The language model as a recurrent network: `read(tokens, &mut memory)`, one state per token.
//!
//! Only this module uses candle, tokenizers and hf-hub. It knows checkpoints, devices and arithmetic; tasks and metrics are
//! left to others.
//!
//! Folders use those below them (ARCHITECTURE.md has their order). To read the code, begin with `open`, `shape::config` and
//! `cache::memory`, then follow `LanguageModel::read` in `network::transformer` through `parts`, `decoder` and `attention`.

mod arithmetic;
mod cache;
mod device;
mod device_choice;
mod files;
mod generate;
mod gpu;
#[cfg(any(feature = "cuda", feature = "emulate"))]
#[path = "../../benches/gpu/measure.rs"]
mod gpu_benchmark;
mod gpu_check;
mod machine;
mod network;
mod open;
mod score;
mod shape;

pub use arithmetic::product::matrix_rate;
pub use arithmetic::types::{Arithmetic, WeightType};
pub use cache::memory::{Memory, PromptScores};
pub use cache::plan::MemoryPlan;
pub use cache::scratch::ReadStats;
pub use candle_core::Tensor;
pub use device::{
    Device, available_memory, card_memory, device_name, is_out_of_memory, machine_name, resident_bytes,
};
pub use device_choice::DeviceChoice;
pub use files::chat::{ChatFormat, ChatTemplate};
pub use files::source;
pub use files::tokenizer::{Tokenizer, Tokens};
pub use generate::{Generated, GenerationSettings, Generator, PrefilledPrompt, Sampling};
#[cfg(feature = "emulate")]
pub use gpu::emulated::{Emulation, WarpOrder};
#[cfg(any(feature = "cuda", feature = "emulate"))]
pub use gpu_benchmark::Measured;
pub use machine::host::host_memory;
pub use machine::text_threads::{MOST_THREADS, TextThreads, checked_threads};
pub use network::random::tiny_shape;
pub use network::second_reading::RepeatRequest;
pub use network::transformer::{Interrupted, LanguageModel, SEGMENT, SEGMENT_ON_GPU, clone_error};
pub use open::ModelFiles;
pub use shape::caches::BLOCK;
pub use shape::config::ModelShape;
pub use shape::family::families;
pub use shape::parts::LayerAttention;
pub use shape::rope_override::{Real, RopeOverride, RopeOverrideKind};

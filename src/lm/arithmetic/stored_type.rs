//! The types of tensors in GGUF files, and messages about those that cannot be read.

use anyhow::{Context, Result, bail};
use candle_core::quantized::GgmlDType;

const INSTEAD: &str = "\nhint: use a Q8_0 or Q4_K_M file (llama.cpp's llama-quantize makes one from the F16 file), or the safetensors checkpoint";

/// Type that a tensor is stored in: one that candle knows, or MXFP4, which has blocks of 32 numbers of 4 bits with a power of two
/// (OCP Microscaling Formats 1.0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lm) enum StoredType {
    Ggml(GgmlDType),
    Mxfp4,
}

/// Types of candle that are read.
const READ: [GgmlDType; 15] = {
    use GgmlDType::*;
    [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q2K, Q3K, Q4K, Q5K, Q6K, Q8K]
};

/// Names of ggml's types in the order of their numbers, also of types that are not read here and of those that llama.cpp has given
/// up.
const NAMES: &str = "F32 F16 Q4_0 Q4_1 Q4_2 Q4_3 Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S \
    IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M BF16 Q4_0_4_4 Q4_0_4_8 Q4_0_8_8 TQ1_0 TQ2_0 IQ4_NL_4_4 IQ4_NL_4_8 \
    IQ4_NL_8_8 MXFP4 NVFP4 Q1_0";

impl StoredType {
    /// Finds the type with a number.
    ///
    /// # Errors
    ///
    /// A type that is not read here.
    pub fn numbered(number: u32) -> Result<StoredType> {
        let Some(name) = NAMES.split(' ').nth(number as usize) else {
            bail!("it is stored as type {number}, which has no name here{INSTEAD}");
        };
        let mut read = READ.map(StoredType::Ggml).into_iter().chain([StoredType::Mxfp4]);
        let stored = read.find(|stored| stored.name() == name);
        stored.with_context(|| format!("it is stored as {name}, which is not read here{INSTEAD}"))
    }

    /// Name in ggml, such as `Q4_K`.
    pub fn name(self) -> String {
        let StoredType::Ggml(dtype) = self else { return "MXFP4".to_owned() };
        let name = format!("{dtype:?}");
        name.strip_suffix('K').map_or(name.clone(), |bits| format!("{bits}_K"))
    }

    /// Number of values in a block.
    pub fn block_size(self) -> usize {
        match self {
            StoredType::Ggml(dtype) => dtype.block_size(),
            StoredType::Mxfp4 => 32,
        }
    }

    /// Bytes of a block.
    pub fn type_size(self) -> usize {
        match self {
            StoredType::Ggml(dtype) => dtype.type_size(),
            StoredType::Mxfp4 => 17,
        }
    }
}

//! The types of tensors in GGUF files, and what is said of those that cannot be read.

use anyhow::{Result, bail};
use candle_core::quantized::GgmlDType;

/// How a tensor is stored: as one of the types that candle knows, or in MXFP4, blocks of 32 numbers of 4 bits with a power of two
/// (OCP Microscaling Formats 1.0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lm) enum StoredType {
    Ggml(GgmlDType),
    Mxfp4,
}

/// Numbers of ggml's types.
const READ: [(u32, StoredType); 16] = [
    (0, StoredType::Ggml(GgmlDType::F32)),
    (1, StoredType::Ggml(GgmlDType::F16)),
    (2, StoredType::Ggml(GgmlDType::Q4_0)),
    (3, StoredType::Ggml(GgmlDType::Q4_1)),
    (6, StoredType::Ggml(GgmlDType::Q5_0)),
    (7, StoredType::Ggml(GgmlDType::Q5_1)),
    (8, StoredType::Ggml(GgmlDType::Q8_0)),
    (9, StoredType::Ggml(GgmlDType::Q8_1)),
    (10, StoredType::Ggml(GgmlDType::Q2K)),
    (11, StoredType::Ggml(GgmlDType::Q3K)),
    (12, StoredType::Ggml(GgmlDType::Q4K)),
    (13, StoredType::Ggml(GgmlDType::Q5K)),
    (14, StoredType::Ggml(GgmlDType::Q6K)),
    (15, StoredType::Ggml(GgmlDType::Q8K)),
    (30, StoredType::Ggml(GgmlDType::BF16)),
    (39, StoredType::Mxfp4),
];

/// Those that are not read here, with their names, also those that llama.cpp has given up.
const REFUSED: [(u32, &str); 26] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

impl StoredType {
    /// The type with a number.
    ///
    /// # Errors
    /// One that is not read here.
    pub fn numbered(number: u32) -> Result<StoredType> {
        if let Some((_, stored)) = READ.iter().find(|(known, _)| *known == number) {
            return Ok(*stored);
        }
        let name = REFUSED.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
        let name = name.map_or_else(|| format!("type {number}, which has no name here"), str::to_owned);
        bail!(
            "it is stored as {name}, which is not read here\nhint: use a Q8_0 or Q4_K_M file (llama.cpp's llama-quantize \
             makes one from the F16 file), or the safetensors checkpoint"
        )
    }

    /// ggml's name, such as `Q4_K`.
    pub fn name(self) -> String {
        let StoredType::Ggml(dtype) = self else { return "MXFP4".to_owned() };
        let name = format!("{dtype:?}");
        name.strip_suffix('K').map_or(name.clone(), |bits| format!("{bits}_K"))
    }

    /// Numbers in a block.
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

//! The types of tensors in GGUF files: which can be read, and the names of the others.

use anyhow::{Result, bail};
use candle_core::quantized::GgmlDType;

/// Numbers and names of ggml's types that are read.
const READ: [(u32, &str, GgmlDType); 15] = [
    (0, "F32", GgmlDType::F32),
    (1, "F16", GgmlDType::F16),
    (2, "Q4_0", GgmlDType::Q4_0),
    (3, "Q4_1", GgmlDType::Q4_1),
    (6, "Q5_0", GgmlDType::Q5_0),
    (7, "Q5_1", GgmlDType::Q5_1),
    (8, "Q8_0", GgmlDType::Q8_0),
    (9, "Q8_1", GgmlDType::Q8_1),
    (10, "Q2_K", GgmlDType::Q2K),
    (11, "Q3_K", GgmlDType::Q3K),
    (12, "Q4_K", GgmlDType::Q4K),
    (13, "Q5_K", GgmlDType::Q5K),
    (14, "Q6_K", GgmlDType::Q6K),
    (15, "Q8_K", GgmlDType::Q8K),
    (30, "BF16", GgmlDType::BF16),
];

/// The others, also those that llama.cpp has given up.
const REFUSED: [(u32, &str); 27] = [
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
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

/// The type of a number.
pub(super) fn of(number: u32) -> Result<GgmlDType> {
    if let Some((_, _, dtype)) = READ.iter().find(|(known, _, _)| *known == number) {
        return Ok(*dtype);
    }
    let name = REFUSED.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
    let name = name.map_or_else(|| format!("type {number}, which has no name here"), str::to_owned);
    bail!(
        "it is stored as {name}, which is not read here\nhint: use a Q8_0 or Q4_K_M file (llama.cpp's llama-quantize \
         makes one from the F16 file), or the safetensors checkpoint"
    )
}

/// ggml's name of a type, such as `Q4_K`.
pub(super) fn name(dtype: GgmlDType) -> &'static str {
    READ.iter().find(|(_, _, known)| *known == dtype).map_or("another type", |(_, name, _)| name)
}

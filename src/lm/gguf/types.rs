//! The types of tensors in GGUF files: their names, and what is said of those that cannot be read.

use anyhow::{Error, anyhow};
use candle_core::quantized::GgmlDType;

/// Numbers and names of ggml's types that candle does not read, also those that llama.cpp has given up.
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

/// Why a tensor with this number of a type cannot be used.
pub(super) fn refused(number: u32) -> Error {
    let name = REFUSED.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
    let name = name.map_or_else(|| format!("type {number}, which has no name here"), str::to_owned);
    anyhow!(
        "it is stored as {name}, which is not read here\nhint: use a Q8_0 or Q4_K_M file (llama.cpp's llama-quantize \
         makes one from the F16 file), or the safetensors checkpoint"
    )
}

/// ggml's name of a type, such as `Q4_K`.
pub fn name(dtype: GgmlDType) -> String {
    let name = format!("{dtype:?}");
    name.strip_suffix('K').map_or(name.clone(), |bits| format!("{bits}_K"))
}

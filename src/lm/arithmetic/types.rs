//! The types that weights are rounded to, and the arithmetics that multiply them.

use std::str::FromStr;

use anyhow::{Context, Result};
use candle_core::DType;

/// Type that weights are rounded to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightType {
    /// Type that the checkpoint stores.
    #[default]
    Auto,
    F32,
    F16,
    Bf16,
}

impl WeightType {
    /// Name in YAML, on the command line and in cell ids.
    pub fn name(self) -> &'static str {
        self.dtype().map_or("auto", |dtype| dtype.as_str())
    }

    const ALL: [WeightType; 4] = [WeightType::Auto, WeightType::F32, WeightType::F16, WeightType::Bf16];

    pub fn from_name(name: &str) -> Option<WeightType> {
        WeightType::ALL.into_iter().find(|own| own.name() == name)
    }

    /// Finds the type for a `DType`; `Auto` for types that weights are never rounded to.
    pub(in crate::lm) fn of(dtype: DType) -> WeightType {
        WeightType::ALL.into_iter().find(|own| own.dtype() == Some(dtype)).unwrap_or_default()
    }

    pub(in crate::lm) fn dtype(self) -> Option<DType> {
        match self {
            WeightType::Auto => None,
            WeightType::F32 => Some(DType::F32),
            WeightType::F16 => Some(DType::F16),
            WeightType::Bf16 => Some(DType::BF16),
        }
    }
}

/// Arithmetic of products with weights on the host. Everything else is in f32 (some policies need f64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arithmetic {
    /// Products in f32, or in f64 if a policy compares numbers that are very close.
    #[default]
    F32,
    /// Products in integers of 16 bits with a scale for each block of 32 columns, about twice as fast; see
    /// `lm::arithmetic::integers`.
    Fast,
}

impl Arithmetic {
    /// Name in YAML, on the command line, in rows and in cell ids.
    pub fn name(self) -> &'static str {
        match self {
            Arithmetic::F32 => "f32",
            Arithmetic::Fast => "fast",
        }
    }
}

impl FromStr for Arithmetic {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Arithmetic> {
        let known = [Arithmetic::F32, Arithmetic::Fast].into_iter().find(|own| own.name() == name);
        known.context("arithmetics are f32 and fast")
    }
}

//! Which model a sweep names, before anything is looked up or loaded.

use std::fmt;

use crate::lm::source::ModelSource;
use crate::lm::{RopeOverride, WeightType};

/// One entry of `models:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelSpec {
    pub source: ModelSource,
    pub dtype: WeightType,
    pub rope_scaling: Option<RopeOverride>,
}

impl fmt::Display for ModelSpec {
    /// As tables and rows call it: the source, with what is done to its positions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rope_scaling {
            None => write!(f, "{}", self.source),
            Some(rope_override) => write!(f, "{} ({rope_override})", self.source),
        }
    }
}

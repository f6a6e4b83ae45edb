//! Which model a sweep names, before anything is looked up or loaded.

use crate::lm::WeightType;
use crate::lm::source::ModelSource;

/// One entry of `models:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelSpec {
    pub source: ModelSource,
    pub dtype: WeightType,
}

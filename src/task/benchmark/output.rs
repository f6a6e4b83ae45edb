//! What a task asks of a model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is asked of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputType {
    /// The model writes an answer.
    #[default]
    GenerateUntil,
    /// The likelihood of each of several choices.
    MultipleChoice,
    /// The likelihood of one text after a prompt.
    Loglikelihood,
    /// The likelihood of a whole text.
    LoglikelihoodRolling,
}

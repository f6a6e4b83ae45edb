//! The block `cache:` of a task file: what lm-evaluation-harness has no word for, because it knows no cache. It has a field for each key.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::template::Template;
use crate::task::request::Cut;

/// What a bounded cache and its reports need to know of a row.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheYaml {
    /// The part of the prompt that the question is about: a column or a template, which `doc_to_text` has
    /// once, as it is written, outside of blocks.
    /// Rows with the same context follow each other and share its reading; it is what a prompt that is too long loses, and
    /// `query_aware: false` cuts the cache at its end.
    pub context: Option<Template>,
    /// What a prompt that is too long loses: the `end` or the `middle` of its context, the `middle_of_prompt`, or the `start` of
    /// the prompt, as in the harness. The default is `end` with a context and `start` without one; `end` without one refuses a
    /// prompt that is too long.
    pub cut: Option<Cut>,
    /// Text after a context that lost its end: a column or a template.
    pub separator: Option<Template>,
    /// What the prompt ends with to open the answer: a column or a template. It is left out inside a chat template, which opens
    /// the answer itself.
    pub answer_header: Option<Template>,
    /// Tokens of prompt and answer together, where a sweep does not say it.
    #[schemars(range(min = 2, max = u32::MAX))]
    pub length: Option<u32>,
    /// Tokens of prompt and answer of a row, where rows differ: a column or a template, over `length` and that of a sweep.
    pub row_length: Option<Template>,
    /// The name of a row: a column or a template. The default is its number in the file.
    pub name: Option<Template>,
    /// Rows of one cluster depend on each other, such as questions about one text: a column or a template. The default is the
    /// context, or else the row itself.
    pub cluster: Option<Template>,
    /// Whether a cluster is named after its first row; the rows of several files that are measured together share clusters.
    pub first_row_names_cluster: bool,
    /// Parts of the rows that reports show by themselves: a name and a column or template each. A list gives
    /// several of one name, and an empty text none.
    pub slices: BTreeMap<String, Template>,
    /// An answer that needs no reading, for comparison.
    pub trivial: Option<Trivial>,
    /// The most tokens of a row's answer: a column or a template. The default, and that of an empty text, is the `max_gen_toks` of
    /// `generation_kwargs`.
    pub max_gen_toks: Option<Template>,
    /// The text whose words and bytes perplexities are of: a column or a template. The default is the target.
    pub counted: Option<Template>,
    /// The code that makes the rows, where they are in no plain file: its name, or the name and its options.
    pub rows: Option<Value>,
    /// Words after which the likelihood of each of `doc_to_choice` is compared, beside the answer that is written, for the metric
    /// `accuracy_likelihood`.
    pub likelihood_after: Option<String>,
    /// Whether long answers are the point: `cut_off` is then measured too.
    pub long_answers: bool,
    /// Whether prompts go through the model's chat template, if it has one; by default they do not, as in the harness.
    pub chat_template: bool,
    /// Rows are never inside a chat template, whatever the sweep says.
    #[serde(skip)]
    pub is_plain: bool,
}

impl CacheYaml {
    /// What a prompt loses that is too long.
    pub fn cut(&self) -> Cut {
        self.cut.unwrap_or(if self.context.is_some() { Cut::End } else { Cut::Start })
    }
}

/// An answer that needs no reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trivial {
    /// The target of most rows.
    Commonest,
    /// The target of most rows; none where no two rows share a target.
    CommonestShared,
    /// The beginning of the context, as long as the targets.
    FirstWords,
}

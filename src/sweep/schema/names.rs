//! The words of a sweep file and what each means, as schemas: policies, models and the small enumerations.
//!
//! The enumerations belong to modules without schemas, so their words are repeated here. A test compares them with those
//! that are read.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::eviction::Positions;
use crate::eviction::presets::PRESETS;
use crate::lm::source::{POCKET, RANDOM_TINY};
use crate::sweep::check::RESERVED;
use crate::yaml::schema::{HUB_PART, Named, one_of, setting};

pub(super) const SCORES: &[Named] = &[
    ("recency", "evicts the oldest (Window, StreamingLLM)"),
    ("last_attention", "evicts the entry that the newest query attends to least (TOVA)"),
    ("accumulated_attention", "evicts the entry that received least attention since it was added (H2O)"),
    ("key_norm", "evicts the entry with the largest key norm"),
    ("random", "evicts by a priority drawn when the entry is added: the survivors are a uniform sample"),
];
pub(super) const SCOPES: &[Named] = &[
    ("layer", "one decision per layer, over all heads"),
    ("head", "one decision per key-value head, over its group of query heads"),
];
pub(super) const POSITIONS: &[Named] = &[
    ("absolute", "the token's place in the text"),
    ("slot", "the entry's rank in the cache, as StreamingLLM does"),
    ("squeezed", "as absolute, but a gap g > 10 in the cache becomes ln ln g: the paper's rule for 70,000 tokens"),
];
pub(super) const WEIGHT_TYPES: &[Named] = &[
    ("auto", "as the checkpoint stores them"),
    ("f32", "32 bits"),
    ("f16", "16 bits, IEEE half precision"),
    ("bf16", "16 bits, bfloat16"),
];
pub(super) const ROPE_OVERRIDES: &[Named] = &[
    ("linear", "positions are divided by the factor"),
    ("ntk", "the base grows so that the slowest frequency is divided by the factor and the fastest stays"),
];
/// The entries of `policies:` that are not policies of eviction.
const NO_POLICIES: [&str; RESERVED.len()] = [
    "the unbounded cache",
    "the text in pieces of the cache's size, each with an empty cache: the paper's baseline",
];

/// The characters of a defined policy's name, and how many there may be.
pub(super) const OWN_POLICY: &str = "[A-Za-z0-9][A-Za-z0-9_.+-]*";
pub(super) const LONGEST_POLICY: usize = 40;

/// The rest of a model's path.
const NO_CONTROL: &str = r"[^\u0000-\u001f\u007f-\u009f]*";
/// A branch, tag, commit or refs/pr/N.
const REVISION: &str = "[A-Za-z0-9_+][A-Za-z0-9_.+-]*(/[A-Za-z0-9_+][A-Za-z0-9_.+-]*)*";

pub fn scores(_: &mut SchemaGenerator) -> Schema {
    one_of(SCORES)
}

pub fn scopes(_: &mut SchemaGenerator) -> Schema {
    one_of(SCOPES)
}

pub fn rope_overrides(_: &mut SchemaGenerator) -> Schema {
    one_of(ROPE_OVERRIDES)
}

pub fn positions(_: &mut SchemaGenerator) -> Schema {
    setting(POSITIONS, "absolute", false)
}

pub fn weight_types(_: &mut SchemaGenerator) -> Schema {
    setting(WEIGHT_TYPES, "auto", false)
}

/// Names that have a fixed meaning, before a `+`.
pub(super) fn fixed_policies() -> Vec<&'static str> {
    RESERVED.into_iter().chain(PRESETS.iter().map(|preset| preset.name)).collect()
}

/// The entries that need no definition, such as `full`, `tova`, `window+4` and `tova@squeezed`.
pub(super) fn preset_entries() -> Value {
    let named: Vec<(&str, &str)> = RESERVED
        .into_iter()
        .zip(NO_POLICIES)
        .chain(PRESETS.iter().map(|preset| (preset.name, preset.summary)))
        .collect();
    let (with_sinks, without): (Vec<_>, Vec<_>) = PRESETS.iter().partition(|preset| preset.sinks);
    let list = |presets: &[&crate::eviction::presets::Preset]| {
        presets.iter().map(|preset| preset.name).collect::<Vec<_>>().join("|")
    };
    let mut forms = vec![format!("({})(\\+(0|[1-9][0-9]{{0,8}}))?", list(&with_sinks))];
    if !without.is_empty() {
        forms.push(format!("({})", list(&without)));
    }
    json!([
        one_of(&named),
        {"type": "string", "pattern": format!("^({}){}$", forms.join("|"), own_positions())},
    ])
}

/// `@slot` after a policy's name.
fn own_positions() -> String {
    format!("(@({}))?", Positions::ALL.map(Positions::name).join("|"))
}

pub fn policies(_: &mut SchemaGenerator) -> Schema {
    let mut entries = preset_entries();
    if let Some(entries) = entries.as_array_mut() {
        // A name that the sweep defines; `rules` takes it back where nothing is defined.
        entries.push(json!({
            "type": "string",
            "pattern": format!("^{OWN_POLICY}{}$", own_positions()),
            "not": {"pattern": format!("^({})(\\+|@|$)", fixed_policies().join("|"))},
        }));
    }
    json_schema!({"type": "array", "items": {"anyOf": entries}, "minItems": 1, "uniqueItems": true})
}

pub fn models(_: &mut SchemaGenerator) -> Schema {
    let named =
        [(POCKET, "a small trained model in the program"), (RANDOM_TINY, "a tiny random model made from a seed")];
    json_schema!({
        "anyOf": [
            one_of(&named),
            {
                "type": "string",
                "description": "random weights of a stated shape: hidden size, layers, attention heads, key-value heads if \
                                they are fewer, MLP size, vocabulary; -s32: attention as many times as sharp",
                "pattern": "^random(-[halkfvs][0-9]+){5,7}$",
                "examples": ["random-h512-l8-a8-k2-f1408-v8000"],
            },
            {
                "type": "string",
                "description": "a folder with config.json, *.safetensors and tokenizer.json",
                "pattern": format!("^([/.]{NO_CONTROL}|~(/{NO_CONTROL})?)$"),
                "examples": ["./my-model"],
            },
            {
                "type": "string",
                "description": "a repository of the hub, at a branch, tag or commit",
                "pattern": format!("^{HUB_PART}/{HUB_PART}(@{REVISION})?$"),
                "examples": ["meta-llama/Llama-2-7b-hf@main"],
            },
        ],
    })
}

//! Words of a sweep file and what each means, as schemas: policies, models, data sets and the small enumerations.
//!
//! The words of scores, scopes and positions come from `eviction`'s tables. Other enumerations belong to modules that know no
//! schema, so their words are written here once more; a test compares them with what is really read.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::eviction::presets::PRESETS;
use crate::eviction::{Keyword, POSITIONS, SCOPES, SCORES};
use crate::lm::source::{POCKET, RANDOM_TINY};
use crate::sweep::check::RESERVED;
use crate::task::{EMBEDDED, EMBEDDED_QUESTIONS, RANDOM_WORDS};

/// A word and what it means.
type Named = (&'static str, &'static str);

/// The words of a table of `eviction`.
pub(super) fn words<T>(table: &[Keyword<T>]) -> Vec<Named> {
    table.iter().map(|keyword| (keyword.name, keyword.meaning)).collect()
}

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
pub(super) const SPLITS: &[Named] =
    &[("validation", "called dev in the original releases"), ("test", "the test set")];
pub(super) const PROMPTS: &[Named] = &[
    ("zeroscrolls", "ZeroSCROLLS' own: the instruction first, then the document under a header"),
    ("paper", "the paper's: the document first, then the instruction"),
];
pub(super) const PREFILLS: &[Named] = &[
    ("stream", "the prompt goes through the small cache token by token, as the paper defines it"),
    ("one_shot", "the prompt is read whole and the cache cut once, as the paper's code does"),
];
pub(super) const TAILS: &[Named] = &[("drop", "it is left out"), ("keep", "it is a sample of its own")];

/// Entries of `policies:` that no cache size makes bounded, or that evict nobody.
const NO_POLICIES: [&str; RESERVED.len()] = [
    "the unbounded cache",
    "the text in pieces of the cache's size, each with an empty cache: the paper's baseline",
];

/// Characters of a policy's own name, and how many there may be.
pub(super) const OWN_POLICY: &str = "[A-Za-z0-9][A-Za-z0-9_.+-]*";
pub(super) const LONGEST_POLICY: usize = 40;

/// A path as a data set or a model may be named by.
const NO_CONTROL: &str = r"[^\u0000-\u001f\u007f-\u009f]*";
/// Owner or name of a repository on the hub: no `-` or `.` at its ends, and neither doubled.
const HUB_PART: &str = r"[A-Za-z0-9_]+((-(\.-)*\.?|\.(-\.)*-?)[A-Za-z0-9_]+)*";
/// A branch, tag, commit or refs/pr/N.
const REVISION: &str = "[A-Za-z0-9_+][A-Za-z0-9_.+-]*(/[A-Za-z0-9_+][A-Za-z0-9_.+-]*)*";

/// A text that is one of some words. `enumDescriptions` is understood by VS Code alone, and passed over by others.
fn one_of(names: &[Named]) -> Schema {
    let (words, meanings): (Vec<_>, Vec<_>) = names.iter().copied().unzip();
    json_schema!({"type": "string", "enum": words, "enumDescriptions": meanings})
}

/// The same by default `default`; `null` is that too where it is `optional`.
fn setting(names: &[Named], default: &str, optional: bool) -> Schema {
    let mut words: Vec<Value> = names.iter().map(|(word, _)| json!(word)).collect();
    let mut meanings: Vec<&str> = names.iter().map(|(_, meaning)| *meaning).collect();
    let mut kinds = json!("string");
    if optional {
        words.push(Value::Null);
        meanings.push("the default");
        kinds = json!(["string", "null"]);
    }
    json_schema!({"type": kinds, "enum": words, "enumDescriptions": meanings, "default": default})
}

pub fn scores(_: &mut SchemaGenerator) -> Schema {
    one_of(&words(&SCORES))
}

pub fn scopes(_: &mut SchemaGenerator) -> Schema {
    one_of(&words(&SCOPES))
}

pub fn rope_overrides(_: &mut SchemaGenerator) -> Schema {
    one_of(ROPE_OVERRIDES)
}

pub fn positions(_: &mut SchemaGenerator) -> Schema {
    setting(&words(&POSITIONS), "absolute", false)
}

pub fn weight_types(_: &mut SchemaGenerator) -> Schema {
    setting(WEIGHT_TYPES, "auto", false)
}

pub fn splits(_: &mut SchemaGenerator) -> Schema {
    setting(SPLITS, "test", true)
}

pub fn prompts(_: &mut SchemaGenerator) -> Schema {
    setting(PROMPTS, "zeroscrolls", true)
}

pub fn prefills(_: &mut SchemaGenerator) -> Schema {
    setting(PREFILLS, "stream", false)
}

pub fn tails(_: &mut SchemaGenerator) -> Schema {
    setting(TAILS, "drop", false)
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
    let presets = PRESETS.map(|preset| preset.name).join("|");
    let form = format!("({presets})(\\+(0|[1-9][0-9]{{0,8}}))?");
    json!([
        one_of(&named),
        {"type": "string", "pattern": format!("^({form}){}$", own_positions())},
    ])
}

/// `@slot` after a policy's name.
fn own_positions() -> String {
    format!("(@({}))?", POSITIONS.map(|positions| positions.name).join("|"))
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

pub fn text_sources(_: &mut SchemaGenerator) -> Schema {
    data_sources(&[
        (EMBEDDED, "books of made-up worlds in the program, where recall of facts is measured too"),
        (EMBEDDED_QUESTIONS, "articles of the same worlds with questions and answers below them"),
        (RANDOM_WORDS, "random words made from a seed"),
    ])
}

pub fn question_sources(_: &mut SchemaGenerator) -> Schema {
    data_sources(&[(
        EMBEDDED,
        "articles or stories of made-up worlds in the program, with questions and references",
    )])
}

fn data_sources(named: &[Named]) -> Schema {
    json_schema!({
        "anyOf": [
            one_of(named),
            {
                "type": "string",
                "description": "a file or folder",
                "pattern": r"^(\./|\.\./|/|~/)|^\.\.?$|\.parquet$",
            },
            {
                "type": "string",
                "description": "a data set of the hub",
                "pattern": format!("^{HUB_PART}/{HUB_PART}$"),
            },
        ],
    })
}

pub fn memory(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": r"^([0-9]+\.?[0-9]*|\.[0-9]+)\s*(B|[kMGT]B|[KMGT]iB)$",
        "examples": ["8 GiB", "32 GB"],
    })
}

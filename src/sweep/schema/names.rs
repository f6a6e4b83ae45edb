//! The words of a sweep file and what each means, as schemas: policies, models and the small enumerations.
//!
//! The words of scores, scopes and positions come from `eviction`'s tables. The other enumerations belong to modules
//! without schemas, so their words are repeated here; a test compares them with those that are read.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::eviction::formula::{WORDS, calls};
use crate::eviction::presets::PRESETS;
use crate::eviction::{
    CacheOptions, FORMATS, Keyword, LOCAL_LAYERS, MOST_AT_ONCE, POSITIONS, SCHEDULES, SCOPES, SCORES,
};
use crate::lm::source::{POCKET, RANDOM_TINY};
use crate::yaml::schema::{Named, one_of, setting};

/// Lists the words of a table of `eviction`.
pub(super) fn words<T>(table: &[Keyword<T>]) -> Vec<Named> {
    table.iter().map(|keyword| (keyword.name, keyword.meaning)).collect()
}

pub(super) const WEIGHT_TYPES: &[Named] = &[
    ("auto", "as the checkpoint stores them"),
    ("f32", "32 bits"),
    ("f16", "16 bits, IEEE half precision"),
    ("bf16", "16 bits, bfloat16"),
];
pub(super) const ARITHMETICS: &[Named] = &[
    ("f32", "32 bits"),
    ("fast", "integers of 16 bits with a scale for each block of 32 columns; only on the processor"),
];
pub(super) const ROPE_OVERRIDES: &[Named] = &[
    ("linear", "positions are divided by the factor"),
    ("ntk", "the base grows so that the slowest frequency is divided by the factor and the fastest stays"),
];
pub(super) const POOLS: &[Named] = &[("mean", "the mean over the heads"), ("max", "the maximum over the heads")];
/// The entries of `policies:` that are not policies of eviction.
pub const RESERVED: [Named; 2] = [
    ("full", "the unbounded cache"),
    ("truncate", "the text in pieces of the cache's size, each with an empty cache: the paper's baseline"),
];

/// The characters of a defined policy's name.
const OWN_POLICY: &str = "[A-Za-z0-9][A-Za-z0-9_.+-]*";

pub fn scores(_: &mut SchemaGenerator) -> Schema {
    let meanings: Vec<_> = WORDS
        .iter()
        .map(|word| format!("{}: {}", word.name, word.meaning))
        .chain(calls().map(|function| format!("{}{}", function.name, function.meaning)))
        .collect();
    json_schema!({"anyOf": [
        one_of(&words(&SCORES)),
        {"type": "string", "description": meanings.join("\n\n"), "examples": ["ema(attention, 0.95)"]},
    ]})
}

pub fn pools(_: &mut SchemaGenerator) -> Schema {
    setting(POOLS, "mean", false)
}

pub fn scopes(_: &mut SchemaGenerator) -> Schema {
    one_of(&words(&SCOPES))
}

/// Schema of the layers that decide for all.
pub fn deciding_layers(_: &mut SchemaGenerator) -> Schema {
    let layer = json!({"anyOf": [{"enum": ["first", "last"]}, {"type": "integer", "minimum": 0, "maximum": u32::MAX - 1}]});
    json_schema!({"type": ["array", "null"], "items": layer, "minItems": 1, "default": null, "examples": [["first"], [0, 5, "last"]]})
}

pub fn rope_overrides(_: &mut SchemaGenerator) -> Schema {
    one_of(ROPE_OVERRIDES)
}

pub fn positions(_: &mut SchemaGenerator) -> Schema {
    setting(&words(&POSITIONS), "absolute", false)
}

/// Schema of a format: of keys and values, or of each.
pub fn formats(_: &mut SchemaGenerator) -> Schema {
    let each = format!("({})h?", FORMATS.map(|known| known.name).join("|"));
    let one = |of: &str| json!({"type": "string", "pattern": format!("^{each}$"), "description": format!("Format of {of}"), "default": "f32"});
    json_schema!({
        "anyOf": [
            one_of(&words(&FORMATS)),
            {"type": "string", "pattern": format!("^{each}(/{each})?$")},
            {"type": "object", "properties": {"keys": one("keys"), "values": one("values")}, "additionalProperties": false},
        ],
    })
}

pub fn local_layers(_: &mut SchemaGenerator) -> Schema {
    setting(&words(&LOCAL_LAYERS), "bounded", false)
}

/// Schema of an amount: tokens, or a percentage.
pub(super) fn amounts() -> Value {
    json!([
        {"type": "integer", "minimum": 0, "maximum": u32::MAX},
        {"type": "string", "pattern": "^(100|[1-9]?[0-9])%$"},
    ])
}

pub fn keep_first(_: &mut SchemaGenerator) -> Schema {
    let prompt = [("prompt", "no token of the prompt leaves, and the cache size is that of what follows it")];
    json_schema!({"anyOf": [{"anyOf": amounts()}, one_of(&prompt)], "default": 0, "examples": [4, "10%", "prompt"]})
}

/// Pattern of a share above 0 % and up to 100 %.
const SHARE: &str = "^(?!0+(\\.0+)?%)(100(\\.0{1,2})?|[1-9]?[0-9](\\.[0-9]{1,2})?)%$";

pub fn memory(_: &mut SchemaGenerator) -> Schema {
    let sizes = json!([
        {"type": "string", "pattern": SHARE},
        {"type": "string", "pattern": "^[0-9.]+ ?([kMGT]?B|[KMGT]iB)$"},
    ]);
    json_schema!({
        "type": ["array", "null"], "items": {"anyOf": sizes}, "uniqueItems": true, "default": [],
        "examples": [["50%", "25%", "12.5%"], ["2MB"]],
    })
}

pub fn cache_sizes(_: &mut SchemaGenerator) -> Schema {
    let sizes = json!([
        {"type": "integer", "minimum": 1, "maximum": u32::MAX},
        {"type": "string", "pattern": SHARE},
    ]);
    json_schema!({
        "type": ["array", "null"], "items": {"anyOf": sizes}, "uniqueItems": true, "default": [],
        "examples": [[64, 128, 256, 512, 1024, 2048, 4096], ["12.5%", "25%", "50%", "75%"]],
    })
}

pub fn contrasts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["array", "null"], "items": {"type": "string", "pattern": "^\\s*\\S+\\s+-\\s+\\S+\\s*$"}, "uniqueItems": true,
        "default": [], "examples": [["tova - window+4", "tova@cut - tova"]],
    })
}

/// Pattern of a number of entries that leave at once.
const AT_ONCE: &str = "[1-9][0-9]*";

/// Schema of the forms of a schedule.
fn schedule_forms() -> Value {
    let meanings: Vec<String> = SCHEDULES.iter().map(|form| format!("{}: {}", form.name, form.meaning)).collect();
    json!([
        {"type": "integer", "minimum": 1, "maximum": MOST_AT_ONCE},
        {"type": "string", "pattern": format!("^(cut|(cut\\+)?{AT_ONCE})$"), "description": meanings.join("\n\n"),
         "examples": SCHEDULES.map(|form| form.name)},
    ])
}

pub fn schedules(_: &mut SchemaGenerator) -> Schema {
    let mut forms = schedule_forms();
    if let Some(forms) = forms.as_array_mut() {
        forms.push(json!({"type": "null"}));
    }
    json_schema!({"anyOf": forms, "default": null})
}

pub fn weight_types(_: &mut SchemaGenerator) -> Schema {
    setting(WEIGHT_TYPES, "auto", false)
}

pub fn arithmetics(_: &mut SchemaGenerator) -> Schema {
    setting(ARITHMETICS, "f32", false)
}

fn named_policies() -> Vec<Named> {
    RESERVED.into_iter().chain(PRESETS.iter().map(|preset| (preset.name, preset.summary))).collect()
}

/// Lists names that have a fixed meaning, before a `+`. A sweep may define presets whose score has no name in its own way.
pub fn fixed_policies() -> Vec<&'static str> {
    let presets = PRESETS.iter().filter(|preset| preset.policy().is_ok_and(|policy| policy.score.has_name()));
    RESERVED.iter().map(|(name, _)| *name).chain(presets.map(|preset| preset.name)).collect()
}

/// Schema of policies that need no definition, such as `full`, `tova`, `window+4` and `tova@squeezed`.
pub(super) fn preset_entries() -> Value {
    let presets = PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join("|");
    let form = format!("({presets})(\\+(0|[1-9][0-9]{{0,8}}))?");
    json!([
        one_of(&named_policies()),
        {"type": "string", "pattern": format!("^({form}){}$", own_settings())},
    ])
}

/// Pattern of `@cut`, `@slot` or `@exempt` after a policy's name.
fn own_settings() -> String {
    let format = format!("({})h?", FORMATS.map(|known| known.name).join("|"));
    let options = CacheOptions::known_words().filter(|word| FORMATS.iter().all(|known| known.name != *word));
    let options = options.collect::<Vec<_>>().join("|");
    format!("(@({options}|{format}(/{format})?|cut|(cut\\+)?{AT_ONCE}))*")
}

pub fn policies(_: &mut SchemaGenerator) -> Schema {
    let mut entries = preset_entries();
    if let Some(entries) = entries.as_array_mut() {
        // A name that the sweep defines; `known_policies` takes it back where nothing is defined.
        entries.push(json!({"type": "string", "pattern": format!("^{OWN_POLICY}{}$", own_settings())}));
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
                "description": "a folder or a GGUF file, starting with ./, ../ or /; a repository of the hub, at a branch, tag or commit, \
                                or a GGUF file in it; or random weights of a stated shape",
                "pattern": "^([/.~].*|random-.*|[^/]+/.+)$",
                "examples": [
                    "./my-model", "./my-model.Q4_K_M.gguf", "meta-llama/Llama-2-7b-hf@main",
                    "random-h512-l8-a8-k2-f1408-v8000",
                ],
            },
        ],
    })
}

/// Adds to the schema that without definitions a policy can only be one of the presets.
pub fn known_policies(schema: &mut Schema) {
    let condition = json!({
        "if": {"not": {"required": ["define"]}},
        "then": {"properties": {"policies": {"items": {"anyOf": preset_entries()}}}},
    });
    schema.insert("allOf".into(), json!([condition]));
}

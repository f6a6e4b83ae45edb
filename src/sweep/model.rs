//! Which model a sweep names, before anything is looked up or loaded.
//!
//! Knows the spelling of a model's source, not where files lie: a folder's existence and a hub's answer are the
//! business of `lm`.

use serde::Deserialize;

/// The built-in random model: no files, for tests and smoke sweeps.
pub const RANDOM_TINY: &str = "random-tiny";

/// Type of the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// As the checkpoint stores them.
    #[default]
    Auto,
    F32,
    F16,
    Bf16,
}

impl Dtype {
    /// The name YAML and cell ids use.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Auto => "auto",
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        }
    }
}

/// One entry of `models:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelSpec {
    /// A folder (starting with `./`, `../` or `/`), `owner/name[@revision]`, or `random-tiny`.
    pub source: String,
    pub dtype: Dtype,
}

/// Whether a name is a path: only these beginnings are, so that `owner/name` is never a folder by accident.
pub(super) fn is_path(name: &str) -> bool {
    ["./", "../", "/"].iter().any(|start| name.starts_with(start)) || name == "." || name == ".."
}

/// Whether a name has the hub's form `owner/name`.
pub(super) fn is_hub_name(name: &str) -> bool {
    let word = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    matches!(name.split_once('/'), Some((owner, name)) if word(owner) && word(name))
}

/// Whether a source is one of the three forms a model may have.
pub(super) fn is_model_source(source: &str) -> bool {
    let (name, revision) = match source.split_once('@') {
        Some((name, revision)) => (name, Some(revision)),
        None => (source, None),
    };
    let revision_is_fine =
        revision.is_none_or(|r| !r.is_empty() && !r.contains(|c: char| c.is_whitespace() || c == '@'));
    source == RANDOM_TINY || is_path(source) || (is_hub_name(name) && revision_is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_three_forms() {
        for right in ["random-tiny", "./m", "../m", "/m", "01-ai/Yi-6B", "a/b@main", "a/b@refs/pr/1", "./a@b"] {
            assert!(is_model_source(right), "{right}");
        }
        for wrong in ["", "gpt2", "a/b/c", "a/", "..@", "a/b@", "a b/c", "random-tiny@1"] {
            assert!(!is_model_source(wrong), "{wrong}");
        }
    }
}

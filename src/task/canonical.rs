//! Settings as keys and values, from which the ids of cells and samples and the columns `generation` and `selection` follow.

use serde::Serialize;

/// Key and value of a setting.
pub type Setting = (&'static str, String);

/// Key of the setting whose value `auto` stands for what the model does.
pub const BOS: &str = "bos";

/// Writes a limit, or `all` where there is none.
pub fn limit_text(limit: Option<usize>) -> String {
    limit.map_or_else(|| "all".to_string(), |limit| limit.to_string())
}

/// Writes numbers as a JSON list. It has spaces, as in the column `selection`.
pub fn list_text(numbers: &[usize]) -> String {
    let texts: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("[{}]", texts.join(", "))
}

/// Writes a setting as columns show it: on one line, in ASCII.
pub fn shown((key, value): &Setting) -> Setting {
    (*key, value.escape_default().to_string())
}

/// Writes what ids are digests of.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("samples and requests have texts as keys")
}

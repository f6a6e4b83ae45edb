//! Settings as keys and values, from which the ids of cells and samples and the columns `generation` and `selection` follow.

/// Key and value of a setting.
pub type Setting = (&'static str, String);

/// Key of the setting whose value `auto` stands for what the model does.
pub const BOS: &str = "bos";

/// Writes a limit, or `all` where there is none.
pub fn limit_text(limit: Option<usize>) -> String {
    limit.map_or_else(|| "all".to_string(), |limit| limit.to_string())
}

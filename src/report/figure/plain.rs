//! What figures are drawn without, where they go into a paper that says it in its own words.

use std::str::FromStr;

use crate::format::did_you_mean;

/// The parts of figures that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain {
    /// The title above a chart that is alone; of several the titles say which is which, and stay.
    pub title: bool,
    /// The sentences below a figure.
    pub footnote: bool,
    /// Intervals.
    pub bands: bool,
    /// The distance to the full cache that the paper calls small.
    pub limit: bool,
}

impl Plain {
    /// All parts, as they are typed.
    pub const ALL: &'static str = "title,footnote,bands,limit";
}

impl FromStr for Plain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut plain = Self::default();
        for part in text.split(',') {
            match part.trim() {
                "title" => plain.title = true,
                "footnote" => plain.footnote = true,
                "bands" => plain.bands = true,
                "limit" => plain.limit = true,
                other => {
                    let near = did_you_mean(other, Self::ALL.split(','));
                    return Err(format!("figures have no part `{other}`; {near}use some of {}", Self::ALL));
                }
            }
        }
        Ok(plain)
    }
}

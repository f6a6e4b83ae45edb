//! Attention windows of a model's layers, as the column `windows` has them.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// Which entries a query of one layer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// All entries; `-` as text.
    Unlimited,
    /// Newest entries, so many; a number as text.
    Sliding(u32),
    /// Entries of its own piece of so many tokens; `pieces-of-512` as text.
    Pieces(u32),
    /// Entries of another layer, because this one has no cache; `none` as text.
    NoCache,
}

/// Windows of all layers, from the first to the last. As text `24 24 -`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows(pub Vec<Window>);

impl Windows {
    /// Sliding windows in tokens of the layers with a cache, `None` of a layer without one; nothing where a window does not slide.
    pub fn sliding(&self) -> Option<Vec<Option<u32>>> {
        let caches = self.0.iter().filter(|window| **window != Window::NoCache);
        let of_layer = |window: &Window| match window {
            Window::Unlimited => Some(None),
            Window::Sliding(tokens) => Some(Some(*tokens)),
            _ => None,
        };
        caches.map(of_layer).collect()
    }
}

const PIECES: &str = "pieces-of-";

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Window::Unlimited => f.write_str("-"),
            Window::Sliding(tokens) => write!(f, "{tokens}"),
            Window::Pieces(tokens) => write!(f, "{PIECES}{tokens}"),
            Window::NoCache => f.write_str("none"),
        }
    }
}

impl FromStr for Window {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        Ok(match (text, text.strip_prefix(PIECES)) {
            ("-", _) => Window::Unlimited,
            ("none", _) => Window::NoCache,
            (_, Some(tokens)) => Window::Pieces(tokens.parse()?),
            (tokens, None) => Window::Sliding(tokens.parse()?),
        })
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(Window::to_string).collect::<Vec<_>>().join(" "))
    }
}

impl FromStr for Windows {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.split(' ').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_as_they_are_written() {
        let text = "24 pieces-of-512 - none";
        let windows: Windows = text.parse().unwrap();
        assert_eq!(windows.0, [Window::Sliding(24), Window::Pieces(512), Window::Unlimited, Window::NoCache]);
        assert_eq!(windows.to_string(), text);
        assert!("24 x".parse::<Windows>().is_err() && "".parse::<Windows>().is_err());
    }

    #[test]
    fn only_windows_that_slide_are_known_by_their_tokens() {
        let sliding = |text: &str| text.parse::<Windows>().unwrap().sliding();
        assert_eq!(sliding("24 none -"), Some(vec![Some(24), None]));
        assert_eq!(sliding("24 pieces-of-512"), None);
    }
}

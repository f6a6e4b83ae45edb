//! Entries of every key-value head, as the rows of the metric `held_by_head` carry them.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// Entries of each key-value head: (layers)(heads). As text `4 12/8 8`, with a slash between layers and a space between heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldByHead(pub Vec<Vec<usize>>);

impl fmt::Display for HeldByHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_layer = |heads: &Vec<usize>| heads.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        f.write_str(&self.0.iter().map(of_layer).collect::<Vec<_>>().join("/"))
    }
}

impl FromStr for HeldByHead {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let of_layer = |heads: &str| heads.split(' ').map(str::parse).collect();
        text.split('/').map(of_layer).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_are_written() {
        let held = HeldByHead(vec![vec![4, 12], vec![8, 0]]);
        assert_eq!((held.to_string().as_str(), "4 12/8 0".parse()), ("4 12/8 0", Ok(held.clone())));
        assert!("4 x".parse::<HeldByHead>().is_err());
    }
}

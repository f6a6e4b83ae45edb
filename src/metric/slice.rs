//! The part of a sample that a number covers: a kind, and a name or a range.

use std::fmt;

use ecow::EcoString;
use serde::{Deserialize, Serialize};

/// A part of a sample: recall at a distance of 16 to 31 tokens, tokens of a class, the samples of a length and depth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// Kind of the slice, such as `distance` or `class`; a slice by two things has both, as in `length and depth`.
    pub kind: EcoString,
    /// Name of the slice if it has no number.
    pub name: Option<EcoString>,
    /// First and last number, both included; they are equal if the slice is one number.
    pub low: Option<u64>,
    pub high: Option<u64>,
    /// Number of the second kind. The first kind has a name or a range.
    pub second: Option<u64>,
}

/// Separator between the two kinds of a slice.
const AND: &str = " and ";

impl Slice {
    pub fn named(kind: &str, name: impl Into<EcoString>) -> Self {
        Self { kind: kind.into(), name: Some(name.into()), ..Self::default() }
    }

    pub fn number(kind: &str, number: u64) -> Self {
        Self::range(kind, number, number)
    }

    /// Slice from a first to a last number, both included.
    pub fn range(kind: &str, low: u64, high: u64) -> Self {
        Self { kind: kind.into(), low: Some(low), high: Some(high), ..Self::default() }
    }

    /// Slice by this thing and by a second one: `layer` 3 `and` `head` 1.
    #[must_use]
    pub fn and(self, kind: &str, second: u64) -> Self {
        Self { kind: format!("{}{AND}{kind}", self.kind).into(), second: Some(second), ..self }
    }

    /// Slice of a kind by a value as text: `16-31` is a range, `512` a number; with two kinds, `vt 4096` has a number for the
    /// second. Anything else is a name.
    pub fn of_value(kind: &str, value: &str) -> Self {
        if let (Some((first, _)), Some((value, second))) = (kind.split_once(AND), value.rsplit_once(' '))
            && let Ok(second) = second.parse()
        {
            return Self { kind: kind.into(), second: Some(second), ..Self::of_value(first, value) };
        }
        let (low, high) = value.split_once('-').unwrap_or((value, value));
        match (low.parse(), high.parse()) {
            (Ok(low), Ok(high)) => Self::range(kind, low, high),
            _ => Self::named(kind, value),
        }
    }

    /// Slice as text; empty for all of a sample.
    pub fn text(slice: Option<&Self>) -> String {
        slice.map_or_else(String::new, Self::to_string)
    }

    /// Whether the slice is of this one kind.
    pub fn is(&self, kind: &str) -> bool {
        self.kind == kind
    }

    /// The slice's number, if it is a single number.
    pub fn single(&self) -> Option<u64> {
        self.low.filter(|_| self.low == self.high)
    }

    /// Name of the slice among others of its kind: `16-31`, `512`, `home`, `vt, 4096`.
    pub fn value(&self) -> String {
        let first = match (&self.name, self.low, self.high) {
            (Some(name), ..) => name.to_string(),
            (None, Some(low), Some(high)) if low == high => low.to_string(),
            (None, Some(low), Some(high)) => format!("{low}-{high}"),
            _ => String::new(),
        };
        self.second.map_or(first.clone(), |second| format!("{first}, {second}"))
    }
}

impl Ord for Slice {
    /// Puts slices of one kind together, by their first number where they have one.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let place = |of: &Self| (of.kind.clone(), of.low.unwrap_or(u64::MAX), of.high, of.second);
        place(self).cmp(&place(other)).then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.split_once(AND), self.second) {
            (Some((first, other)), Some(second)) => {
                let value = Self { second: None, ..self.clone() }.value();
                write!(f, "{first}:{value} {other}:{second}")
            }
            _ => write!(f, "{}:{}", self.kind, self.value()),
        }
    }
}

/// Reads a slice as it is shown: `distance:16-31`, `length:512 depth:25`.
#[cfg(test)]
impl From<&str> for Slice {
    fn from(text: &str) -> Self {
        let (kind, value) = text.split_once(':').unwrap_or((text, ""));
        let second = value.rsplit_once(' ').and_then(|(value, second)| {
            let (kind, second) = second.split_once(':')?;
            Some((value, kind, second.parse().ok()?))
        });
        match second {
            Some((value, other, second)) => Self::of_value(kind, value).and(other, second),
            None => Self::of_value(kind, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_written_as_they_are_read() {
        let range = |kind, low, high| Slice::range(kind, low, high);
        for (text, expected) in [
            ("distance:16-31", range("distance", 16, 31)),
            ("piece:0-1023", range("piece", 0, 1023)),
            ("position:5", Slice::number("position", 5)),
            ("kind:yes_no", Slice::named("kind", "yes_no")),
            ("length:4-8k", Slice::named("length", "4-8k")),
            ("domain:Code Repository Understanding", Slice::named("domain", "Code Repository Understanding")),
            ("length:512 depth:25", Slice::number("length", 512).and("depth", 25)),
            ("task:niah_single_1 length:4096", Slice::named("task", "niah_single_1").and("length", 4096)),
            ("layer:3 head:1", Slice::number("layer", 3).and("head", 1)),
            ("subset and length:qasper 4-8k", Slice::named("subset and length", "qasper 4-8k")),
        ] {
            assert_eq!(Slice::from(text), expected);
            assert_eq!(expected.to_string(), text);
        }
        assert_eq!(Slice::of_value("length and depth", "512 25"), Slice::number("length", 512).and("depth", 25));
        assert_eq!(Slice::of_value("task and length", "vt 4096"), Slice::named("task", "vt").and("length", 4096));
    }

    #[test]
    fn slices_of_a_kind_are_in_the_order_of_their_numbers() {
        let mut slices = ["length:8192", "kind:b", "length:512", "kind:a", "length:all"].map(Slice::from);
        slices.sort();
        assert_eq!(
            slices.map(|slice| slice.to_string()),
            ["kind:a", "kind:b", "length:512", "length:8192", "length:all"]
        );
    }
}

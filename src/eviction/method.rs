//! How a cache computes a score: as a list of instructions, or in a faster way that one formula has.

use super::custom::CustomScore;

/// How a cache computes a score. All but `Instructions` and `Function` are faster ways to compute one formula each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// `position`: entries are in this order.
    Order,
    /// `attention`: the newest row.
    NewestAttention,
    /// `sum(attention)`: sums that an unbounded cache can keep too.
    SummedAttention,
    /// `-key_norm`: a priority that an entry is given when it joins, in f64.
    NormPriority,
    /// `random`: likewise.
    RandomPriority,
    /// Any other formula.
    Instructions,
    Function(CustomScore),
}

impl Method {
    /// For a formula in canonical form.
    pub(super) fn of_formula(text: &str) -> Method {
        match text {
            "position" => Method::Order,
            "attention" => Method::NewestAttention,
            "sum(attention)" => Method::SummedAttention,
            "-key_norm" => Method::NormPriority,
            "random" => Method::RandomPriority,
            _ => Method::Instructions,
        }
    }
}

//! How a cache computes a score: as a list of instructions, or in a faster way that one formula has.

use std::sync::LazyLock;

use super::custom::CustomScore;
use super::formula::canonical::{Expr, Pool, canonical};
use super::formula::parse::parse;

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
    /// The method for a formula in canonical form.
    pub(super) fn of_formula(formula: &Expr) -> Method {
        static FASTER: LazyLock<[(Expr, Method); 5]> = LazyLock::new(|| {
            let methods = [
                ("position", Method::Order),
                ("attention", Method::NewestAttention),
                ("sum(attention)", Method::SummedAttention),
                ("-key_norm", Method::NormPriority),
                ("random", Method::RandomPriority),
            ];
            methods.map(|(text, method)| (canonical(parse(text).expect("it is a formula"), Pool::Mean), method))
        });
        FASTER.iter().find(|(known, _)| known == formula).map_or(Method::Instructions, |(_, method)| *method)
    }
}

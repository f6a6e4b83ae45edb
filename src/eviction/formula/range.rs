//! Which numbers a formula can give, by interval arithmetic: so that one that never gives any is refused before anything is read.

use super::canonical::Expr;
use super::words::{Function, Word};

/// The least and the largest finite number that an expression may have, from those of its parts; `None` where it never has any: it is infinite
/// or not a number for every entry of every text.
pub(super) fn range(expr: &Expr) -> Option<(f64, f64)> {
    const ALL: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);
    const SHARE: (f64, f64) = (0.0, 1.0);
    const NOT_NEGATIVE: (f64, f64) = (0.0, f64::INFINITY);
    let (function, arguments) = match expr {
        Expr::Number(number) => return number.is_finite().then_some((*number, *number)),
        Expr::Text(_) => return Some(ALL),
        Expr::Word(word) => {
            return Some(match word {
                Word::Attention | Word::Random | Word::KeyRedundancy | Word::RereadAttention => SHARE,
                Word::Logit | Word::Gumbel => ALL,
                Word::KeySimilarity => (-1.0, 1.0),
                Word::Size => (1.0, f64::INFINITY),
                _ => NOT_NEGATIVE,
            });
        }
        Expr::Call(function, arguments) => (*function, arguments.as_slice()),
    };
    let of = |which: usize| range(&arguments[which]);
    let widest = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.max(b.1));
    match function {
        Function::Add => {
            let ranges: Option<Vec<_>> = arguments.iter().map(range).collect();
            Some(ranges?.into_iter().fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1)))
        }
        Function::Multiply => {
            let ranges: Option<Vec<_>> = arguments.iter().map(range).collect();
            ranges?.into_iter().reduce(product)
        }
        Function::Divide => match (of(0)?, of(1)?) {
            (_, (0.0, 0.0)) => None,
            (_, (low, high)) if low <= 0.0 && high >= 0.0 => Some(ALL),
            (above, (low, high)) => Some(product(above, (1.0 / high, 1.0 / low))),
        },
        // What is not a number is left out.
        Function::Min | Function::Max => match (of(0), of(1)) {
            (Some(a), Some(b)) if function == Function::Min => Some((a.0.min(b.0), a.1.min(b.1))),
            (Some(a), Some(b)) => Some((a.0.max(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        },
        Function::If => match (of(1), of(2)) {
            (Some(a), Some(b)) => Some(widest(a, b)),
            (a, b) => a.or(b),
        },
        Function::Abs => of(0).map(|(low, high)| (low.max(-high).max(0.0), high.max(-low))),
        Function::Log => of(0).filter(|(_, high)| *high > 0.0).map(|(low, high)| (low.max(0.0).ln(), high.ln())),
        Function::Exp => of(0).map(|(low, high)| (low.exp(), high.exp())),
        Function::Sqrt => {
            of(0).filter(|(_, high)| *high >= 0.0).map(|(low, high)| (low.max(0.0).sqrt(), high.sqrt()))
        }
        Function::Sum | Function::Ema | Function::Window => of(0).map(|(low, high)| {
            (if low < 0.0 { f64::NEG_INFINITY } else { low }, if high > 0.0 { f64::INFINITY } else { high })
        }),
        Function::Std => of(0).map(|_| NOT_NEGATIVE),
        Function::Softmax => of(0).map(|_| SHARE),
        Function::Share => of(0).map(|_| ALL),
        // Where no neighbour may leave it is 0.
        Function::Smooth => Some(widest(of(0).unwrap_or_default(), (0.0, 0.0))),
        Function::Mean
        | Function::Peak
        | Function::Pooled
        | Function::PooledMean
        | Function::PooledMax
        | Function::SmoothMax
        | Function::Block => of(0),
        Function::Count | Function::Rank => Some(NOT_NEGATIVE),
        Function::Less | Function::AtMost | Function::Equal | Function::Unequal | Function::TokenIn => Some(SHARE),
        Function::LagScore => Some(SHARE),
        Function::ExpectedAttention | Function::ExpectedAttentionMean => Some(NOT_NEGATIVE),
        Function::Dot | Function::RotatedDot | Function::PageBound => Some(ALL),
    }
}

fn product(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let times = |x: f64, y: f64| if x == 0.0 || y == 0.0 { 0.0 } else { x * y };
    let corners = [times(a.0, b.0), times(a.0, b.1), times(a.1, b.0), times(a.1, b.1)];
    (corners.into_iter().fold(f64::INFINITY, f64::min), corners.into_iter().fold(f64::NEG_INFINITY, f64::max))
}

//! Formulas as trees in one canonical form: equal formulas are equal trees, and have one text.
//!
//! Sums and products are flat and sorted, numbers are computed, and constant factors are moved out of what is linear. Only
//! the order of scores counts, so the factor and the constant of a whole formula are dropped.

use std::collections::BTreeMap;
use std::fmt;

use super::words::{Function, FunctionRow, Kind, Per, Word};

#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Number(f64),
    Word(Word),
    /// A text argument, which only functions of [`Kind::Own`] have; without quotes and escapes.
    Text(String),
    /// `Add` and `Multiply` have two or more arguments; a number is the first factor and the last term.
    Call(Function, Vec<Expr>),
}

/// How the values of a decision's query heads become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    #[default]
    Mean,
    Max,
}

/// Steps of a window.
const MOST_STEPS: f64 = 10_000.0;

const ZERO: Expr = Expr::Number(0.0);
const ONE: Expr = Expr::Number(1.0);

impl Expr {
    /// Whether it depends on numbers and `size` only. A rank never does: of equal entries the older has the lower one.
    pub fn is_constant(&self) -> bool {
        match self {
            Expr::Number(_) | Expr::Text(_) => true,
            Expr::Word(word) => *word == Word::Size,
            // The neighbours of the first and the last entry are fewer.
            Expr::Call(Function::Rank | Function::Smooth | Function::SmoothMax, _) => false,
            Expr::Call(function, _) if matches!(function.row().kind, Kind::Own(_)) => false,
            Expr::Call(function, arguments) => !function.remembers() && arguments.iter().all(Expr::is_constant),
        }
    }

    /// The value of arithmetic of numbers and `size`; `None` of what is more than that, or has a `size` that is not known.
    pub fn number_at(&self, size: Option<usize>) -> Option<f64> {
        match self {
            Expr::Number(number) => Some(*number),
            Expr::Word(Word::Size) => size.map(|size| size as f64),
            Expr::Word(_) | Expr::Text(_) => None,
            Expr::Call(function, arguments) => {
                let values: Option<Vec<f64>> = arguments.iter().map(|argument| argument.number_at(size)).collect();
                function.of_numbers(&values?)
            }
        }
    }

    /// Why a function that remembers steps cannot have its number in a cache of `size` entries, if it is known; `None` if it can.
    pub fn parameter_fault(&self, size: Option<usize>) -> Option<String> {
        let Expr::Call(function, arguments) = self else { return None };
        let [_, argument] = arguments.as_slice() else { return None };
        let FunctionRow { name, kind, arguments: (_, most), .. } = *function.row();
        if kind != Kind::Steps || most < 2 || (size.is_none() && argument.has(Word::Size)) {
            return None;
        }
        let Some(number) = argument.number_at(size) else {
            return Some(format!(
                "the number of `{name}` is the same for all entries and steps: numbers and `size`"
            ));
        };
        let (is_allowed, allowed) = match function {
            Function::Ema => ((0.0..=1.0).contains(&number), "a factor of `ema` lies between 0 and 1".to_owned()),
            _ => (
                number > 0.0 && number <= MOST_STEPS,
                format!("`{name}` takes at least 1 and at most {MOST_STEPS} steps"),
            ),
        };
        let own = size.map_or(String::new(), |size| format!(", and `{argument}` is {number} at a size of {size}"));
        (!is_allowed).then(|| allowed + &own)
    }

    /// Whether query heads have values of their own.
    pub fn is_per_head(&self) -> bool {
        match self {
            Expr::Number(_) | Expr::Text(_) => false,
            Expr::Word(word) => word.row().per != Per::Decision,
            Expr::Call(function, arguments) => match function.row().kind {
                Kind::Heads => false,
                Kind::Own(per) => per != Per::Decision,
                _ => arguments.iter().any(Expr::is_per_head),
            },
        }
    }

    /// Itself and all that is inside of it.
    pub fn parts(&self) -> Vec<&Expr> {
        let arguments: &[Expr] = if let Expr::Call(_, arguments) = self { arguments } else { &[] };
        std::iter::once(self).chain(arguments.iter().flat_map(Expr::parts)).collect()
    }

    /// Whether it has a word.
    pub fn has(&self, word: Word) -> bool {
        self.parts().contains(&&Expr::Word(word))
    }

    /// The functions that it calls.
    pub fn functions(&self) -> impl Iterator<Item = Function> {
        let function = |part: &Expr| if let Expr::Call(function, _) = part { Some(*function) } else { None };
        self.parts().into_iter().filter_map(function)
    }

    /// The tokens of a block, where its value is the same in all of a block (`Some(0)`: everywhere).
    pub fn block(&self) -> Option<usize> {
        let Expr::Call(function, arguments) = self else { return self.is_constant().then_some(0) };
        match (function, arguments.as_slice()) {
            (Function::Block, [_, Expr::Number(tokens)]) | (Function::PageBound, [Expr::Number(tokens)]) => {
                Some(*tokens as usize)
            }
            (function, arguments) if matches!(function.row().kind, Kind::Sign(_) | Kind::Entry | Kind::Heads) => {
                arguments.iter().map(Expr::block).try_fold(0, |block, own| match (block, own?) {
                    (0, own) | (own, 0) => Some(own),
                    (block, own) => (block == own).then_some(own),
                })
            }
            _ => self.is_constant().then_some(0),
        }
    }

    /// The constant factor, and the rest.
    fn coefficient(self) -> (f64, Expr) {
        match self {
            Expr::Number(number) => (number, ONE),
            Expr::Call(Function::Multiply, mut factors) => {
                let Expr::Number(number) = factors[0] else {
                    return (1.0, Expr::Call(Function::Multiply, factors));
                };
                factors.remove(0);
                let alone = factors.len() == 1;
                (number, if alone { factors.remove(0) } else { Expr::Call(Function::Multiply, factors) })
            }
            other => (1.0, other),
        }
    }
}

pub(super) fn add(terms: Vec<Expr>) -> Expr {
    let (mut constant, mut by_text) = (0.0, BTreeMap::<String, (f64, Expr)>::new());
    let flat = terms.into_iter().flat_map(|term| match term {
        Expr::Call(Function::Add, terms) => terms,
        term => vec![term],
    });
    for term in flat {
        match term.coefficient() {
            (number, ONE) => constant += number,
            (number, body) => by_text.entry(body.to_string()).or_insert((0.0, body)).0 += number,
        }
    }
    let terms = by_text.into_values().filter(|(number, _)| *number != 0.0);
    let mut terms: Vec<Expr> = terms.map(|(number, body)| multiply(vec![Expr::Number(number), body])).collect();
    if constant != 0.0 || terms.is_empty() {
        terms.push(Expr::Number(constant));
    }
    if terms.len() == 1 { terms.remove(0) } else { Expr::Call(Function::Add, terms) }
}

pub(super) fn multiply(factors: Vec<Expr>) -> Expr {
    let (mut constant, mut others) = (1.0, Vec::new());
    for factor in factors {
        let (number, body) = factor.coefficient();
        constant *= number;
        match body {
            ONE => {}
            Expr::Call(Function::Multiply, factors) => others.extend(factors),
            body => others.push(body),
        }
    }
    if constant == 0.0 || others.is_empty() {
        return Expr::Number(constant);
    }
    others.sort_by_cached_key(Expr::to_string);
    if constant != 1.0 {
        others.insert(0, Expr::Number(constant));
    }
    if others.len() == 1 { others.remove(0) } else { Expr::Call(Function::Multiply, others) }
}

pub(super) fn negate(expr: Expr) -> Expr {
    multiply(vec![Expr::Number(-1.0), expr])
}

pub(super) fn divide(above: Expr, below: Expr) -> Expr {
    let ((a, above), (b, below)) = (above.coefficient(), below.coefficient());
    if b == 0.0 {
        return Expr::Call(Function::Divide, vec![multiply(vec![Expr::Number(a), above]), ZERO]);
    }
    let quotient = match below {
        ONE => above,
        below if below == above => ONE,
        below => Expr::Call(Function::Divide, vec![above, below]),
    };
    multiply(vec![Expr::Number(a / b), quotient])
}

/// A call in canonical form.
pub(super) fn call(function: Function, mut arguments: Vec<Expr>) -> Expr {
    use Function::{Block, Count, Ema, Equal, If, Log, Max, Mean, Min, Smooth, Sqrt, Sum, Unequal, Window};
    let of_number = |argument: &Expr| if let Expr::Number(number) = argument { Some(*number) } else { None };
    let numbers: Option<Vec<f64>> = arguments.iter().map(of_number).collect();
    if let Some(value) = numbers.and_then(|numbers| function.of_numbers(&numbers)) {
        // The logarithm of 0 and the root of -1 stay as they are.
        if value.is_finite() || !matches!(function, Log | Sqrt) {
            return Expr::Number(value);
        }
    }
    let computed = match (function, arguments.as_slice()) {
        (Equal, [a, b]) if a == b => Some(ONE),
        (Unequal, [a, b]) if a == b => Some(ZERO),
        (If, [Expr::Number(a), b, c]) => Some(if *a == 0.0 { c.clone() } else { b.clone() }),
        (Ema, [x, ZERO]) => Some(x.clone()),
        (Ema, [x, ONE]) => Some(call(Sum, vec![x.clone()])),
        (Window, [x, Expr::Number(w)]) if *w <= 1.0 => Some(x.clone()),
        (Function::Peak, [x, Expr::Number(w)]) if *w <= 1.0 => Some(x.clone()),
        (Block, [x, ONE]) => Some(x.clone()),
        (Count, [x]) => Some(call(Sum, vec![call(Unequal, vec![x.clone(), ZERO])])),
        _ => None,
    };
    if let Some(computed) = computed {
        return computed;
    }
    match function {
        Min | Max | Equal | Unequal => {
            arguments.sort_by_cached_key(|argument| (argument.is_constant(), argument.to_string()));
        }
        Sum | Mean | Ema | Window | Smooth | Block => {
            let (number, body) = arguments.remove(0).coefficient();
            arguments.insert(0, body);
            return multiply(vec![Expr::Number(number), Expr::Call(function, arguments)]);
        }
        _ => {}
    }
    Expr::Call(function, arguments)
}

/// What is pooled over the query heads. The mean moves inside of everything linear, to where it costs least.
fn pooled(expr: Expr, pool: Pool) -> Expr {
    use Function::{Add, Block, Divide, Ema, Mean, Multiply, Smooth, Sum, Window};
    if !expr.is_per_head() {
        return expr;
    }
    let (number, expr) = expr.coefficient();
    let body = match (expr, pool) {
        (Expr::Call(Add, terms), Pool::Mean) => add(terms.into_iter().map(|term| pooled(term, pool)).collect()),
        (Expr::Call(Multiply, factors), Pool::Mean) => {
            let (own, shared): (Vec<_>, Vec<_>) = factors.into_iter().partition(Expr::is_per_head);
            let own = if own.len() == 1 {
                own.into_iter().map(|own| pooled(own, pool)).collect()
            } else {
                vec![Expr::Call(Function::PooledMean, vec![multiply(own)])]
            };
            multiply(own.into_iter().chain(shared).collect())
        }
        (Expr::Call(Divide, mut parts), Pool::Mean) if !parts[1].is_per_head() => {
            let above = pooled(parts.remove(0), pool);
            divide(above, parts.remove(0))
        }
        (Expr::Call(function @ (Sum | Mean | Ema | Window | Smooth | Block), mut arguments), Pool::Mean) => {
            arguments[0] = pooled(arguments[0].clone(), pool);
            call(function, arguments)
        }
        (expr, Pool::Mean) => Expr::Call(Function::PooledMean, vec![expr]),
        // The maximum of negative multiples is that of the smallest.
        (expr, Pool::Max) if number < 0.0 => {
            return Expr::Call(Function::PooledMax, vec![multiply(vec![Expr::Number(number), expr])]);
        }
        (expr, Pool::Max) => Expr::Call(Function::PooledMax, vec![expr]),
    };
    multiply(vec![Expr::Number(number), body])
}

/// The canonical form of a whole formula.
pub(in crate::eviction) fn canonical(expr: Expr, pool: Pool) -> Expr {
    let expr = match pooled(with_pool(expr, pool), pool) {
        Expr::Call(Function::Add, mut terms) => {
            terms.retain(|term| !term.is_constant());
            add(terms)
        }
        other => other,
    };
    match expr.coefficient() {
        (number, body) if number < 0.0 => negate(body),
        (_, body) => body,
    }
}

/// Every `pooled(x)` as `pool` says.
fn with_pool(expr: Expr, pool: Pool) -> Expr {
    let Expr::Call(function, arguments) = expr else { return expr };
    let mut arguments: Vec<_> = arguments.into_iter().map(|argument| with_pool(argument, pool)).collect();
    match function {
        Function::Pooled => pooled(arguments.remove(0), pool),
        Function::PooledMean => pooled(arguments.remove(0), Pool::Mean),
        Function::PooledMax => pooled(arguments.remove(0), Pool::Max),
        _ => rebuilt(function, arguments),
    }
}

/// The shortest text with this meaning under `pool: mean`.
pub(super) fn text(canonical_form: &Expr) -> String {
    let plain = without_mean(canonical_form.clone());
    let means_the_same = canonical(plain.clone(), Pool::Mean) == *canonical_form;
    match if means_the_same { plain } else { canonical_form.clone() } {
        // In rows of earlier versions `key_norm` alone is the name of its negative.
        word @ Expr::Word(Word::KeyNorm) => format!("({word})"),
        other => other.to_string(),
    }
}

fn without_mean(expr: Expr) -> Expr {
    match expr {
        Expr::Call(Function::PooledMean, mut arguments) => without_mean(arguments.remove(0)),
        Expr::Call(function, arguments) => rebuilt(function, arguments.into_iter().map(without_mean).collect()),
        other => other,
    }
}

/// A function of arguments that have changed.
fn rebuilt(function: Function, mut arguments: Vec<Expr>) -> Expr {
    match function {
        Function::Add => add(arguments),
        Function::Multiply => multiply(arguments),
        Function::Divide => {
            let above = arguments.remove(0);
            divide(above, arguments.remove(0))
        }
        _ => call(function, arguments),
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(self, 0))
    }
}

/// How strongly an expression binds: a comparison, a sum, a product, or a value.
fn binding(expr: &Expr) -> u8 {
    match expr {
        Expr::Number(number) if *number < 0.0 => 1,
        Expr::Call(function, _) => match function.row().kind {
            Kind::Sign(binding) => binding,
            _ => 3,
        },
        _ => 3,
    }
}

/// Its text, in parentheses if it binds less than `least`.
fn written(expr: &Expr, least: u8) -> String {
    if binding(expr) < least {
        return format!("({})", written(expr, 0));
    }
    match expr {
        Expr::Number(number) if *number != 0.0 && !(1e-5..1e15).contains(&number.abs()) => format!("{number:e}"),
        Expr::Number(number) => number.to_string(),
        Expr::Word(word) => word.row().name.to_owned(),
        Expr::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Expr::Call(Function::Add, terms) => {
            let mut terms: Vec<String> = terms.iter().map(|term| written(term, 1)).collect();
            let is_negative = |term: Option<&String>| term.is_some_and(|term| term.starts_with('-'));
            let ends_in_number =
                matches!(expr, Expr::Call(_, terms) if matches!(terms.last(), Some(Expr::Number(_))));
            // 1 - x rather than -x + 1.
            if ends_in_number && is_negative(terms.first()) && !is_negative(terms.last()) {
                terms.rotate_right(1);
            }
            let sum = terms.into_iter().reduce(|sum, term| match term.strip_prefix('-') {
                Some(positive) => format!("{sum} - {positive}"),
                None => format!("{sum} + {term}"),
            });
            sum.unwrap_or_default()
        }
        Expr::Call(Function::Multiply, factors) => {
            let (sign, factors) = match factors.as_slice() {
                [Expr::Number(-1.0), rest @ ..] => ("-", rest),
                factors => ("", factors),
            };
            let factors = factors.iter().enumerate().map(|factor| match factor {
                (0, number @ Expr::Number(_)) => written(number, 0),
                (0, factor) => written(factor, 2),
                (_, factor) => written(factor, 3),
            });
            sign.to_owned() + &factors.collect::<Vec<_>>().join(" * ")
        }
        Expr::Call(function, arguments) => {
            let FunctionRow { name, kind, .. } = *function.row();
            let (least, between) = match kind {
                Kind::Sign(binding) => (binding + 1, format!(" {name} ")),
                _ => (0, ", ".to_owned()),
            };
            let arguments = arguments.iter().map(|argument| written(argument, least)).collect::<Vec<_>>();
            let arguments = arguments.join(&between);
            if matches!(kind, Kind::Sign(_)) { arguments } else { format!("{name}({arguments})") }
        }
    }
}

/// Why a formula cannot rank entries; `None` if it can.
pub(super) fn fault(expr: &Expr) -> Option<&'static str> {
    let is_infinite = |part: &&Expr| matches!(part, Expr::Number(number) if !number.is_finite());
    let remembers_reread = |part: &&Expr| {
        matches!(part, Expr::Call(function, _) if function.remembers()) && part.has(Word::RereadAttention)
    };
    if expr.is_constant() {
        Some("the formula is the same for all entries")
    } else if expr.parts().iter().any(is_infinite) {
        Some("a number in the formula becomes infinite")
    } else if expr.parts().iter().any(remembers_reread) {
        Some("`reread_attention` is known only where the prompt is cut, and there is nothing to remember of it")
    } else {
        None
    }
}

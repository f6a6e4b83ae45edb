//! Scores written as formulas over what is known of an entry: `ema(attention, 0.95)`.
//!
//! A formula is parsed into a tree (`parse`), which has one canonical form (`canonical`); a cache compiles it into a list of
//! instructions over columns of f32 (`program`) and runs them row by row (`evaluate`). Crates for expressions evaluate one
//! number at a time, have no functions that remember, or do not say where in the text an error is.

pub(super) mod canonical;
mod evaluate;
mod loops;
pub(super) mod lowered;
pub(super) mod parse;
mod program;
mod range;
pub(super) mod statistics;
#[cfg(test)]
mod tests;
mod vectors;
pub(super) mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

pub use canonical::Pool;
pub use evaluate::ScoreCount;
#[cfg(test)]
pub(super) use evaluate::gumbel;
pub(super) use evaluate::{Row, Scorer, keep};
pub(super) use loops::Entries;
pub use lowered::{LoweredInstruction, LoweredScore};
pub use parse::FormulaError;
pub use vectors::FileVectors;
pub use words::{Function, WORDS, Word, calls};

pub use super::block::MeanRotation;
use super::method::Method;
use super::settings::{Heads, Scope};
use canonical::Expr;
use program::{Columns, Instruction};

/// A score over an entry, in canonical form. Equal formulas are one value; they live as long as the program, which has only
/// those of its sweep.
#[derive(Clone, Copy)]
pub struct Formula(&'static Parsed);

struct Parsed {
    text: String,
    expr: Expr,
    method: Method,
}

impl Formula {
    /// The formula that a text means, pooled over the query heads of a decision as `pool` says.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn new(text: &str, pool: Pool) -> Result<Formula, FormulaError> {
        static FORMULAS: Mutex<BTreeMap<String, &'static Parsed>> = Mutex::new(BTreeMap::new());
        let written = parse::parse(text)?;
        let never = range::range(&written).is_none().then_some("the formula gives no number for any entry");
        let expr = canonical::canonical(written, pool);
        if let Some(message) = canonical::fault(&expr).or(never) {
            return Err(FormulaError::new(text, 0..text.len(), message));
        }
        let canonical = canonical::text(&expr);
        let method = Method::of_formula(&expr);
        let mut formulas = FORMULAS.lock().unwrap_or_else(PoisonError::into_inner);
        let parsed = formulas.entry(canonical.clone());
        Ok(Formula(parsed.or_insert_with(|| Box::leak(Box::new(Parsed { text: canonical, expr, method })))))
    }

    /// The shortest formula with this meaning under `pool: mean`.
    pub fn text(self) -> &'static str {
        &self.0.text
    }

    pub(super) fn method(self) -> Method {
        self.0.method
    }

    pub(super) fn expr(self) -> &'static Expr {
        &self.0.expr
    }

    /// How many of the last queries its score needs in a cache of `size` entries; `None` if all, or what follows them.
    pub fn horizon(self, size: usize) -> Option<usize> {
        program::horizon(&program::compile(&self.0.expr, size, false))
    }

    /// Bytes that a cache of `size` entries remembers for each of them, for all decisions of a layer.
    pub fn remembered_bytes(self, size: usize, heads: Heads, scope: Scope) -> usize {
        let (members, per_kv) = (heads.of_group(scope, 0).len(), heads.per_kv_head());
        let of = |instruction: Instruction| {
            let Columns { kept, totals, .. } = instruction.columns(members, per_kv);
            kept * size_of::<f32>() + totals * size_of::<f64>()
        };
        // The scores themselves, of a prompt that is cut.
        let all: usize = program::compile(&self.0.expr, size, false).into_iter().map(of).sum();
        heads.groups(scope) * (all + size_of::<f32>())
    }

    /// The vectors that it multiplies keys with.
    pub fn vectors(self) -> Vec<Result<&'static FileVectors, String>> {
        let vectors = |part: &Expr| match part {
            Expr::Call(Function::Dot | Function::RotatedDot, arguments) => Some(FileVectors::of(arguments)),
            _ => None,
        };
        self.0.expr.parts().into_iter().filter_map(vectors).collect()
    }
}

impl PartialEq for Formula {
    fn eq(&self, other: &Formula) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Formula {}

impl Hash for Formula {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Formula({})", self.text())
    }
}

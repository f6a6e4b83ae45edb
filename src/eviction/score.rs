//! Every score: its name or its formula, and what it needs to know. How a cache ranks its entries by one is in `scoring`.

use std::cmp::Ordering;

use super::custom::CustomScore;
use super::formula::canonical::Expr;
use super::formula::{Formula, FormulaError, Function, Pool, Word};
use super::method::Method;
use super::settings::{Heads, Keyword, Scope, keyword};

/// What ranks the entries of a full cache. The entry with the lowest score is evicted, the oldest of equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Score {
    Formula(Formula),
    /// What a function computes.
    Custom(CustomScore),
}

/// The formulas that have a name, under which they are in rows; in canonical form.
pub const SCORES: [Keyword<&str>; 5] = [
    keyword("position", "recency", "evicts the oldest entry (Window, StreamingLLM)"),
    keyword("attention", "last_attention", "evicts the entry to which the newest query attends least (TOVA)"),
    keyword(
        "sum(attention)",
        "accumulated_attention",
        "evicts the entry that has received least attention since it was added (H2O)",
    ),
    keyword("-key_norm", "-key_norm", "evicts the entry whose key has the largest L2 norm"),
    keyword(
        "random",
        "random",
        "evicts by a priority drawn when an entry is added, so that the survivors are a uniform sample",
    ),
];

impl Score {
    /// The score of a name or a formula, pooled over the query heads of a decision.
    ///
    /// # Errors
    /// What is wrong in the formula.
    pub fn new(text: &str, pool: Pool) -> Result<Score, FormulaError> {
        let named = SCORES.iter().find(|score| score.name == text.trim());
        Formula::new(named.map_or(text, |score| score.value), pool).map(Score::Formula)
    }

    /// The score that the column `score` of a row says; `None` for a function, and for rows of other versions. Rows up to
    /// engine 6 have `key_norm` for `-key_norm`; now `(key_norm)` is the word itself.
    pub fn of_row(column: &str) -> Option<Score> {
        Score::new(if column == "key_norm" { "-key_norm" } else { column }, Pool::Mean).ok()
    }

    /// The row of the table, if it has a name.
    fn named(self) -> Option<Keyword<&'static str>> {
        let Score::Formula(formula) = self else { return None };
        SCORES.into_iter().find(|named| named.value == formula.text())
    }

    /// Whether it is one of [`SCORES`].
    pub fn has_name(self) -> bool {
        self.named().is_some()
    }

    /// The name, or the formula, as rows have it.
    pub fn name(self) -> &'static str {
        self.named().map_or(self.formula(), |named| named.name)
    }

    /// The text of its formula, or the id of its function.
    pub fn formula(self) -> &'static str {
        match self {
            Score::Formula(formula) => formula.text(),
            Score::Custom(score) => score.id(),
        }
    }

    /// The tree of its formula; `None` for a function.
    fn expr(self) -> Option<&'static Expr> {
        if let Score::Formula(formula) = self { Some(formula.expr()) } else { None }
    }

    pub(super) fn method(self) -> Method {
        match self {
            Score::Formula(formula) => formula.method(),
            Score::Custom(score) => Method::Function(score),
        }
    }

    /// Whether it needs the attention of the whole text.
    pub fn reads_future(self) -> bool {
        self.has(Word::FutureAttention)
    }

    /// Whether it reads values of heads, not only their norms, or what the output matrix makes of them. A function may.
    pub fn reads_values(self) -> bool {
        let words = [Word::OutputShift, Word::ProjectedValueNorm];
        self.is_function() || words.into_iter().any(|word| self.has(word)) || self.calls(Function::LagScore)
    }

    /// Whether a function computes it.
    pub fn is_function(self) -> bool {
        matches!(self, Score::Custom(_))
    }

    /// Whether it is `random`, so that a uniform sample of the text survives.
    pub fn is_random(self) -> bool {
        self.method() == Method::RandomPriority
    }

    /// Whether it draws numbers, which depend on the seed.
    pub fn draws(self) -> bool {
        self.has(Word::Random) || self.has(Word::Gumbel)
    }

    /// Whether it is the sum of attention that entries have received, which an unbounded cache can keep for it.
    pub fn sums_attention(self) -> bool {
        self.method() == Method::SummedAttention
    }

    /// Whether it depends on the cache's size.
    pub fn depends_on_size(self) -> bool {
        self.has(Word::Size)
    }

    /// Whether it depends on which entries are protected.
    pub fn depends_on_protection(self) -> bool {
        self.expr().is_some_and(|expr| expr.functions().any(Function::depends_on_protection))
    }

    /// Whether its formula has a word.
    pub fn has(self, word: Word) -> bool {
        self.expr().is_some_and(|expr| expr.has(word))
    }

    /// Whether its formula calls a function.
    pub fn calls(self, function: Function) -> bool {
        self.expr().is_some_and(|expr| expr.functions().any(|own| own == function))
    }

    /// Refuses vectors of files that a model does not fit.
    ///
    /// # Errors
    /// Another number of layers, heads or dimensions, and a formula that was read from rows.
    pub fn check_vectors(self, layers: usize, heads: Heads, dim: usize) -> anyhow::Result<()> {
        let Score::Formula(formula) = self else { return Ok(()) };
        for vectors in formula.vectors() {
            let checked = vectors.and_then(|vectors| vectors.check(layers, heads, dim));
            checked.map_err(|error| anyhow::anyhow!("its score cannot be used: {error}"))?;
        }
        Ok(())
    }

    /// Refuses numbers of its functions that a cache of `size` entries makes what they cannot be.
    ///
    /// # Errors
    /// The function, its number at this size, and the numbers that it can have.
    pub fn check_size(self, size: usize) -> anyhow::Result<()> {
        let fault = |expr: &Expr| expr.parts().into_iter().find_map(|part| part.parameter_fault(Some(size)));
        match self.expr().and_then(fault) {
            Some(fault) => anyhow::bail!("in its score `{}` {fault}", self.formula()),
            None => Ok(()),
        }
    }

    /// How many of a prompt's last queries tell its scores in a cache of `size` entries; `None` if all are needed, or what follows.
    pub fn horizon(self, size: usize) -> Option<usize> {
        match self {
            Score::Formula(formula) => formula.horizon(size),
            Score::Custom(_) => None,
        }
    }

    /// Bytes that a layer's cache remembers for every entry, beside its key and value, in a cache of `size` entries; of a function's
    /// prompt until it is called.
    pub fn remembered_bytes(
        self,
        size: usize,
        heads: Heads,
        scope: Scope,
        (dim, hidden): (usize, usize),
    ) -> usize {
        match self {
            Score::Formula(formula) => formula.remembered_bytes(size, heads, scope),
            Score::Custom(_) => (heads.heads * dim + hidden) * size_of::<f32>(),
        }
    }

    /// The tokens of a block, if whole blocks leave: its score is the same in all of a block.
    pub fn block(self) -> Option<usize> {
        self.expr()?.block().filter(|tokens| *tokens > 0)
    }

    /// The tokens of a page whose keys it bounds, if it does.
    pub fn page(self) -> Option<usize> {
        self.pages().next()
    }

    /// The tokens of every kind of page whose keys it bounds.
    pub fn pages(self) -> impl Iterator<Item = usize> {
        let parts = self.expr().into_iter().flat_map(Expr::parts);
        parts.filter_map(|part| match part {
            Expr::Call(Function::PageBound, tokens) => {
                tokens.first()?.number_at(None).map(|tokens| tokens as usize)
            }
            _ => None,
        })
    }

    /// Whether a bounded cache can continue where an unbounded one has read the beginning of the text. Others need what that
    /// does not keep.
    pub fn shares_prefix(self) -> bool {
        !matches!(self.method(), Method::NormPriority | Method::Instructions | Method::Function(_))
    }

    /// Whether decisions compare key norms. Norms of like tokens differ in the eighth digit, so keys must be
    /// computed in f64. (Where the least attended entry leaves, it hardly matters which of two nearly equal ones
    /// does.)
    pub fn compares_norms(self) -> bool {
        self.method() == Method::NormPriority
    }

    /// The share of themselves by which priorities differ at least that are not equal.
    pub(super) fn same_priority(self) -> f64 {
        if self.compares_norms() { SAME_NORM } else { 0.0 }
    }
}

/// The order of two scores, of which the lower leaves first: what is not a number counts as infinity, and zeros of both signs are equal.
pub(super) fn rank(a: f64, b: f64) -> Ordering {
    let value = |score: f64| if score.is_nan() { f64::INFINITY } else { score + 0.0 };
    value(a).total_cmp(&value(b))
}

/// Two key norms closer than this share of themselves count as equal. Equal tokens in equal surroundings have
/// equal norms in exact arithmetic; attention in f32 makes them differ by a few units of the ninth digit.
pub(super) const SAME_NORM: f64 = 2e-8;

/// A number in [0, 1) that depends only on the arguments, so that chunking cannot change a draw.
pub(super) fn uniform(salt: u64, group: u64, position: u64) -> f64 {
    let bits = mix(mix(mix(salt) ^ group) ^ position);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The mixer of SplitMix64 (Steele, Lea, Flood 2014).
pub(super) fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

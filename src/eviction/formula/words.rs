//! The words and functions of formulas, and what each means.

use crate::eviction::settings::{Keyword, keyword};

/// What is known of an entry at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Attention,
    Logit,
    Age,
    Position,
    KeyNorm,
    ValueNorm,
    ValueNorm2,
    OutputShift,
    KeySimilarity,
    FutureAttention,
    Random,
    Gumbel,
    Size,
}

/// Every word.
pub const WORDS: &[Keyword<Word>] = &[
    keyword(Word::Attention, "attention", "attention from the newest query, of each query head"),
    keyword(Word::Logit, "logit", "the same before the softmax: q·k, scaled"),
    keyword(Word::Age, "age", "tokens read since the entry joined; the newest has 0"),
    keyword(Word::Position, "position", "the token's place in the text, from 0"),
    keyword(Word::KeyNorm, "key_norm", "L2 norm of the key"),
    keyword(Word::ValueNorm, "value_norm", "L1 norm of the value"),
    keyword(Word::ValueNorm2, "value_norm2", "L2 norm of the value"),
    keyword(
        Word::OutputShift,
        "output_shift",
        "L2 distance of the value from the head's output at this step, before the eviction",
    ),
    keyword(
        Word::KeySimilarity,
        "key_similarity",
        "cosine of the key, as it is rotated now, with the mean of the normalised keys in the cache",
    ),
    keyword(
        Word::FutureAttention,
        "future_attention",
        "attention that all later queries of the text pay under the full cache, mean over the decision's query heads; \
         perplexity only",
    ),
    keyword(Word::Random, "random", "a number from 0 to 1, drawn when the entry joins"),
    keyword(Word::Gumbel, "gumbel", "Gumbel noise, drawn at every step for every query head"),
    keyword(Word::Size, "size", "the cache size"),
];

/// What makes one value of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Add,
    Multiply,
    Divide,
    Less,
    AtMost,
    Equal,
    Unequal,
    If,
    Min,
    Max,
    Abs,
    Log,
    Exp,
    Sqrt,
    Sum,
    Mean,
    Std,
    Ema,
    Peak,
    Window,
    Count,
    Rank,
    Softmax,
    Share,
    Pooled,
    PooledMean,
    PooledMax,
}

/// Every function that is written as a call. The meaning starts with its arguments.
pub const FUNCTIONS: &[Keyword<Function>] = &[
    keyword(Function::If, "if", "(c, a, b): a where c is not 0, otherwise b"),
    keyword(Function::Min, "min", "(a, b): the smaller"),
    keyword(Function::Max, "max", "(a, b): the larger"),
    keyword(Function::Abs, "abs", "(x): without its sign"),
    keyword(Function::Log, "log", "(x): the natural logarithm"),
    keyword(Function::Exp, "exp", "(x): e to the power of x"),
    keyword(Function::Sqrt, "sqrt", "(x): the square root"),
    keyword(Function::Sum, "sum", "(x): the sum over all steps since the entry joined, its own included"),
    keyword(Function::Mean, "mean", "(x): the mean over these steps"),
    keyword(Function::Std, "std", "(x): the standard deviation over these steps"),
    keyword(Function::Ema, "ema", "(x, g): S, where S <- g S + x at every step; g = 1 is the sum"),
    keyword(Function::Peak, "peak", "(x) or (x, w): the largest of all steps, or of the last w"),
    keyword(Function::Window, "window", "(x, w): the sum over the last w steps"),
    keyword(Function::Count, "count", "(x): the number of steps at which x was not 0"),
    keyword(
        Function::Rank,
        "rank",
        "(x): how many entries that may be evicted have a lower x, or the same and are older",
    ),
    keyword(Function::Softmax, "softmax", "(x): over the entries in the cache"),
    keyword(Function::Share, "share", "(x): x divided by its sum over the entries in the cache"),
    keyword(
        Function::Pooled,
        "pooled",
        "(x): the mean or maximum over the query heads of the decision, as `pool` says",
    ),
    keyword(Function::PooledMean, "pooled_mean", "(x): the mean over these heads"),
    keyword(Function::PooledMax, "pooled_max", "(x): the maximum over these heads"),
];

impl Word {
    /// Whether query heads have values of their own.
    pub(super) fn is_per_head(self) -> bool {
        !matches!(self, Word::Age | Word::Position | Word::FutureAttention | Word::Random | Word::Size)
    }
}

impl Function {
    /// The fewest and the most arguments.
    pub(super) fn arguments(self) -> (usize, usize) {
        match self {
            Function::If => (3, 3),
            Function::Min | Function::Max | Function::Ema | Function::Window => (2, 2),
            Function::Peak => (1, 2),
            _ => (1, 1),
        }
    }

    /// Whether it remembers earlier steps. Its second argument is then a number.
    pub(super) fn remembers(self) -> bool {
        use Function::{Count, Ema, Mean, Peak, Std, Sum, Window};
        matches!(self, Sum | Mean | Std | Ema | Peak | Window | Count)
    }
}

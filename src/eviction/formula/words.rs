//! The words and functions of formulas, each a row of a table: what parser, documentation, schema, evaluation and kernels
//! share.
//!
//! A kernel knows an operation by its place: words first, then functions (`lm/gpu/kernels/params.h`). It knows those up to
//! `LAST_WORD` and `LAST_FUNCTION` of `lowered`; new ones come after them.

/// What is known of an entry at a step. In the order of [`WORDS`].
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
    ProjectedValueNorm,
    KeyRedundancy,
    RereadAttention,
}

/// What has a value of its own for a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    QueryHead,
    KeyValueHead,
    /// All heads of a decision have one.
    Decision,
}

/// A word, its meaning, and where its values are.
#[derive(Clone, Copy, Debug)]
pub struct WordRow {
    pub word: Word,
    pub name: &'static str,
    pub meaning: &'static str,
    per: Per,
    /// Whether it is known when an entry joins, or when the prompt is cut, and never changes.
    is_fixed: bool,
}

const fn each_step(word: Word, name: &'static str, per: Per, meaning: &'static str) -> WordRow {
    WordRow { word, name, meaning, per, is_fixed: false }
}

const fn fixed(word: Word, name: &'static str, per: Per, meaning: &'static str) -> WordRow {
    WordRow { word, name, meaning, per, is_fixed: true }
}

/// Every word.
pub const WORDS: &[WordRow] = &[
    each_step(Word::Attention, "attention", Per::QueryHead, "attention from the newest query, of each query head"),
    each_step(Word::Logit, "logit", Per::QueryHead, "the same before the softmax: q·k, scaled"),
    each_step(Word::Age, "age", Per::Decision, "tokens read since the entry joined; the newest has 0"),
    each_step(Word::Position, "position", Per::Decision, "the token's place in the text, from 0"),
    fixed(Word::KeyNorm, "key_norm", Per::KeyValueHead, "L2 norm of the key"),
    fixed(Word::ValueNorm, "value_norm", Per::KeyValueHead, "L1 norm of the value"),
    fixed(Word::ValueNorm2, "value_norm2", Per::KeyValueHead, "L2 norm of the value"),
    each_step(
        Word::OutputShift,
        "output_shift",
        Per::QueryHead,
        "L2 distance of the value from the head's output at this step, before the eviction",
    ),
    each_step(
        Word::KeySimilarity,
        "key_similarity",
        Per::KeyValueHead,
        "cosine of the key, as it is rotated now, with the mean of the normalised keys in the cache",
    ),
    each_step(
        Word::FutureAttention,
        "future_attention",
        Per::Decision,
        "attention that all later queries of the text pay under the full cache, mean over the decision's query heads; \
         perplexity only",
    ),
    fixed(Word::Random, "random", Per::Decision, "a number from 0 to 1, drawn when the entry joins"),
    each_step(Word::Gumbel, "gumbel", Per::QueryHead, "Gumbel noise, drawn at every step for every query head"),
    fixed(Word::Size, "size", Per::Decision, "the cache size"),
    fixed(
        Word::ProjectedValueNorm,
        "projected_value_norm",
        Per::KeyValueHead,
        "L1 norm of the value times the output weights, mean over the query heads of the key-value head (CriticalKV)",
    ),
    each_step(
        Word::KeyRedundancy,
        "key_redundancy",
        Per::KeyValueHead,
        "softmax over the entries of each key's mean cosine with all keys in the cache; a key's last one above 0.5, or the oldest, \
         does not count (R-KV)",
    ),
    fixed(
        Word::RereadAttention,
        "reread_attention",
        Per::KeyValueHead,
        "the largest attention while the model is asked to repeat the prompt and reads it again, 2048 tokens at a time; over \
         those, what was read again, and the prompt's first 4; 0 after the prompt (KVzip)",
    ),
];

/// What makes one value of others. In the order of [`FUNCTIONS`].
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
    Smooth,
    SmoothMax,
    Block,
    ExpectedAttention,
    ExpectedAttentionMean,
    LagScore,
    Dot,
    RotatedDot,
    TokenIn,
}

/// What a function looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The values of one entry, written as a sign that binds so strongly: comparisons 0, sums 1, products 2.
    Sign(u8),
    /// The values of one entry, written as a call.
    Entry,
    /// An entry's values at this and earlier steps. A second argument is a number.
    Steps,
    /// All entries of the cache. A second argument is a number.
    Entries,
    /// All query heads of the decision.
    Heads,
    /// What an entry is, its arguments being numbers or texts.
    Own(Per),
}

/// A function and its meaning, which starts with its arguments.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRow {
    pub function: Function,
    /// The name, or the sign.
    pub name: &'static str,
    pub kind: Kind,
    /// The fewest and the most arguments.
    pub arguments: (usize, usize),
    pub meaning: &'static str,
}

const fn row(
    function: Function,
    name: &'static str,
    kind: Kind,
    arguments: (usize, usize),
    meaning: &'static str,
) -> FunctionRow {
    FunctionRow { function, name, kind, arguments, meaning }
}

const fn sign(function: Function, name: &'static str, binding: u8) -> FunctionRow {
    row(function, name, Kind::Sign(binding), (2, 2), "")
}

/// Every function, those that are written as a sign first.
pub const FUNCTIONS: &[FunctionRow] = &[
    sign(Function::Add, "+", 1),
    sign(Function::Multiply, "*", 2),
    sign(Function::Divide, "/", 2),
    sign(Function::Less, "<", 0),
    sign(Function::AtMost, "<=", 0),
    sign(Function::Equal, "==", 0),
    sign(Function::Unequal, "!=", 0),
    row(Function::If, "if", Kind::Entry, (3, 3), "(c, a, b): a where c is not 0, otherwise b"),
    row(Function::Min, "min", Kind::Entry, (2, 2), "(a, b): the smaller"),
    row(Function::Max, "max", Kind::Entry, (2, 2), "(a, b): the larger"),
    row(Function::Abs, "abs", Kind::Entry, (1, 1), "(x): without its sign"),
    row(Function::Log, "log", Kind::Entry, (1, 1), "(x): the natural logarithm"),
    row(Function::Exp, "exp", Kind::Entry, (1, 1), "(x): e to the power of x"),
    row(Function::Sqrt, "sqrt", Kind::Entry, (1, 1), "(x): the square root"),
    row(
        Function::Sum,
        "sum",
        Kind::Steps,
        (1, 1),
        "(x): the sum over all steps since the entry joined, its own included",
    ),
    row(Function::Mean, "mean", Kind::Steps, (1, 1), "(x): the mean over these steps"),
    row(Function::Std, "std", Kind::Steps, (1, 1), "(x): the standard deviation over these steps"),
    row(
        Function::Ema,
        "ema",
        Kind::Steps,
        (2, 2),
        "(x, g): S, where S <- g S + x at every step; g = 1 is the sum",
    ),
    row(Function::Peak, "peak", Kind::Steps, (1, 2), "(x) or (x, w): the largest of all steps, or of the last w"),
    row(Function::Window, "window", Kind::Steps, (2, 2), "(x, w): the sum over the last w steps"),
    row(Function::Count, "count", Kind::Steps, (1, 1), "(x): the number of steps at which x was not 0"),
    row(
        Function::Rank,
        "rank",
        Kind::Entries,
        (1, 1),
        "(x): how many entries that may be evicted have a lower x, or the same and are older",
    ),
    row(Function::Softmax, "softmax", Kind::Entries, (1, 1), "(x): over the entries in the cache"),
    row(
        Function::Share,
        "share",
        Kind::Entries,
        (1, 1),
        "(x): x divided by its sum over the entries in the cache",
    ),
    row(
        Function::Pooled,
        "pooled",
        Kind::Heads,
        (1, 1),
        "(x): the mean or maximum over the query heads of the decision, as `pool` says",
    ),
    row(Function::PooledMean, "pooled_mean", Kind::Heads, (1, 1), "(x): the mean over these heads"),
    row(Function::PooledMax, "pooled_max", Kind::Heads, (1, 1), "(x): the maximum over these heads"),
    row(
        Function::Smooth,
        "smooth",
        Kind::Entries,
        (2, 2),
        "(x, n): the sum of x over the n nearest entries in the cache, of those that may be evicted, divided by n (SnapKV)",
    ),
    row(Function::SmoothMax, "smooth_max", Kind::Entries, (2, 2), "(x, n): the largest x of the same entries"),
    row(
        Function::Block,
        "block",
        Kind::Entries,
        (2, 2),
        "(x, n): the mean of x over the entry's block of n consecutive tokens of the text; where the whole score is made of it, whole \
         blocks are evicted, and a cache may hold fewer entries than its size (ChunkKV)",
    ),
    row(
        Function::ExpectedAttention,
        "expected_attention",
        Kind::Own(Per::QueryHead),
        (1, 1),
        "(n): attention expected from the next n queries, by mean and covariance of those so far but the text's first 4; relative to \
         the entries that may be evicted",
    ),
    row(
        Function::ExpectedAttentionMean,
        "expected_attention_mean",
        Kind::Own(Per::QueryHead),
        (1, 1),
        "(n): the same by their mean alone",
    ),
    row(
        Function::LagScore,
        "lag_score",
        Kind::Own(Per::KeyValueHead),
        (1, 1),
        "(n): how much key and value differ from the next n entries, as a rank from 0 to 1 among n entries; 1 for the newest (LagKV)",
    ),
    row(
        Function::Dot,
        "dot",
        Kind::Own(Per::QueryHead),
        (2, 2),
        "(file, tensor): the key before rotation times a vector of the layer and head, of a safetensors file",
    ),
    row(
        Function::RotatedDot,
        "rotated_dot",
        Kind::Own(Per::QueryHead),
        (2, 2),
        "(file, tensor): the same of the key as it is rotated now (Q-Filters)",
    ),
    row(
        Function::TokenIn,
        "token_in",
        Kind::Own(Per::Decision),
        (1, 64),
        "(a, b, ...): 1 where the entry's token is one of these texts, such as \".\" or \"\\n\"; otherwise 0",
    ),
];

/// The functions that are written as calls.
pub fn calls() -> impl Iterator<Item = &'static FunctionRow> {
    FUNCTIONS.iter().filter(|row| !matches!(row.kind, Kind::Sign(_)))
}

impl Word {
    fn row(self) -> &'static WordRow {
        &WORDS[self as usize]
    }

    pub(super) fn name(self) -> &'static str {
        self.row().name
    }

    pub(super) fn per(self) -> Per {
        self.row().per
    }

    pub(super) fn is_fixed(self) -> bool {
        self.row().is_fixed
    }
}

impl Function {
    pub(super) fn row(self) -> &'static FunctionRow {
        &FUNCTIONS[self as usize]
    }

    /// Whether it remembers earlier steps.
    pub(super) fn remembers(self) -> bool {
        self.row().kind == Kind::Steps
    }

    /// Whether its arguments are texts.
    pub(super) fn takes_texts(self) -> bool {
        matches!(self, Function::Dot | Function::RotatedDot | Function::TokenIn)
    }

    /// Whether its value depends on which entries are protected.
    pub(super) fn depends_on_protection(self) -> bool {
        use Function::{ExpectedAttention, ExpectedAttentionMean, LagScore, Rank, Smooth, SmoothMax};
        matches!(self, Rank | Smooth | SmoothMax | ExpectedAttention | ExpectedAttentionMean | LagScore)
    }

    /// Its value where all arguments are numbers; `None` if it looks at more than one entry at one step.
    pub(super) fn of_numbers(self, numbers: &[f64]) -> Option<f64> {
        let truth = |truth: bool| f64::from(u8::from(truth));
        Some(match (self, numbers) {
            (Function::Add, numbers) => numbers.iter().sum(),
            (Function::Multiply, numbers) => numbers.iter().product(),
            (Function::Divide, [a, b]) => a / b,
            (Function::Less, [a, b]) => truth(a < b),
            (Function::AtMost, [a, b]) => truth(a <= b),
            (Function::Equal, [a, b]) => truth(a == b),
            (Function::Unequal, [a, b]) => truth(a != b),
            (Function::If, [a, b, c]) => *if *a == 0.0 { c } else { b },
            (Function::Min, [a, b]) => a.min(*b),
            (Function::Max, [a, b]) => a.max(*b),
            (Function::Abs, [a]) => a.abs(),
            (Function::Log, [a]) => a.ln(),
            (Function::Exp, [a]) => a.exp(),
            (Function::Sqrt, [a]) => a.sqrt(),
            _ => return None,
        })
    }
}

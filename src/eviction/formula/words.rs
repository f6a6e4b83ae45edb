//! The words and functions of formulas. Each is a row of `words.yaml`, which parser, documentation, schema and evaluation share.

use std::sync::LazyLock;

use indexmap::IndexMap;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use serde::{Deserialize, Deserializer};

use crate::yaml::parse_yaml;

/// A text that lives as long as the program.
pub(in crate::eviction) type Text = &'static str;

pub(in crate::eviction) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
    Ok(String::deserialize(deserializer)?.leak())
}

/// What is known of an entry at a step. In the order of [`WORDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    #[default]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    QueryHead,
    KeyValueHead,
    /// All heads of a decision have one.
    Decision,
}

/// A word, its meaning, and where its values are.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WordRow {
    #[serde(skip)]
    pub word: Word,
    #[serde(skip)]
    pub name: Text,
    #[serde(deserialize_with = "text")]
    pub meaning: Text,
    pub(super) per: Per,
    /// Whether it is known when an entry joins, or when the prompt is cut, and never changes.
    #[serde(default)]
    pub(super) is_fixed: bool,
}

/// What makes one value of others. In the order of [`FUNCTIONS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    #[default]
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
    PageBound,
}

/// What a function looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionRow {
    #[serde(skip)]
    pub function: Function,
    /// The name, or the sign.
    #[serde(default, deserialize_with = "text")]
    pub name: Text,
    pub kind: Kind,
    /// The fewest and the most arguments.
    pub arguments: (usize, usize),
    #[serde(default, deserialize_with = "text")]
    pub meaning: Text,
    /// What the last argument may be, if that is a whole number.
    pub(super) count: Option<Count>,
    /// Whether its value depends on which entries are protected.
    #[serde(default)]
    of_protection: bool,
    /// Whether its arguments are texts.
    #[serde(default)]
    pub(super) of_texts: bool,
}

/// A whole number of something.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Count {
    #[serde(deserialize_with = "text")]
    pub of: Text,
    pub from: u32,
    pub to: u32,
    #[serde(default)]
    pub is_odd: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    words: IndexMap<String, WordRow>,
    functions: IndexMap<String, FunctionRow>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    parse_yaml(include_str!("words.yaml"), "words.yaml").expect("tests read the file of the program")
});

/// The word or function of a name in the file.
fn of_name<T: DeserializeOwned>(name: &str) -> T {
    let found: Result<T, Error> = T::deserialize(name.into_deserializer());
    found.expect("tests read the file of the program")
}

/// Every word.
pub static WORDS: LazyLock<Vec<WordRow>> = LazyLock::new(|| {
    let rows = TABLES.words.iter();
    rows.map(|(name, row)| WordRow { word: of_name(name), name, ..*row }).collect()
});

/// Every function, those that are written as a sign first.
pub static FUNCTIONS: LazyLock<Vec<FunctionRow>> = LazyLock::new(|| {
    let named = |(key, row): (&'static String, &FunctionRow)| {
        let name = if row.name.is_empty() { key } else { row.name };
        FunctionRow { function: of_name(key), name, ..*row }
    };
    TABLES.functions.iter().map(named).collect()
});

/// The functions that are written as calls.
pub fn calls() -> impl Iterator<Item = &'static FunctionRow> {
    FUNCTIONS.iter().filter(|row| !matches!(row.kind, Kind::Sign(_)))
}

impl Word {
    pub(super) fn row(self) -> &'static WordRow {
        &WORDS[self as usize]
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

    /// Whether its value depends on which entries are protected.
    pub(in crate::eviction) fn depends_on_protection(self) -> bool {
        self.row().of_protection
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

//! The one row schema, long form, at the grain of one sample: every table, curve and gate is derived from it.
//!
//! Where (which experiment) - what (which number) - proof (what was read or written) - provenance (who measured).
//! Settings that change numbers are columns, so a row explains itself without the sweep file.

/// Version of the schema below; part of every cell id.
pub const SCHEMA_VERSION: u32 = 1;

/// One metric of one sample of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    // --- where
    /// Content id of the cell: 16 hex digits of the SHA-256 of its canonical text.
    pub cell: String,
    /// The sweep's name: its file stem, or its `name:`.
    pub sweep: String,
    /// The model as the sweep names it: a folder or `owner/name`.
    pub model: String,
    /// Hub commit, or `sha256:` over the checkpoint's files.
    pub model_revision: String,
    /// The policy's name: `full`, `truncate`, a preset, or a name under `define:`.
    pub policy: String,
    /// `recency`, `last_attention`, ...; `None` for `full` and `truncate`.
    pub score: Option<String>,
    /// `layer` or `head`; `None` for `full` and `truncate`.
    pub scope: Option<String>,
    /// Protected first tokens (0 for `full` and `truncate`).
    pub keep_first: u32,
    /// Protected newest entries, in tokens at this cache size.
    pub keep_recent: u32,
    /// Entries per layer and key-value head; `None` for `full`.
    pub cache_size: Option<u32>,
    /// `absolute`, `slot` or `squeezed`.
    pub positions: String,
    /// `stream` or `one_shot`.
    pub prefill: String,
    /// `perplexity`, ...
    pub task: String,
    /// Where the texts came from, as the sweep names it.
    pub dataset: String,
    /// Tokens per sample, BOS included.
    pub length: u32,
    /// Text tokens from the start of one sample to the start of the next.
    pub stride: u32,
    /// Whether every sample starts with the tokenizer's BOS.
    pub bos: bool,
    /// `drop` or `keep`: what becomes of a book's last, shorter sample.
    pub tail: String,
    pub seed: u64,
    /// The sample's name: `10146.txt#3` is the fourth chunk of a book.
    pub sample: String,
    /// What samples share and bootstrap resamples together: the book, story or paper.
    pub cluster: String,
    // --- what
    /// `nll`, `nll_word`, `kl_to_full`, `top1_agreement`, `evicted_mass`, ...
    pub metric: String,
    /// The sum over the sample; pooled metrics are `sum(value) / sum(weight)`.
    pub value: f64,
    /// What the sum is over: scored tokens, words, questions.
    pub weight: f64,
    // --- proof
    /// Text the model wrote; `None` for scored tasks.
    pub output: Option<String>,
    pub prompt_tokens: u32,
    pub new_tokens: u32,
    // --- provenance
    /// Engine version: bumped when numbers may change.
    pub engine: u32,
    /// Git commit of the binary, if it was built in a checkout.
    pub commit: Option<String>,
    /// `cpu` or the card's name.
    pub device: String,
    /// Type of the weights: `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// Seconds this sample took in this cell (shared work is not counted twice).
    pub seconds: f64,
    /// Largest size of the key-value cache while reading, in bytes.
    pub peak_cache_bytes: u64,
    /// UTC, RFC 3339.
    pub date: String,
}

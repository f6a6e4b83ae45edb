//! Tokenizers of GGUF files: tokens computed by hand, what is refused, and tokens of the original tokenizers.

use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::time::Instant;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use tova_bench::lm::source::{HubSettings, ModelSource};
use tova_bench::lm::{ModelFiles, Tokenizer};

// --- files of tokenizers ---

type Fields = Vec<(String, Value)>;

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn texts(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|one| text(one)).collect())
}

fn kinds(kinds: &[i32]) -> Value {
    Value::Array(kinds.iter().map(|kind| Value::I32(*kind)).collect())
}

fn scores(scores: &[f32]) -> Value {
    Value::Array(scores.iter().map(|score| Value::F32(*score)).collect())
}

fn tokenizer_fields(fields: &[(&str, Value)]) -> Fields {
    fields.iter().map(|(name, value)| (format!("tokenizer.{name}"), value.clone())).collect()
}

/// `fields` with one more, or with another value of it.
fn with(mut fields: Fields, name: &str, value: Value) -> Fields {
    let name = format!("tokenizer.{name}");
    fields.retain(|(known, _)| *known != name);
    fields.push((name, value));
    fields
}

fn without(mut fields: Fields, name: &str) -> Fields {
    fields.retain(|(known, _)| *known != format!("tokenizer.{name}"));
    fields
}

/// Writes a file with this tokenizer and an embedding of `rows` rows, and finds it.
fn find(folder: &Path, fields: &Fields, rows: usize) -> ModelFiles {
    let sizes = [
        "embedding_length",
        "feed_forward_length",
        "block_count",
        "attention.head_count",
        "attention.head_count_kv",
        "context_length",
    ];
    let number = |name: &str| if name.contains("length") { 32 } else { 1 };
    let sizes = sizes.map(|name| (format!("llama.{name}"), Value::U32(number(name))));
    let epsilon = ("llama.attention.layer_norm_rms_epsilon".to_owned(), Value::F32(1e-5));
    let architecture = ("general.architecture".to_owned(), text("llama"));
    let all: Fields = sizes.into_iter().chain([epsilon, architecture]).chain(fields.iter().cloned()).collect();
    let all: Vec<(&str, &Value)> = all.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let embedding = Tensor::zeros((rows, 32), candle_core::DType::F32, &Device::Cpu).unwrap();
    let embedding = QTensor::quantize(&embedding, GgmlDType::F32).unwrap();
    let mut bytes = Cursor::new(Vec::new());
    gguf_file::write(&mut bytes, &all, &[("token_embd.weight", &embedding)]).unwrap();
    let file = folder.join("m.gguf");
    fs::write(&file, bytes.into_inner()).unwrap();
    files(&file)
}

fn files(file: &Path) -> ModelFiles {
    let source: ModelSource = file.display().to_string().parse().unwrap();
    ModelFiles::find(&source, None, &HubSettings::with_cache_dir("nowhere"), &()).unwrap()
}

fn tokenizer(fields: &Fields, rows: usize) -> Tokenizer {
    find(tempfile::tempdir().unwrap().path(), fields, rows).tokenizer().unwrap()
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text).unwrap().ids
}

// --- byte-level BPE ---

const WORDS: [&str; 18] =
    ["1", "2", "a", "Ġ", "12", "Ġa", "'", "s", "'s", "B", "ĠaB", "Ġa's", "x", "y", "xy", "Ã", "©", "<|end|>"];

fn byte_level(pre: &str) -> Fields {
    let mut kind = [NORMAL; WORDS.len()];
    kind[17] = CONTROL;
    tokenizer_fields(&[
        ("ggml.model", text("gpt2")),
        ("ggml.pre", text(pre)),
        ("ggml.tokens", texts(&WORDS)),
        ("ggml.token_type", kinds(&kind)),
        ("ggml.merges", texts(&["1 2", "Ġ a", "' s", "Ġa B", "Ġa 's"])),
        ("ggml.bos_token_id", Value::U32(17)),
        ("ggml.eos_token_id", Value::U32(17)),
    ])
}

#[test]
fn each_name_splits_normalises_and_starts_texts_in_its_way() {
    // Two digits; a word with an abbreviation; a word with a capital inside. Then a token that no merge makes, kept or
    // not; then whether texts start with BOS.
    let digits_together = vec![4, 5, 8, 10];
    let digits_apart = vec![0, 1, 5, 8, 10];
    for (pre, expected, keeps, bos) in [
        ("gpt-2", digits_together.clone(), false, false),
        ("smollm", digits_apart.clone(), false, false),
        ("llama-bpe", digits_together.clone(), true, true),
        ("llama3", digits_together.clone(), true, true),
        ("llama-v3", digits_together.clone(), true, true),
        ("smaug-bpe", digits_together.clone(), true, false),
        ("dbrx", digits_together, false, false),
        ("qwen2", digits_apart.clone(), false, false),
        ("qwen35", digits_apart, false, false),
        ("tekken", vec![0, 1, 5, 8, 5, 9], true, true),
        ("gpt-4o", vec![4, 11, 5, 9], false, false),
    ] {
        let tokenizer = tokenizer(&byte_level(pre), WORDS.len());
        assert_eq!(ids(&tokenizer, "12 a's aB"), expected, "{pre}");
        assert_eq!(ids(&tokenizer, "xy"), if keeps { vec![14] } else { vec![12, 13] }, "{pre}");
        // é in two characters; as one it is the bytes C3 A9.
        assert_eq!(ids(&tokenizer, "e\u{301}") == [15, 16], pre.starts_with("qwen"), "{pre}");
        assert_eq!(tokenizer.adds_bos(), bos, "{pre}");
        assert_eq!(ids(&tokenizer, "x<|end|>y"), [12, 17, 13], "{pre}");
        assert_eq!(tokenizer.decode(&[5, 17, 8]).unwrap(), " a's", "{pre}");
    }
    let said = with(byte_level("llama-bpe"), "ggml.add_bos_token", Value::Bool(false));
    assert!(!tokenizer(&said, WORDS.len()).adds_bos());
}

// --- SentencePiece ---

const PIECES: [&str; 15] =
    ["<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "<0xA9>", "ab", "▁a", "bc", "abc", "▁", "a", "b", "c", "  "];

fn sentence_piece() -> Fields {
    let kind = [
        UNKNOWN,
        CONTROL,
        CONTROL,
        BYTE,
        BYTE,
        BYTE,
        NORMAL,
        NORMAL,
        NORMAL,
        NORMAL,
        NORMAL,
        NORMAL,
        NORMAL,
        NORMAL,
        USER_DEFINED,
    ];
    // From `ab` on, the later the lower.
    let score: Vec<f32> = (0..PIECES.len()).map(|id| if id < 6 { 0.0 } else { 6.0 - id as f32 }).collect();
    tokenizer_fields(&[
        ("ggml.model", text("llama")),
        ("ggml.pre", text("default")),
        ("ggml.tokens", texts(&PIECES)),
        ("ggml.token_type", kinds(&kind)),
        ("ggml.scores", scores(&score)),
        ("ggml.bos_token_id", Value::U32(1)),
        ("ggml.eos_token_id", Value::U32(2)),
    ])
}

#[test]
fn pieces_are_merged_by_their_scores() {
    let tokenizer = |fields: &Fields| tokenizer(fields, PIECES.len());
    let plain = tokenizer(&sentence_piece());
    // ▁ a b c: first `ab`, then `abc`; there is no `▁abc`.
    assert_eq!(ids(&plain, "abc"), [10, 9]);
    assert_eq!(ids(&plain, "a a"), [7, 7]);
    // Bytes of characters without a piece; without bytes they are unknown, together.
    assert_eq!(ids(&plain, "é\n"), [10, 4, 5, 3]);
    assert_eq!(ids(&plain, "zz"), [10, 0]);
    assert_eq!(plain.decode(&[1, 7, 7, 4, 5]).unwrap(), "a aé");
    assert!(plain.adds_bos());
    // `bc` before all: ▁ a bc, then `▁a`.
    let mut other: Vec<f32> = (0..PIECES.len()).map(|id| if id < 6 { 0.0 } else { 6.0 - id as f32 }).collect();
    other[8] = 1.0;
    assert_eq!(ids(&tokenizer(&with(sentence_piece(), "ggml.scores", scores(&other))), "abc"), [7, 8]);
}

#[test]
fn without_a_space_in_front_text_may_follow_special_tokens() {
    let bare = with(sentence_piece(), "ggml.add_space_prefix", Value::Bool(false));
    let bare = tokenizer(&bare, PIECES.len());
    assert_eq!(ids(&bare, "abc"), [9]);
    assert_eq!(ids(&bare, "a  b</s>c"), [11, 14, 12, 2, 13]);
    assert_eq!(bare.decode(&[7, 14]).unwrap(), " a  ");
    // As in Mistral 7B v0.1 it would be `</s> ▁ c`, as in v0.3 `</s> c`; GGUF does not say which.
    let spaced = tokenizer(&sentence_piece(), PIECES.len());
    assert_eq!(ids(&spaced, "a</s>"), [7, 2]);
    let error = format!("{:#}", spaced.encode("a</s>c").err().unwrap());
    assert!(error.contains("\"</s>\"") && error.contains("\nhint: "), "{error}");
}

// --- chats ---

#[test]
fn a_template_sees_the_files_tokens_and_turns_end_texts() {
    let template = "{{ bos_token }}[{{ messages[0].content }}]{{ eos_token }}";
    let fields = with(sentence_piece(), "chat_template", text(template));
    let fields = with(fields, "ggml.eot_token_id", Value::U32(9));
    let folder = tempfile::tempdir().unwrap();
    let files = find(folder.path(), &fields, PIECES.len());
    let format = files.chat_template().unwrap().unwrap().format().unwrap();
    assert_eq!((&*format.prefix, &*format.suffix), ("<s>[", "]</s>"));
    assert_eq!(files.stop_tokens().unwrap(), [2, 9]);
    let plain = find(folder.path(), &sentence_piece(), PIECES.len());
    assert_eq!((plain.chat_template().unwrap(), plain.stop_tokens().unwrap()), (None, vec![2]));
}

// --- refusals ---

#[test]
fn tokenizers_that_would_give_other_tokens_are_refused_by_field() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |fields: Fields, rows: usize, words: &[&str]| {
        let error = find(folder.path(), &fields, rows).tokenizer().err().unwrap();
        let error = format!("{error:#}");
        for word in [words, &["m.gguf", "\nhint: ", "--tokenizer"]].concat() {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
    };
    for kind in ["bert", "t5", "rwkv", "gemma4"] {
        let fields = with(byte_level("gpt-2"), "ggml.model", text(kind));
        refused(fields, WORDS.len(), &["tokenizer.ggml.model", kind, "gpt2", "llama"]);
    }
    for pre in ["default", "unheard-of"] {
        refused(byte_level(pre), WORDS.len(), &["tokenizer.ggml.pre", pre, "smollm"]);
    }
    for field in ["ggml.pre", "ggml.tokens", "ggml.merges"] {
        refused(without(byte_level("gpt-2"), field), WORDS.len(), &[field, "missing"]);
    }
    refused(without(sentence_piece(), "ggml.scores"), PIECES.len(), &["ggml.scores", "missing"]);
    refused(without(sentence_piece(), "ggml.bos_token_id"), PIECES.len(), &["ggml.bos_token_id", "missing"]);
    let fields = with(sentence_piece(), "ggml.scores", scores(&[0.0, 1.0]));
    refused(fields, PIECES.len(), &["ggml.scores has 2", "ggml.tokens 15"]);
    let fields = with(sentence_piece(), "ggml.scores", scores(&[-1000.0; PIECES.len()]));
    refused(fields, PIECES.len(), &["ggml.scores are all equal"]);
    let fields = with(sentence_piece(), "ggml.token_type", kinds(&[NORMAL]));
    refused(fields, PIECES.len(), &["ggml.token_type has 1", "ggml.tokens 15"]);
    let fields = with(byte_level("gpt-2"), "ggml.tokens", texts(&[&WORDS[..17], &["a"]].concat()));
    refused(fields, WORDS.len(), &["ggml.tokens has a token twice"]);
    for merge in ["1 z", "z 1", "1 a", "12", ""] {
        let fields = with(byte_level("gpt-2"), "ggml.merges", texts(&["1 2", merge]));
        refused(fields, WORDS.len(), &["ggml.merges"]);
    }
    for id in [Value::U32(18), Value::I32(-1), Value::U32(u32::MAX), text("<s>")] {
        let fields = with(byte_level("gpt-2"), "ggml.bos_token_id", id);
        refused(fields, WORDS.len(), &["ggml.bos_token_id", "18 tokens"]);
    }
    for rows in [10, 100] {
        refused(byte_level("gpt-2"), rows, &["18 tokens", "belong to different models"]);
    }
}

// --- the original tokenizers ---

/// A folder with `texts/CORPUS/*.txt`, files `NAME.gguf`, and for each `NAME/CORPUS.WITNESS.json`: the tokens that another
/// program gives to each text of the corpus, in the order of their names.
#[test]
fn tokens_equal_those_of_the_original_tokenizers() {
    let Some(folder) = std::env::var_os("TOVA_BENCH_TOKENIZER_WITNESS") else {
        crate::support::material::skip(
            "tokens_equal_those_of_the_original_tokenizers",
            "witness",
            "TOVA_BENCH_TOKENIZER_WITNESS",
        );
        return;
    };
    let entries = |path: &Path| {
        let mut paths: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let folder = Path::new(&folder);
    let mut differing = 0;
    for file in entries(folder).iter().filter(|path| path.extension().is_some_and(|end| end == "gguf")) {
        let files = files(file);
        let start = Instant::now();
        let tokenizer = files.tokenizer().unwrap();
        println!("{} read in {:.2} s", file.display(), start.elapsed().as_secs_f64());
        for witness in entries(&file.with_extension("")) {
            let name = witness.file_stem().unwrap().to_str().unwrap();
            let corpus = folder.join("texts").join(name.split('.').next().unwrap());
            let expected: Vec<Vec<u32>> = serde_json::from_str(&fs::read_to_string(&witness).unwrap()).unwrap();
            let texts = entries(&corpus);
            assert_eq!(texts.len(), expected.len());
            let (mut tokens, mut different) = (0, Vec::new());
            for (text, expected) in texts.iter().zip(&expected) {
                let own = ids(&tokenizer, &fs::read_to_string(text).unwrap());
                tokens += own.len();
                if own != *expected {
                    let first = own.iter().zip(expected).position(|(one, other)| one != other);
                    different.push((text.file_name().unwrap().to_owned(), first));
                }
            }
            differing += different.len();
            println!(
                "{:14} {name:32} {:4} texts {tokens:8} tokens, differing {different:?}",
                file.file_stem().unwrap().display(),
                texts.len()
            );
        }
    }
    assert_eq!(differing, 0, "texts differ");
}

//! Formulas as text: which are equal, which mean a named score, and which are refused, and where.

use super::lowered::{LAST_FUNCTION, LAST_WORD};
use super::words::{FUNCTIONS, Kind};
use super::*;
use crate::eviction::Score;

/// An operation is known to kernels by its place.
#[test]
fn tables_are_in_the_order_of_their_enums_and_of_the_kernels() {
    let header = include_str!("../../lm/gpu/kernels/params.h");
    let kernels = header.split_once("enum Operation {").unwrap().1.split_once('}').unwrap().0;
    let kernels = kernels.lines().map(|line| line.split("//").next().unwrap()).collect::<String>();
    let upper = |variant: String| {
        let snake =
            variant.chars().map(|c| if c.is_uppercase() { format!("_{c}") } else { c.to_uppercase().collect() });
        snake.collect::<String>()
    };
    let mut expected = Vec::new();
    for (index, row) in WORDS.iter().enumerate() {
        assert_eq!(row.word as usize, index, "{}", row.name);
        if index <= LAST_WORD as usize {
            expected.push(format!("WORD{}", upper(format!("{:?}", row.word))));
        }
    }
    for (index, row) in FUNCTIONS.iter().enumerate() {
        assert_eq!(row.function as usize, index, "{}", row.name);
        if index > LAST_FUNCTION as usize {
            continue;
        }
        let name = upper(format!("{:?}", row.function));
        expected.push(if row.kind == Kind::Steps { format!("KEEP{name}") } else { name[1..].to_owned() });
    }
    expected.extend(["SUMMED_ATTENTION", "POOLED_ATTENTION"].map(str::to_owned));
    let named: Vec<&str> = kernels.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    assert_eq!(named, expected);
}

fn text(formula: &str) -> &'static str {
    Formula::new(formula, Pool::Mean).unwrap_or_else(|error| panic!("{formula}: {error}")).text()
}

#[test]
fn equal_formulas_have_one_text() {
    for (canonical, others) in [
        (
            "ema(attention, 0.95)",
            &["ema( attention,.95 )", "2 * ema(attention, 0.95) + 1", "pooled(ema(attention, 0.95))"][..],
        ),
        (
            "0.7 * attention + 0.3 * ema(attention, 0.9)",
            &["0.3*ema(attention,0.9)+0.7*attention", "0.7*pooled(attention) + ema(0.3*attention, 9e-1)"],
        ),
        ("sum(attention) * value_norm", &["value_norm * sum(attention)", "(sum(3 * attention)) * value_norm / 3"]),
        ("attention / (1 - attention) * output_shift", &["output_shift * (attention / (1 - attention))"]),
        ("attention < position", &["position > attention", "(attention < position) * 2"]),
        ("-key_similarity", &["-(key_similarity)", "0 - key_similarity", "-2 * key_similarity"]),
        ("window(attention, 0.05 * size)", &["window(attention, size / 20)"]),
        ("sum(attention != 0)", &["count(attention)"]),
        ("age * attention", &["attention * age", "attention * age + 0 * key_norm"]),
        ("max(age, attention)", &["max(attention, age)"]),
        // Equal entries have different ranks, so such a rank is not the same for all.
        ("age + rank(size)", &["rank(size) + age + 2"]),
        ("exp(attention) + log(attention)", &["log(attention) + exp(attention)"]),
        ("peak(pooled_mean(attention)) + pooled_mean(exp(logit))", &["exp(logit) + peak(pooled(attention))"]),
    ] {
        assert_eq!(text(canonical), canonical);
        for other in others {
            assert_eq!(text(other), canonical, "{other}");
        }
    }
    let [mean, max] = [Pool::Mean, Pool::Max].map(|pool| Formula::new("attention * value_norm", pool).unwrap());
    assert_ne!(mean, max);
    assert_eq!(max.text(), "pooled_max(attention * value_norm)");
    assert_eq!(text(max.text()), max.text());
}

#[test]
fn named_scores_are_formulas() {
    for score in crate::eviction::SCORES {
        let of_name = Score::new(score.name, Pool::Mean).unwrap();
        assert_eq!(Score::new(score.value, Pool::Mean).unwrap(), of_name);
        assert_eq!((of_name.name(), of_name.formula()), (score.name, score.value));
    }
    for (formula, name) in [
        ("ema(attention, 0)", "last_attention"),
        ("ema(attention, 1)", "accumulated_attention"),
        ("3 * position - 1", "recency"),
    ] {
        assert_eq!(Score::new(formula, Pool::Mean).unwrap().name(), name);
    }
    // One sign each: what evicts the largest norm is written with its minus.
    assert_eq!(Score::new("-key_norm", Pool::Mean), Score::new("-2 * key_norm + 1", Pool::Mean));
    for smallest in [" key_norm", "(key_norm)", "1*key_norm", "0.5 * key_norm"] {
        assert_eq!(Score::new(smallest, Pool::Mean).unwrap().name(), "(key_norm)");
    }
    assert_eq!(Score::new("last_attention", Pool::Max).unwrap().name(), "pooled_max(attention)");
    assert_eq!(Score::new("random", Pool::Max), Score::new("random", Pool::Mean));
}

/// What is refused names the characters in which it is wrong.
#[test]
fn errors_name_their_place() {
    let deep = format!("{}age{}", "(".repeat(60), ")".repeat(60));
    for (formula, place, message) in [
        ("ema(atention, 0.95)", "atention", "unknown word"),
        ("ema(attention)", "ema", "2 arguments, not 1"),
        ("attention +", "", "ends where"),
        ("sum(attention", "", "`,` or `)` is missing"),
        ("ema(attention 0.9)", "0.9", "`,` or `)` is missing"),
        ("attention 2", "2", "not expected"),
        ("attention(3)", "attention", "takes no arguments"),
        ("sum * 2", "sum", "needs arguments"),
        ("ema(attention, age)", "age", "the same for all"),
        ("ema(attention, 1.5)", "1.5", "between 0 and 1"),
        ("window(attention, 0)", "0", "at least 1"),
        ("window(attention, 1e9)", "1e9", "at most 10000 steps"),
        ("window(attention, 0/0)", "0/0", "at least 1"),
        ("peak(attention, 1 / 0)", "1 / 0", "at most 10000 steps"),
        ("window(attention, -3)", "-3", "at least 1"),
        ("window(attention, softmax(size))", "softmax(size)", "the same for all"),
        ("ema(attention, log(0))", "log(0)", "between 0 and 1"),
        ("ema(attention, sqrt(-1))", "sqrt(-1)", "between 0 and 1"),
        ("log(attention - 1)", "log(attention - 1)", "no number for any entry"),
        ("attention + 0/0", "attention + 0/0", "no number for any entry"),
        ("sqrt(-1 - age)", "sqrt(-1 - age)", "no number for any entry"),
        (
            "sum(log(-value_norm)) * 2 + attention",
            "sum(log(-value_norm)) * 2 + attention",
            "no number for any entry",
        ),
        ("1 < age < 3", "<", "not expected"),
        ("attention ^ 2", "^", "no meaning"),
        ("1.2.3 * age", "1.2.3", "not a number"),
        ("size + 3", "size + 3", "the same for all entries"),
        ("attention < 1e308 * 1e308", "attention < 1e308 * 1e308", "infinite"),
        ("", "", "ends where"),
        (&deep, "(", "inside each other"),
        ("smooth(attention, 4)", "4", "an odd number of entries"),
        ("smooth(attention, size)", "size", "an odd number of entries"),
        ("smooth_max(attention)", "smooth_max", "2 arguments, not 1"),
        ("block(attention, 0)", "0", "a number of tokens from 1"),
        ("lag_score(1)", "1", "a number of entries from 2"),
        ("lag_score", "lag_score", "needs arguments"),
        ("expected_attention(attention)", "attention", "a number of positions"),
        ("key_redundancy(3)", "key_redundancy", "takes no arguments"),
        ("token_in(attention)", "attention", "needs a text in double quotes"),
        ("token_in(\"a\", 3)", "3", "needs a text in double quotes"),
        ("token_in(\"\")", "\"\"", "the text is empty"),
        ("token_in(\"a)", "\"a)", "the text has no end"),
        (r#"token_in("\q")"#, r#""\q"#, "no meaning"),
        ("attention + \"a\"", "\"a\"", "is not a value"),
        ("dot(\"nowhere.safetensors\", \"x\")", "dot", "\"nowhere.safetensors\" of `dot` cannot be used"),
        ("sum(reread_attention)", "sum(reread_attention)", "nothing to remember"),
    ] {
        let error = Formula::new(formula, Pool::Mean).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(error.part(), place, "{error}");
    }
}

/// What may have a number is not refused.
#[test]
fn formulas_that_may_have_numbers_are_used() {
    for formula in [
        "log(attention - 0.5)",
        "sqrt(attention - 1)",
        "max(log(-age), attention)",
        "if(age > 3, log(-age), attention)",
        "log(-age) > 0",
        "1 / (age - 3)",
        "log(logit)",
        "log(rank(log(-age)))",
        "log(key_similarity)",
        "exp(-1000 * size) - exp(1000 * size) * attention",
    ] {
        assert!(Formula::new(formula, Pool::Mean).is_ok(), "{formula}");
    }
}

/// Numbers of functions that depend on the size are checked when that is known.
#[test]
fn parameters_are_checked_at_every_size() {
    let at = |formula: &str, size| Score::new(formula, Pool::Mean).unwrap().check_size(size);
    for (formula, good, wrong, message) in [
        (
            "window(attention, size - 16)",
            17,
            16,
            "in its score `window(attention, size - 16)` `window` takes at least 1 and at most 10000 steps, and `size - 16` is 0 at a \
             size of 16",
        ),
        ("peak(attention, size * 1e6) + age", 0, 1, "`1000000 * size` is 1000000 at a size of 1"),
        (
            "1 - sum(ema(attention, size / 8))",
            8,
            9,
            "a factor of `ema` lies between 0 and 1, and `0.125 * size` is 1.125",
        ),
        ("window(attention, 1 / (size - 4))", 5, 4, "is inf at a size of 4"),
        ("window(attention, log(size - 4))", 6, 3, "is NaN at a size of 3"),
    ] {
        assert!(good == 0 || at(formula, good).is_ok(), "{formula}");
        let error = at(formula, wrong).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn texts_are_written_as_they_are_read() {
    let formula = text(r#"token_in(".", "\n", "\"", "\\", "é, (b") + attention"#);
    assert_eq!(formula, r#"attention + token_in(".", "\n", "\"", "\\", "é, (b")"#);
    assert_eq!(text(formula), formula);
    // A mean over heads moves into what is linear, and a block of one token is the token.
    assert_eq!(text("block(smooth(window(attention, 64), 5), 1)"), "smooth(window(attention, 64), 5)");
    assert_eq!(text("2 * smooth(3 * attention, 5)"), "smooth(attention, 5)");
}

#[test]
fn blocks_leave_where_a_score_is_the_same_in_each() {
    let block = |formula: &str| Score::new(formula, Pool::Mean).unwrap().block();
    assert_eq!(block("block(attention, 16)"), Some(16));
    assert_eq!(block("max(-block(attention, 16), size) + 2 * block(value_norm, 16)"), Some(16));
    for none in [
        "block(attention, 16) + position",
        "block(attention, 16) + block(attention, 8)",
        "sum(block(attention, 16))",
    ] {
        assert_eq!(block(none), None, "{none}");
    }
}

#[test]
fn vectors_of_files() {
    use crate::eviction::Heads;
    use safetensors::tensor::{Dtype, TensorView};

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("filters.safetensors");
    let numbers: Vec<u8> = (0..24).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let view = |shape: &[usize]| TensorView::new(Dtype::F32, shape.to_vec(), &numbers).unwrap();
    let tensors = [("by_head", view(&[2, 4, 3])), ("by_kv", view(&[4, 2, 3])), ("flat", view(&[24]))];
    std::fs::write(&file, safetensors::serialize(tensors, None).unwrap()).unwrap();
    let dot = |tensor: &str| format!("dot({:?}, {tensor:?})", file.display().to_string());

    // The name has a digest and no folder, so that a formula is known by what the file has, wherever it is.
    let formula = Formula::new(&dot("by_head"), Pool::Mean).unwrap();
    let name = formula.text().strip_prefix("dot(\"filters.safetensors#").unwrap();
    assert!(name.ends_with("\", \"by_head\")") && name.len() == 16 + "\", \"by_head\")".len(), "{name}");
    assert_eq!(Formula::new(formula.text(), Pool::Mean).unwrap(), formula);
    let vectors = formula.vectors()[0].clone().unwrap();
    assert_eq!(vectors.of_head(1, 2, 4), Some(&[18.0, 19.0, 20.0][..]));
    let heads = Heads { heads: 4, kv_heads: 2 };
    vectors.check(2, heads, 3).unwrap();
    let error = vectors.check(3, heads, 3).unwrap_err();
    assert!(error.contains("[2, 4, 3]") && error.contains("[3, 4, 3]") && error.contains("[3, 2, 3]"), "{error}");
    // Query heads share the vector of their key-value head.
    let by_kv = Formula::new(&dot("by_kv"), Pool::Mean).unwrap().vectors()[0].clone().unwrap();
    by_kv.check(4, heads, 3).unwrap();
    assert_eq!(by_kv.of_head(1, 1, 4), Some(&[6.0, 7.0, 8.0][..]));

    std::fs::write(folder.path().join("no.safetensors"), "no tensors").unwrap();
    let no = dot("flat").replace("filters", "no");
    for (formula, message) in [
        (dot("flat"), "the shape [24], not (layers, heads, dimensions)"),
        (dot("other"), "it has no tensor \"other\"; it has by_head, by_kv, flat"),
        (no, "it is not a safetensors file"),
    ] {
        let error = Formula::new(&formula, Pool::Mean).unwrap_err();
        assert!(error.to_string().contains(message) && error.part() == "dot", "{error}");
    }
    // Of a formula from rows the file may be elsewhere: it can be shown, and not be used.
    let other = Formula::new("dot(\"other.safetensors#0123456789abcdef\", \"x\")", Pool::Mean).unwrap();
    assert!(other.vectors()[0].clone().unwrap_err().contains("was not opened"));
}

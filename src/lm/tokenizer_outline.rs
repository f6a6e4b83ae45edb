//! The steps of a tokenizer.json, looked at before the tokenizers library builds them.
//!
//! Knows how large one step can make a text, and refuses files whose steps multiply: a text is a model's input and not its
//! author's, so nothing of a tokenizer needs to write a thousand characters for one. The vocabulary is not looked at.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;

/// The parts of the file that are lists of steps; the library reads the rest.
#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

/// Steps below steps: real files have two.
const DEEPEST: usize = 4;
/// Steps of one kind: real files have about ten.
const MOST_STEPS: usize = 64;
/// How many bytes a byte of text may become: T5's table of Unicode and its `▁` for spaces make a hundred of some.
const MOST_GROWTH: usize = 256;
/// Bytes that may be put before a text or a word.
const MOST_ADDED: usize = 4096;
/// Tokens a template may put around a text.
const MOST_FRAMING: usize = 256;
/// Bytes of a pattern: those of GPT-4 have 200.
const LONGEST_PATTERN: usize = 4096;

/// Checks a tokenizer.json.
///
/// # Errors
/// A file that is no JSON object, or has steps no tokenizer needs.
pub(super) fn check(file: &[u8]) -> Result<()> {
    let Outline { normalizer, pre_tokenizer, post_processor, decoder } =
        serde_json::from_slice(file).context("it is no JSON object")?;
    for (part, record, list) in [
        ("normalizer", &normalizer, "normalizers"),
        ("pre_tokenizer", &pre_tokenizer, "pretokenizers"),
        ("decoder", &decoder, "decoders"),
        ("post_processor", &post_processor, "processors"),
    ] {
        let mut steps = Vec::new();
        collect(record, list, DEEPEST, &mut steps).with_context(|| format!("its {part}"))?;
        let (mut growth, mut added, mut framing) = (1usize, 0usize, 0usize);
        for step in steps {
            let (more, before) = growth_of(step).with_context(|| format!("its {part}"))?;
            growth = growth.saturating_mul(more);
            added = added.saturating_add(before.saturating_mul(growth));
            framing = framing.saturating_add(framing_of(step));
            let pattern = longest_text(step);
            ensure!(
                pattern <= LONGEST_PATTERN,
                "its {part} has a pattern of {pattern} bytes; {LONGEST_PATTERN} is the most"
            );
        }
        ensure!(growth <= MOST_GROWTH, "its {part} makes {growth} bytes of one; {MOST_GROWTH} is the most");
        ensure!(added <= MOST_ADDED, "its {part} puts {added} bytes before a text; {MOST_ADDED} is the most");
        ensure!(
            framing <= MOST_FRAMING,
            "its {part} puts {framing} tokens around a text; {MOST_FRAMING} is the most"
        );
    }
    Ok(())
}

/// The single steps of a record in order; a list of them is one of type `Sequence`.
fn collect<'a>(record: &'a Value, list: &str, depth: usize, steps: &mut Vec<&'a Value>) -> Result<()> {
    // The library also takes a list for what it is where the type is not said, so the key alone counts.
    let Some(inner) = record.get(list).and_then(Value::as_array) else {
        steps.push(record);
        return Ok(());
    };
    ensure!(depth > 0, "lists of steps are nested more than {DEEPEST} deep");
    for record in inner {
        collect(record, list, depth - 1, steps)?;
        ensure!(steps.len() <= MOST_STEPS, "has more than {MOST_STEPS} steps");
    }
    Ok(())
}

/// How many bytes a step makes of one at most, and how many it puts before a text.
fn growth_of(step: &Value) -> Result<(usize, usize)> {
    let length = |name: &str| step.get(name).and_then(Value::as_str).map_or(0, str::len);
    let growth = match step["type"].as_str().unwrap_or_default() {
        // Done again they change nothing, and the first time a few characters of a text.
        "NFC" | "NFD" | "NFKC" | "NFKD" | "Nmt" | "Lowercase" | "StripAccents" | "Strip" => 1,
        "Precompiled" => charsmap_growth(step)?,
        _ if step.get("pattern").is_some() => replacement_growth(&step["pattern"], length("content")),
        "ByteLevel" => 2,
        "Metaspace" | "BertNormalizer" => 4,
        _ => 1,
    };
    Ok((growth, length("prepend")))
}

/// What stands for a byte where `content` bytes stand for each match.
fn replacement_growth(pattern: &Value, content: usize) -> usize {
    if let Some(text) = pattern["String"].as_str() {
        return content.div_ceil(text.len().max(1)).max(1);
    }
    let regex = pattern["Regex"].as_str().unwrap_or_default();
    // A pattern without alternatives, repetitions from zero, groups and anchors matches a byte at least.
    let empty = regex.is_empty()
        || regex.contains(['*', '?', '|', '(', '^', '$'])
        || regex.contains("{0")
        || regex.contains("{,");
    let anchored = ["\\b", "\\B", "\\A", "\\z", "\\Z", "\\G", "\\K"].iter().any(|anchor| regex.contains(anchor));
    if empty || anchored { content.saturating_add(1) } else { content.max(1) }
}

/// The longest of the texts that a table of SentencePiece puts in the place of others. It is a length, so much of a trie, and
/// then the texts, each ended by a zero. The library makes room for the trie before it looks whether there is one.
fn charsmap_growth(step: &Value) -> Result<usize> {
    let encoded = step["precompiled_charsmap"].as_str().unwrap_or_default();
    let table = BASE64_STANDARD.decode(encoded).context("its table is no base64")?;
    let Some((length, rest)) = table.split_first_chunk::<4>() else { return Ok(1) };
    let length = u32::from_le_bytes(*length) as usize;
    let texts =
        rest.get(length..).with_context(|| format!("its table says it has {length} bytes, and has fewer"))?;
    Ok(texts.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(1).max(1))
}

/// Tokens a template puts around a text: each piece stands for the tokens listed under its name.
fn framing_of(step: &Value) -> usize {
    let tokens = |id: &str| step["special_tokens"][id]["ids"].as_array().map_or(1, Vec::len);
    let pieces = |name: &str| step.get(name).and_then(Value::as_array).into_iter().flatten();
    let of = |name: &str| {
        pieces(name).map(|piece| piece["SpecialToken"]["id"].as_str().map_or(1, tokens)).sum::<usize>()
    };
    of("single").max(of("pair"))
}

fn longest_text(step: &Value) -> usize {
    let pattern = &step["pattern"];
    ["String", "Regex"].iter().filter_map(|kind| pattern[*kind].as_str()).map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(file: Value) -> String {
        format!("{:#}", check(file.to_string().as_bytes()).unwrap_err())
    }

    fn replaced(pattern: Value, content: &str, times: usize) -> Value {
        let step = json!({"type": "Replace", "pattern": pattern, "content": content});
        json!({"normalizer": {"type": "Sequence", "normalizers": vec![step; times]}})
    }

    #[test]
    fn steps_of_real_tokenizers_pass() {
        let llama2 = json!({"model": {"type": "BPE"}, "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "pre_tokenizer": null, "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}});
        check(llama2.to_string().as_bytes()).unwrap();
        // A dozen steps that tidy spaces are no growth.
        check(replaced(json!({"Regex": "\\s+"}), " ", 12).to_string().as_bytes()).unwrap();
        // T5's: a table whose longest text has 33 bytes, and spaces.
        let table = BASE64_STANDARD.encode([&4u32.to_le_bytes()[..], &[0; 4], &[b'a'; 33]].concat());
        let t5 = json!({"normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": table}, {"type": "Strip"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]}});
        check(t5.to_string().as_bytes()).unwrap();
        check(b"{}").unwrap();
    }

    #[test]
    fn steps_that_multiply_are_refused() {
        let doubled = refusal(replaced(json!({"String": "a"}), "aa", 40));
        assert!(doubled.contains("its normalizer makes 1099511627776 bytes of one"), "{doubled}");
        assert!(refusal(replaced(json!({"Regex": "a?"}), "a", 40)).contains("bytes of one"));
        assert!(refusal(replaced(json!({"String": "a"}), "a", 100)).contains("more than 64 steps"));
        assert!(refusal(replaced(json!({"Regex": "a".repeat(5000)}), "a", 1)).contains("5000 bytes"));
        let prepended = json!({"normalizer": {"type": "Prepend", "prepend": "a".repeat(5000)}});
        assert!(refusal(prepended).contains("puts 5000 bytes before a text"));
        let bytes = json!({"pre_tokenizer": {"pretokenizers": vec![json!({"type": "ByteLevel"}); 9]}});
        assert!(refusal(bytes).contains("its pre_tokenizer makes 512 bytes"));
        let nested = (0..6).fold(json!({"type": "Fuse"}), |inner, _| json!({"decoders": [inner]}));
        assert!(refusal(json!({"decoder": nested})).contains("its decoder: lists of steps are nested"));
        let framed = json!({"post_processor": {"single": vec![json!({"SpecialToken": {"id": "s"}}); 20],
            "special_tokens": {"s": {"ids": vec![1; 20]}}}});
        assert!(refusal(framed).contains("400 tokens around a text"));
        // A trie of four bytes, and "abcd".
        let table = BASE64_STANDARD.encode([&4u32.to_le_bytes()[..], &[0; 4], &b"abcd".repeat(75)[..]].concat());
        let mapped = json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": table}});
        assert!(refusal(mapped).contains("makes 300 bytes of one"));
        let table = BASE64_STANDARD.encode([u32::MAX.to_le_bytes(), [0; 4]].concat());
        let endless = json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": table}});
        assert!(refusal(endless).contains("says it has 4294967295 bytes"));
    }
}

//! The rules by which a tokenizer.json rewrites texts before they are split, applied one by one so that their effect is bounded,
//! and the rules by which it rewrites decoded texts.
//!
//! The library applies all rules at once: sixty that each write two letters for one would fill the memory before it returns.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

use super::guard::guarded;

/// Largest number of bytes that a rule may write in place of a match.
const MOST_WRITTEN: usize = 256;
/// Largest ratio between the rewritten form of a piece of text and the piece, beside [`MOST_WRITTEN`]. Real rules write 3 bytes for
/// a space, and compatibility forms are at most 18 times as long.
const MOST_GROWTH: usize = 64;
/// Bytes of a text that are rewritten at a time.
const PIECE: usize = 1 << 12;

/// Rules that could make texts much longer by what they write; most tokenizers have none.
#[derive(Default)]
pub(in crate::lm) struct GrowingRules(Vec<NormalizerWrapper>);

/// Parts of a tokenizer.json that hold rules. The library rewrites added tokens while it reads the file.
#[derive(Default, Deserialize)]
struct File {
    normalizer: Option<NormalizerWrapper>,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    content: String,
    normalized: bool,
}

impl GrowingRules {
    /// Reads the rules of a tokenizer.json.
    ///
    /// # Errors
    ///
    /// A rule that writes too much at once, or fails, and added tokens that become too long.
    pub fn of(file: &[u8]) -> Result<GrowingRules> {
        // What is wrong with the file otherwise, the library says.
        let file = guarded(|| Ok(serde_json::from_slice::<File>(file).unwrap_or_default()))?;
        let (mut rules, mut growth) = (Vec::new(), 1_usize);
        in_order(file.normalizer.as_ref(), &mut rules);
        for rule in &rules {
            let json = serde_json::to_value(rule)?;
            growth = growth.saturating_mul(most_growth(&json)?);
            let name = json["type"].as_str().unwrap_or("without a type");
            // What a rule is made of is looked up when it is first used, and may turn out not to be what it should.
            guarded(|| rule.normalize(&mut NormalizedString::from("A rule, fürs Erste: １ ﬁ…"))).with_context(|| {
                let map = if name == "Precompiled" { ": its precompiled_charsmap is not such a map" } else { "" };
                format!("its normalizer {name} cannot be used{map}; fetch the file again, or save the tokenizer anew")
            })?;
        }
        let of_decoder = growth_of_decoder(&file.decoder)?;
        ensure!(
            of_decoder <= MOST_GROWTH,
            "the decoder of its tokenizer.json may write texts {of_decoder} times as long as they are: its rules have to be mended in the file"
        );
        let growing = GrowingRules(if growth > MOST_GROWTH { rules } else { Vec::new() });
        let mut rewritten = file.added_tokens.iter().filter(|token| token.normalized);
        rewritten.try_for_each(|token| growing.check(&token.content))?;
        Ok(growing)
    }

    /// Checks that a text does not become too long.
    ///
    /// # Errors
    ///
    /// A text that does.
    pub fn check(&self, mut text: &str) -> Result<()> {
        while !self.0.is_empty() && !text.is_empty() {
            let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE));
            let mut rewritten = NormalizedString::from(piece);
            for rule in &self.0 {
                guarded(|| rule.normalize(&mut rewritten))?;
                let most = MOST_GROWTH * piece.len() + MOST_WRITTEN;
                ensure!(
                    rewritten.get().len() <= most,
                    "the normalizer of its tokenizer.json makes more than {most} bytes of {}: its rules feed each other and have to be \
                     mended in the file",
                    piece.len()
                );
            }
            text = rest;
        }
        Ok(())
    }
}

fn in_order(normalizer: Option<&NormalizerWrapper>, rules: &mut Vec<NormalizerWrapper>) {
    match normalizer {
        Some(NormalizerWrapper::Sequence(sequence)) => {
            sequence.as_ref().iter().for_each(|rule| in_order(Some(rule), rules));
        }
        Some(rule) => rules.push(rule.clone()),
        None => {}
    }
}

/// Largest ratio by which all replacements of a decoder together may lengthen a text.
fn growth_of_decoder(decoder: &Value) -> Result<usize> {
    if decoder["type"] == "Replace" {
        return most_growth(decoder);
    }
    let rules = decoder["decoders"].as_array().into_iter().flatten();
    rules.map(growth_of_decoder).try_fold(1, |all: usize, own| Ok(all.saturating_mul(own?)))
}

/// Largest ratio by which a rule may lengthen a text.
fn most_growth(rule: &Value) -> Result<usize> {
    let Some(written) = rule["content"].as_str().or(rule["prepend"].as_str()) else {
        // Forms of Unicode, lower case, maps.
        return Ok(4);
    };
    ensure!(
        written.len() <= MOST_WRITTEN,
        "a rule of its normalizer writes {} bytes at once; the limit is {MOST_WRITTEN}",
        written.len()
    );
    // An expression may find a single byte, or nothing.
    Ok(match rule["pattern"]["String"].as_str() {
        Some(found) if !found.is_empty() => written.len().div_ceil(found.len()).max(1),
        _ => written.len() + 1,
    })
}

//! The texts of tokens, as a page shows them.

use anyhow::Result;

use super::Unit;
use crate::text::TextModel;

/// Tokens with their texts. A character that takes several tokens is one unit; where tokens are no character, each is a
/// replacement character. Without a tokenizer a unit is the number of a token.
pub(super) fn units(model: &TextModel, tokens: &[u32]) -> Result<Vec<Unit>> {
    const PART: char = '\u{fffd}';
    const LONGEST_CHARACTER: usize = 4; // bytes, and so tokens
    let Ok(tokenizer) = model.tokenizer() else {
        return Ok(tokens.iter().map(|token| Unit { text: format!("{token} "), tokens: 1 }).collect());
    };
    let pieces = model.pieces(tokens)?;
    let mut units = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let mut unit = Unit { text: pieces[at].clone(), tokens: 1 };
        if unit.text.contains(PART) {
            for count in 2..=LONGEST_CHARACTER.min(tokens.len() - at) {
                let text = tokenizer.decode(&tokens[at..at + count])?;
                if !text.contains(PART) && !text.is_empty() {
                    // Many decoders drop a space at the beginning.
                    let space = if pieces[at].starts_with(' ') && !text.starts_with(' ') { " " } else { "" };
                    unit = Unit { text: format!("{space}{text}"), tokens: count };
                    break;
                }
            }
        }
        at += unit.tokens;
        units.push(unit);
    }
    Ok(units)
}

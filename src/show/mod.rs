//! `show`: a text as a cache holds it, token by token, as a page or a picture.

mod attention;
mod log;
mod page;
mod picture;
mod read;
mod tokens;

use crate::task::Lifetimes;
use attention::Attention;

pub use page::page;
pub use picture::{animation, picture};
pub use read::Request;

/// The most tokens of a text: more make a page that no browser turns fluently.
pub const LONGEST: usize = 16_384;
/// Shades of a token, from held nowhere to held everywhere.
const SHADES: usize = 10;

/// A text as one or two caches hold it.
pub struct View {
    /// The title of the text.
    pub title: String,
    /// The model, by its name or the end of its path.
    pub model: String,
    /// Units that are shown as one: mostly a token, but all tokens of a character that has several.
    units: Vec<Unit>,
    tokens: usize,
    /// The number of tokens at the end that the model wrote itself.
    written: usize,
    /// Negative log-likelihoods under the full cache, of every token after the first; empty where they are not known.
    full: Vec<Option<f32>>,
    /// One cache, or two side by side.
    sides: Vec<Side>,
    attention: Option<Attention>,
}

/// Adjacent tokens with a text of their own.
struct Unit {
    text: String,
    tokens: usize,
}

/// One cache.
struct Side {
    /// The policy and its size.
    name: String,
    lifetimes: Lifetimes,
    /// Negative log-likelihoods under this cache, as `View::full`.
    nll: Vec<Option<f32>>,
}

impl View {
    /// The tokens of the text.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Whether it says what attention tokens had.
    pub fn has_attention(&self) -> bool {
        self.attention.is_some()
    }

    fn heading(&self) -> String {
        let names: Vec<_> = self.sides.iter().map(|side| side.name.as_str()).collect();
        let verb = if names.len() == 1 { "keeps" } else { "keep" };
        format!("What {} {verb} of {}", names.join(" and "), self.title)
    }

    /// The first token of each unit, with the unit.
    fn units(&self) -> impl Iterator<Item = (usize, &Unit)> {
        self.units.iter().scan(0, |at, unit| {
            let first = *at;
            *at += unit.tokens;
            Some((first, unit))
        })
    }
}

impl Side {
    /// The shade of some tokens after so many were read.
    fn shade(&self, first: usize, count: usize, read: usize) -> usize {
        let (mut held, mut all) = (0, 0);
        for left in (0..self.lifetimes.layers()).flat_map(|layer| self.lifetimes.left(layer)) {
            held += left[first..first + count].iter().filter(|step| **step as usize >= read).count();
            all += count;
        }
        // A little is not nothing, and almost all is not all.
        match held {
            0 => 0,
            _ if held == all => SHADES,
            _ => (held * SHADES / all).clamp(1, SHADES - 1),
        }
    }
}

/// A token's text where a reader can see what it is: control characters as their pictures.
fn shown(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(c),
            '\u{7f}' => '\u{2421}',
            // These turn the direction of what follows, and would turn that of the page.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

//! A template's source before it is compiled: what the engine lacks is put into its words.
//!
//! `{% generation %}`, which only marks the tokens of answers, becomes a scope of its own, as it is in Python. And every value
//! that could have grown (a sum, a product, a list, what a name is set to) goes through the filter `bounded`, because
//! the engine counts the steps and bytes of a template, but not what its lists hold of one another.

use minijinja::Error;
use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::refused;

const WORDS: [&str; 11] = ["in", "not", "and", "or", "if", "else", "elif", "is", "recursive", "print", "do"];

/// Largest number of words and signs without text between them, several times that of the longest templates. The time that the
/// engine's compiler takes grows with its square.
const MOST_PARTS: usize = 20_000;

/// Part of an expression between one pair of brackets, or outside of any.
#[derive(Default)]
struct Level {
    /// Where a list or dictionary that is written out begins.
    literal: Option<usize>,
    /// Where the operands of a sum and of a product begin.
    sum: Option<usize>,
    product: Option<usize>,
    has_sum: bool,
    has_product: bool,
    is_test: bool,
}

impl Level {
    fn end_product(&mut self, end: usize, edits: &mut Edits) {
        if let Some(start) = self.product.take()
            && std::mem::take(&mut self.has_product)
            && !self.is_test
        {
            edits.bound(start, end, "bounded");
        }
    }

    fn end(&mut self, end: usize, edits: &mut Edits) {
        self.end_product(end, edits);
        if let Some(start) = self.sum.take()
            && std::mem::take(&mut self.has_sum)
            && !self.is_test
        {
            edits.bound(start, end, "bounded");
        }
        self.is_test = false;
    }
}

/// Changes of the source: place, number of replaced bytes, and the text in their place.
#[derive(Default)]
struct Edits(Vec<(usize, usize, String)>);

impl Edits {
    fn bound(&mut self, start: usize, end: usize, filter: &str) {
        self.0.push((start, 0, "(".into()));
        self.0.push((end, 0, format!(")|{filter}")));
    }
}

/// Prepares a source for the engine; with `marks_answers`, `{% generation %}` is known.
///
/// # Errors
///
/// Text that is not Jinja.
pub fn prepared(source: &str, syntax: SyntaxConfig, marks_answers: bool) -> Result<String, Error> {
    // As jinja2 reads a file.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut edits = Edits::default();
    let mut levels = vec![Level::default()];
    // Of the statement that is read: its word, whether it sets an attribute, and where what it binds begins.
    let (mut word, mut is_attribute, mut bound_at) = ("", false, None);
    let (mut end, mut begins, mut is_value) = (0, false, false);
    let mut parts = 0;
    for token in tokenize(&source, false, syntax) {
        let (token, span) = token?;
        parts = if matches!(token, Token::TemplateData(_)) { 0 } else { parts + 1 };
        if parts > MOST_PARTS {
            return Err(refused(format!(
                "the template has more than {MOST_PARTS} words and signs without text between them"
            )));
        }
        let (start, next) = (span.start_offset as usize, span.end_offset as usize);
        let depth = levels.len();
        let Some(level) = levels.last_mut() else { break };
        let is_statement = std::mem::take(&mut begins);
        let is_boundary = match &token {
            Token::Ident(name) => WORDS.contains(name) || is_statement,
            Token::Comma | Token::Colon | Token::Assign | Token::VariableEnd | Token::BlockEnd => true,
            Token::Eq | Token::Ne | Token::Gt | Token::Gte | Token::Lt | Token::Lte => true,
            Token::BracketClose | Token::ParenClose | Token::BraceClose => true,
            _ => false,
        };
        let ends_binding = matches!(token, Token::BlockEnd) || (word == "with" && matches!(token, Token::Comma));
        if is_boundary {
            level.end(end, &mut edits);
        }
        if depth == 1
            && ends_binding
            && let Some(start) = bound_at.take()
        {
            edits.bound(start, end, if is_attribute { "bounded_attribute" } else { "bounded" });
        }
        match &token {
            Token::BlockStart => begins = true,
            Token::Ident(name) if is_statement => {
                (word, is_attribute) = (name, false);
                let scope = match *name {
                    "generation" => "with",
                    "endgeneration" => "endwith",
                    name => name,
                };
                if marks_answers && scope != *name {
                    edits.0.push((start, name.len(), scope.into()));
                }
            }
            Token::BlockEnd | Token::VariableEnd => word = "",
            Token::Dot if word == "set" && bound_at.is_none() => is_attribute = true,
            Token::Assign if depth == 1 && matches!(word, "set" | "with") && bound_at.is_none() => {
                bound_at = Some(next)
            }
            Token::Ident("is") => level.is_test = true,
            Token::Plus => {
                level.end_product(end, &mut edits);
                level.has_sum |= level.sum.is_some();
            }
            Token::Minus | Token::Tilde => level.end_product(end, &mut edits),
            Token::Mul => level.has_product |= level.product.is_some(),
            _ => {}
        }
        let is_low = is_boundary || matches!(token, Token::Plus | Token::Minus | Token::Tilde);
        let is_markup = matches!(token, Token::TemplateData(_) | Token::VariableStart | Token::BlockStart);
        let closes = matches!(token, Token::BracketClose | Token::ParenClose | Token::BraceClose);
        if closes && depth > 1 {
            let literal = levels.pop().and_then(|level| level.literal);
            if let Some(start) = literal {
                edits.0.push((start, 0, "((".into()));
                edits.0.push((next, 0, ")|bounded)".into()));
            }
        } else if !is_markup && !is_boundary {
            level.sum.get_or_insert(start);
            if !is_low {
                level.product.get_or_insert(start);
            }
        }
        let opens = matches!(token, Token::BracketOpen | Token::ParenOpen | Token::BraceOpen);
        if opens {
            let is_literal =
                matches!(token, Token::BraceOpen) || (matches!(token, Token::BracketOpen) && !is_value);
            levels.push(Level { literal: is_literal.then_some(start), ..Level::default() });
        }
        is_value = match &token {
            Token::Ident(name) => !WORDS.contains(name),
            Token::Str(_) | Token::String(_) => true,
            _ => closes,
        };
        end = next;
    }
    Ok(edited(&source, edits))
}

fn edited(source: &str, Edits(mut edits): Edits) -> String {
    // What ends at a place comes before what begins there.
    edits.sort_by_key(|(at, _, text)| (*at, !text.starts_with(')')));
    let (mut out, mut at) = (String::new(), 0);
    for (place, removed, text) in edits {
        out += &source[at..place];
        out += &text;
        at = place + removed;
    }
    out + &source[at..]
}

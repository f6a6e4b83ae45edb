//! Characters and sets of characters of a pattern, as Python means them.

use super::translate::{Parser, escaped_control};

/// What `\w`, `\s` and `\d` are; written for the inside of a class.
pub(super) const WORD: &str = "\\p{L}\\p{N}_";
const SPACE: &str = "\\s\\x{1c}-\\x{1f}";
const DIGIT: &str = "\\p{Nd}";

/// What an escape stands for.
pub(super) enum Set {
    One(char),
    /// Written for the inside of a class.
    Many(String),
}

/// Writes a character so that it has no other meaning, in and outside a class.
pub(super) fn literal(c: char) -> String {
    if c.is_ascii_alphanumeric() { c.into() } else { format!("\\x{{{:x}}}", u32::from(c)) }
}

/// What follows a backslash, in or outside a class.
pub(super) fn escape(parser: &mut Parser) -> Result<Set, String> {
    let c = parser.next().ok_or("it ends with a backslash")?;
    let one = match c {
        'w' => return Ok(Set::Many(WORD.to_owned())),
        's' => return Ok(Set::Many(SPACE.to_owned())),
        'd' => return Ok(Set::Many(DIGIT.to_owned())),
        'W' => return Ok(Set::Many(format!("[^{WORD}]"))),
        'S' => return Ok(Set::Many(format!("[^{SPACE}]"))),
        'D' => return Ok(Set::Many(format!("[^{DIGIT}]"))),
        'x' => parser.hex(2)?,
        'u' => parser.hex(4)?,
        'U' => parser.hex(8)?,
        c if escaped_control(c).is_some() => escaped_control(c).unwrap_or(c),
        c if c.is_ascii_alphanumeric() => return Err(format!("`\\{c}` has no meaning")),
        c => c,
    };
    Ok(Set::One(one))
}

/// A class, whose bracket is passed.
pub(super) fn class(parser: &mut Parser) -> Result<String, String> {
    let mut out = String::from(if parser.eat("^") { "[^" } else { "[" });
    let mut is_first = true;
    loop {
        if !is_first && parser.eat("]") {
            return Ok(out + "]");
        }
        is_first = false;
        let from = member(parser)?;
        // A hyphen at the end is itself.
        let is_last = parser.eat("-]");
        let is_range = !is_last && parser.eat("-");
        match (from, is_range) {
            (Set::One(from), true) => {
                let Set::One(to) = member(parser)? else { return Err("a range ends with a set".into()) };
                if to < from {
                    return Err(format!("the range {from}-{to} has its end first"));
                }
                out += &format!("{}-{}", literal(from), literal(to));
            }
            (Set::Many(_), true) => return Err("a range begins with a set".into()),
            (Set::One(c), false) => out += &literal(c),
            (Set::Many(set), false) => out += &set,
        }
        if is_last {
            return Ok(out + "\\x{2d}]");
        }
    }
}

fn member(parser: &mut Parser) -> Result<Set, String> {
    match parser.next() {
        None => Err("a class is not closed".into()),
        Some('\\') if parser.eat("b") => Ok(Set::One('\u{8}')),
        Some('\\') => escape(parser),
        Some(c) => Ok(Set::One(c)),
    }
}

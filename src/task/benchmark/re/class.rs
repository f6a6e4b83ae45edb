//! Characters and sets of characters of a pattern, as Python means them.

use super::translate::{Flags, Parser, escaped_control};

/// What `\w`, `\s` and `\d` are in patterns of text, and with `(?a)`; written for the inside of a class.
pub(super) const WORD: &str = "\\p{L}\\p{N}_";
pub(super) const ASCII_WORD: &str = "0-9A-Z_a-z";
const SPACE: &str = "\\s\\x{1c}-\\x{1f}";
const ASCII_SPACE: &str = "\\x{9}-\\x{d}\\x{20}";
const DIGIT: &str = "\\p{Nd}";
const ASCII_DIGIT: &str = "0-9";

/// What an escape stands for.
pub(super) enum Set {
    One(char),
    /// Written for the inside of a class.
    Many(String),
}

/// A character outside a class.
pub(super) fn literal(c: char, flags: Flags) -> String {
    if flags.ascii && flags.ignore_case && c.is_ascii_alphabetic() {
        format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase())
    } else {
        written(c)
    }
}

/// A character that has no other meaning, in and outside a class.
fn written(c: char) -> String {
    if c.is_ascii_alphanumeric() { c.into() } else { format!("\\x{{{:x}}}", u32::from(c)) }
}

/// What follows a backslash, in or outside a class.
pub(super) fn escape(parser: &mut Parser, ascii: bool) -> Result<Set, String> {
    let Some(c) = parser.peek() else { return Err("it ends with a backslash".into()) };
    if c.is_digit(8) {
        return parser.octal_digits().map(Set::One);
    }
    parser.next();
    let pick = |unicode: &str, of_ascii: &str| if ascii { of_ascii } else { unicode }.to_owned();
    let one = match c {
        'w' => return Ok(Set::Many(pick(WORD, ASCII_WORD))),
        's' => return Ok(Set::Many(pick(SPACE, ASCII_SPACE))),
        'd' => return Ok(Set::Many(pick(DIGIT, ASCII_DIGIT))),
        'W' => return Ok(Set::Many(format!("[^{}]", pick(WORD, ASCII_WORD)))),
        'S' => return Ok(Set::Many(format!("[^{}]", pick(SPACE, ASCII_SPACE)))),
        'D' => return Ok(Set::Many(format!("[^{}]", pick(DIGIT, ASCII_DIGIT)))),
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
pub(super) fn class(parser: &mut Parser, flags: Flags) -> Result<String, String> {
    let mut out = String::from(if parser.eat("^") { "[^" } else { "[" });
    let mut is_first = true;
    loop {
        if !is_first && parser.eat("]") {
            return Ok(out + "]");
        }
        is_first = false;
        let from = member(parser, flags)?;
        // A hyphen at the end is itself.
        let is_last = parser.eat("-]");
        let is_range = !is_last && parser.eat("-");
        match (from, is_range) {
            (Set::One(from), true) => {
                let Set::One(to) = member(parser, flags)? else { return Err("a range ends with a set".into()) };
                if to < from {
                    return Err(format!("the range {from}-{to} has its end first"));
                }
                push_range(&mut out, from, to, flags);
            }
            (Set::Many(_), true) => return Err("a range begins with a set".into()),
            (Set::One(c), false) => push_range(&mut out, c, c, flags),
            (Set::Many(set), false) => out += &set,
        }
        if is_last {
            return Ok(out + "\\x{2d}]");
        }
    }
}

fn member(parser: &mut Parser, flags: Flags) -> Result<Set, String> {
    match parser.next() {
        None => Err("a class is not closed".into()),
        Some('\\') if parser.eat("b") => Ok(Set::One('\u{8}')),
        Some('\\') => escape(parser, flags.ascii),
        Some(c) => Ok(Set::One(c)),
    }
}

fn push_range(out: &mut String, from: char, to: char, flags: Flags) {
    let mut push = |from: char, to: char| *out += &format!("{}-{}", written(from), written(to));
    push(from, to);
    if !(flags.ascii && flags.ignore_case) {
        return;
    }
    for (first, last, shift) in [('A', 'Z', 32i8), ('a', 'z', -32)] {
        let (low, high) = (from.max(first), to.min(last));
        let other = |c: char| char::from((c as u8).wrapping_add_signed(shift));
        if low <= high {
            push(other(low), other(high));
        }
    }
}

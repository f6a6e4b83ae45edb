//! A pattern of CPython 3.11's `re`, written anew for `fancy-regex`.
//!
//! It is parsed as Python's own `re._parser` does. What the two engines spell alike but mean differently is spelled out:
//! flags but `i`, `$`, classes and boundaries of words. Groups lose their names, which fancy-regex does not mix with numbers.
//! Refused are what task files have no use for: the flags `a` and `x`, comments, conditions and octal numbers.

use std::collections::BTreeMap;

use super::class::{self, Set};

/// Groups within groups; fancy-regex has a limit of 64, and a translation adds a few.
const MOST_DEPTH: usize = 50;
/// Characters that a pattern has when its repetitions are written out.
const MOST_WEIGHT: usize = 100_000;

#[derive(Clone, Copy, Default)]
pub(super) struct Flags {
    ignore_case: bool,
    multi_line: bool,
    dot_all: bool,
}

impl Flags {
    fn set(&mut self, flag: char, on: bool) -> Result<(), String> {
        match flag {
            // What patterns of text have in any case.
            'u' if on => {}
            'i' => self.ignore_case = on,
            'm' => self.multi_line = on,
            's' => self.dot_all = on,
            _ => return Err(format!("`{flag}` is not a flag here")),
        }
        Ok(())
    }
}

#[derive(PartialEq)]
enum Kind {
    Atom,
    /// A place in the text, which cannot be repeated.
    Place,
    Repeat,
}

/// A part that a quantifier may follow.
struct Item {
    text: String,
    kind: Kind,
    weight: usize,
    may_be_empty: bool,
    has_groups: bool,
}

impl Item {
    fn atom(text: impl Into<String>) -> Item {
        Item { text: text.into(), kind: Kind::Atom, weight: 1, may_be_empty: false, has_groups: false }
    }

    fn place(text: impl Into<String>) -> Item {
        Item { kind: Kind::Place, may_be_empty: true, ..Item::atom(text) }
    }
}

/// The pattern for fancy-regex, and the numbers of its named groups.
pub fn translate(source: &str) -> Result<(String, BTreeMap<String, usize>), String> {
    let chars = source.chars().collect();
    let mut parser = Parser { chars, at: 0, names: BTreeMap::new(), is_closed: vec![true], depth: 0 };
    let flags = parser.global_flags()?;
    let Item { text, .. } = parser.branches(flags)?;
    if parser.at < parser.chars.len() {
        return Err("a parenthesis is closed that is not open".into());
    }
    let text = if flags.ignore_case { format!("(?i:{text})") } else { text };
    Ok((text, parser.names))
}

/// The character of `\n` and its like.
pub(super) fn escaped_control(c: char) -> Option<char> {
    Some(match c {
        'a' => '\u{7}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' => '\\',
        _ => return None,
    })
}

/// Reads the number of a group from one or two digits at the beginning of `chars`, and counts them.
///
/// # Errors
/// An octal number: a 0, or three octal digits.
pub(super) fn group_number(chars: &[char]) -> Result<(usize, usize), String> {
    let digits: String = chars.iter().take(2).take_while(|c| c.is_ascii_digit()).collect();
    let is_octal = chars.len() > 2 && chars[..3].iter().all(|c| c.is_digit(8));
    match digits.parse() {
        Ok(group) if !is_octal && !digits.starts_with('0') => Ok((group, digits.len())),
        _ => Err(format!("`\\{digits}` is an octal number, which is not read; write \\x and two hex digits")),
    }
}

pub(super) struct Parser {
    chars: Vec<char>,
    at: usize,
    names: BTreeMap<String, usize>,
    /// Whether each group so far is closed; the whole is group 0.
    is_closed: Vec<bool>,
    depth: usize,
}

impl Parser {
    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.peek();
        self.at += usize::from(c.is_some());
        c
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let is_there = self.chars[self.at..].iter().copied().take(text.len()).eq(text.chars());
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    /// The text before `end`, which is passed.
    fn until(&mut self, end: char) -> Result<String, String> {
        let text: String = self.chars[self.at..].iter().take_while(|c| **c != end).collect();
        self.at += text.chars().count();
        if self.next().is_none() { Err(format!("`{end}` is missing")) } else { Ok(text) }
    }

    /// Reads the flags at the very beginning, such as `(?is)`.
    fn global_flags(&mut self) -> Result<Flags, String> {
        let mut flags = Flags::default();
        loop {
            let before = self.at;
            let letters = if self.eat("(?") { self.until(')').unwrap_or_default() } else { String::new() };
            if letters.is_empty() || !letters.chars().all(|c| c.is_ascii_alphabetic()) {
                self.at = before;
                return Ok(flags);
            }
            letters.chars().try_for_each(|flag| flags.set(flag, true))?;
        }
    }

    fn branches(&mut self, flags: Flags) -> Result<Item, String> {
        let mut whole = self.branch(flags)?;
        while self.eat("|") {
            let next = self.branch(flags)?;
            whole.text = format!("{}|{}", whole.text, next.text);
            whole.weight += next.weight;
            whole.may_be_empty |= next.may_be_empty;
            whole.has_groups |= next.has_groups;
        }
        Ok(whole)
    }

    fn branch(&mut self, flags: Flags) -> Result<Item, String> {
        let mut items: Vec<Item> = Vec::new();
        while let Some(c) = self.peek().filter(|c| !matches!(c, '|' | ')')) {
            self.at += 1;
            let item = match c {
                '.' => Item::atom(if flags.dot_all { "(?s:.)" } else { "[^\\n]" }),
                '^' => Item::place(if flags.multi_line { "(?m:^)" } else { "\\A" }),
                '$' => Item::place(if flags.multi_line { "(?=\\n|\\z)" } else { "(?=\\n?\\z)" }),
                '[' => Item::atom(class::class(self)?),
                '\\' => self.escape()?,
                '(' => self.group(flags)?,
                '*' | '+' | '?' | '{' => match self.counts(c)? {
                    Some((least, most)) => self.repeated(items.pop(), least, most)?,
                    None => Item::atom(class::literal('{')),
                },
                c => Item::atom(class::literal(c)),
            };
            items.push(item);
        }
        let weight = items.iter().map(|item| item.weight).sum();
        if weight > MOST_WEIGHT {
            return Err("its repetitions are too many".into());
        }
        let text: String = items.iter().map(|item| item.text.as_str()).collect();
        let may_be_empty = items.iter().all(|item| item.may_be_empty);
        let has_groups = items.iter().any(|item| item.has_groups);
        Ok(Item { weight, may_be_empty, has_groups, ..Item::atom(text) })
    }

    /// How often a quantifier repeats; `None` where a brace is not one.
    fn counts(&mut self, c: char) -> Result<Option<(usize, Option<usize>)>, String> {
        match c {
            '*' => return Ok(Some((0, None))),
            '+' => return Ok(Some((1, None))),
            '?' => return Ok(Some((0, Some(1)))),
            _ => {}
        }
        let text: String = self.chars[self.at..].iter().take_while(|c| **c != '}').collect();
        let (least, most) = text.split_once(',').unwrap_or((&text, &text));
        let is_count = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let is_closed = self.at + text.chars().count() < self.chars.len();
        if text.is_empty() || !is_closed || !is_count(least) || !is_count(most) {
            return Ok(None);
        }
        self.at += text.len() + 1;
        let count = |text: &str| text.parse().map_err(|_| format!("{text} repetitions are too many"));
        let least = if least.is_empty() { 0 } else { count(least)? };
        let most = if most.is_empty() { None } else { Some(count(most)?) };
        if most.is_some_and(|most| most < least) {
            return Err(format!("`{{{text}}}` has the larger number first"));
        }
        Ok(Some((least, most)))
    }

    fn repeated(&mut self, item: Option<Item>, least: usize, most: Option<usize>) -> Result<Item, String> {
        let Some(item) = item.filter(|item| item.kind != Kind::Place) else {
            return Err("there is nothing to repeat".into());
        };
        let Item { text, kind, weight, may_be_empty, has_groups } = item;
        if kind == Kind::Repeat {
            return Err("a repetition is repeated; put it into a group".into());
        }
        // Python's last round is the empty one, and its groups are empty then.
        if may_be_empty && has_groups && most != Some(1) {
            return Err("what is repeated has a group and may be empty".into());
        }
        let most_text = most.map_or(String::new(), |most| most.to_string());
        let mut text = format!("(?:{text}){{{least},{most_text}}}");
        if self.eat("?") {
            text += "?";
        } else if self.eat("+") {
            text = format!("(?>{text})");
        }
        let weight = weight.saturating_mul(most.unwrap_or(least).max(1));
        Ok(Item { text, kind: Kind::Repeat, weight, may_be_empty: may_be_empty || least == 0, has_groups })
    }

    /// What follows a backslash outside a class.
    fn escape(&mut self) -> Result<Item, String> {
        let c = self.peek().ok_or("it ends with a backslash")?;
        let word = class::WORD;
        let text = match c {
            'A' => "\\A".into(),
            'Z' => "\\z".into(),
            'b' => format!("(?:(?<=[{word}])(?![{word}])|(?<![{word}])(?=[{word}]))"),
            // Until 3.14 an empty text has no such place.
            'B' => format!("(?:(?<=[{word}])(?=[{word}])|(?<![{word}])(?![{word}])(?!\\A\\z))"),
            '0'..='9' => {
                let (group, digits) = group_number(&self.chars[self.at..])?;
                self.at += digits;
                return self.earlier_group(group);
            }
            _ => {
                return Ok(Item::atom(match class::escape(self)? {
                    Set::One(c) => class::literal(c),
                    Set::Many(set) => format!("[{set}]"),
                }));
            }
        };
        self.at += 1;
        Ok(Item::place(text))
    }

    fn earlier_group(&self, group: usize) -> Result<Item, String> {
        match self.is_closed.get(group) {
            Some(true) => Ok(Item { may_be_empty: true, ..Item::atom(format!("(?:\\{group})")) }),
            Some(false) => Err(format!("it refers to the group {group} inside of it")),
            None => Err(format!("there is no group {group} before it is referred to")),
        }
    }

    pub(super) fn hex(&mut self, digits: usize) -> Result<char, String> {
        let text: String = self.chars[self.at..].iter().take(digits).collect();
        self.at += text.chars().count();
        let is_hex = text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
        let code = u32::from_str_radix(&text, 16).ok().filter(|_| is_hex);
        code.and_then(char::from_u32).ok_or_else(|| format!("{text} is not a character of {digits} hex digits"))
    }

    /// Reads what follows an opening parenthesis.
    fn group(&mut self, flags: Flags) -> Result<Item, String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(format!("its groups are nested more than {MOST_DEPTH} deep"));
        }
        let item = if self.eat("?") { self.extension(flags)? } else { self.captured(None, flags)? };
        self.depth -= 1;
        Ok(item)
    }

    /// The rest of a group up to its end, in other parentheses.
    fn enclosed(&mut self, open: &str, flags: Flags) -> Result<Item, String> {
        let item = self.branches(flags)?;
        if !self.eat(")") {
            return Err("a parenthesis is not closed".into());
        }
        Ok(Item { text: format!("{open}{})", item.text), ..item })
    }

    fn captured(&mut self, name: Option<String>, flags: Flags) -> Result<Item, String> {
        let number = self.is_closed.len();
        self.is_closed.push(false);
        if let Some(name) = name
            && self.names.insert(name.clone(), number).is_some()
        {
            return Err(format!("two groups are called {name}"));
        }
        let group = self.enclosed("(", flags)?;
        self.is_closed[number] = true;
        Ok(Item { has_groups: true, ..group })
    }

    /// `(?...)`.
    fn extension(&mut self, flags: Flags) -> Result<Item, String> {
        for open in ["=", "!", "<=", "<!", ":", ">"] {
            if self.eat(open) {
                let item = self.enclosed(&format!("(?{open}"), flags)?;
                let may_be_empty = item.may_be_empty || !matches!(open, ":" | ">");
                return Ok(Item { may_be_empty, ..item });
            }
        }
        if self.eat("P<") {
            let name = self.until('>')?;
            let is_word = name.chars().all(|c| c.is_alphanumeric() || c == '_');
            if !is_word || name.chars().next().is_none_or(|c| c.is_numeric()) {
                return Err(format!("`{name}` is not a name of a group"));
            }
            return self.captured(Some(name), flags);
        }
        if self.eat("P=") {
            let name = self.until(')')?;
            let group = self.names.get(&name).ok_or_else(|| format!("there is no group {name}"))?;
            return self.earlier_group(*group);
        }
        let text = self.chars[self.at..].iter().take_while(|c| c.is_ascii_alphabetic() || **c == '-');
        let text: String = text.collect();
        self.at += text.len();
        if text.is_empty() || !self.eat(":") {
            return Err(match self.peek() {
                Some(')') if !text.is_empty() => "flags for the whole stand at its beginning".into(),
                _ => format!("`(?{text}{}` has no meaning", self.peek().unwrap_or_default()),
            });
        }
        let mut of_group = flags;
        let (on, off) = text.split_once('-').unwrap_or((&text, ""));
        on.chars().try_for_each(|flag| of_group.set(flag, true))?;
        off.chars().try_for_each(|flag| of_group.set(flag, false))?;
        let open = if of_group.ignore_case { "(?i:" } else { "(?-i:" };
        self.enclosed(open, of_group)
    }
}

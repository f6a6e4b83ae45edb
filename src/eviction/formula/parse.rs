//! The text of a formula as a tree.

use std::fmt;
use std::ops::Range;

use super::canonical::{Expr, add, call, divide, multiply, negate};
use super::vectors::FileVectors;
use super::words::{Count, Function, FunctionRow, Kind, WORDS, calls};
use crate::format::did_you_mean;

/// Parentheses and calls inside each other.
const DEEPEST: usize = 50;
const LONGEST: usize = 1000;

/// A formula that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormulaError {
    formula: String,
    /// What is wrong there, in bytes.
    place: Range<usize>,
    message: String,
    pub hint: String,
}

impl std::error::Error for FormulaError {}

impl fmt::Display for FormulaError {
    /// What is wrong, and at which character of the formula.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.formula[..self.place.start].chars().count();
        write!(f, "{} (character {} of `{}`)", self.message, before + 1, self.formula)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token<'a> {
    Number(f64),
    Name(&'a str),
    Symbol(&'a str),
    Text(String),
    End,
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token<'a>, Range<usize>)>,
    at: usize,
    depth: usize,
}

/// Parses a formula.
pub(in crate::eviction) fn parse(text: &str) -> Result<Expr, FormulaError> {
    let mut parser = Parser { text, tokens: Vec::new(), at: 0, depth: 0 };
    if text.len() > LONGEST {
        return Err(parser.error(0..0, format!("the formula has more than {LONGEST} characters")));
    }
    parser.tokens = parser.tokens()?;
    let expr = parser.comparison()?;
    match parser.next() {
        (Token::End, _) => Ok(expr),
        (_, place) => {
            let found = format!("`{}` is not expected here", &text[place.clone()]);
            Err(parser.error(place, found))
        }
    }
}

impl<'a> Parser<'a> {
    fn error(&self, place: Range<usize>, message: impl Into<String>) -> FormulaError {
        FormulaError::new(self.text, place, message)
    }

    fn tokens(&self) -> Result<Vec<(Token<'a>, Range<usize>)>, FormulaError> {
        let text = self.text;
        let mut tokens = Vec::new();
        let mut start = 0;
        while let Some(first) = text[start..].chars().next() {
            let rest = &text[start..];
            let run = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
            let (token, length) = if first.is_whitespace() {
                start += first.len_utf8();
                continue;
            } else if first.is_ascii_digit() || first == '.' {
                let mut length = run(|c| c.is_ascii_digit() || c == '.');
                let exponent = rest[length..].strip_prefix(['e', 'E']);
                if let Some(exponent) = exponent {
                    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                    let number = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
                    length += 1 + exponent.len() - digits.len() + number;
                }
                let Some(number) = rest[..length].parse().ok().filter(|number: &f64| number.is_finite()) else {
                    let message = format!("`{}` is not a number", &rest[..length]);
                    return Err(self.error(start..start + length, message));
                };
                (Token::Number(number), length)
            } else if first.is_ascii_alphabetic() || first == '_' {
                let length = run(|c| c.is_ascii_alphanumeric() || c == '_');
                (Token::Name(&rest[..length]), length)
            } else if first == '"' {
                // Texts are written as JSON writes them.
                let mut texts = serde_json::Deserializer::from_str(rest).into_iter();
                match texts.next() {
                    Some(Ok(text)) => (Token::Text(text), texts.byte_offset()),
                    error => {
                        let wrong = error.and_then(Result::err).map_or(rest.len(), |error| error.column());
                        let place = start..start + rest.floor_char_boundary(wrong);
                        let hint = "write \\\" for a quote inside of it and \\\\ for a backslash".to_owned();
                        let error = self.error(place, "the text has no end, or something in it has no meaning");
                        return Err(FormulaError { hint, ..error });
                    }
                }
            } else {
                const SYMBOLS: [&str; 13] = ["<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "(", ")", ","];
                let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) else {
                    let place = start..start + first.len_utf8();
                    return Err(self.error(place, format!("`{first}` has no meaning in a formula")));
                };
                (Token::Symbol(symbol), symbol.len())
            };
            tokens.push((token, start..start + length));
            start += length;
        }
        tokens.push((Token::End, text.len()..text.len()));
        Ok(tokens)
    }

    fn peek(&self) -> &Token<'a> {
        &self.tokens[self.at].0
    }

    /// The next token. After the end it stays there.
    fn next(&mut self) -> (Token<'a>, Range<usize>) {
        let next = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        next
    }

    /// The next token if it is one of these symbols.
    fn symbol(&mut self, of: &[&'static str]) -> Option<&'static str> {
        let Token::Symbol(symbol) = self.peek() else { return None };
        let found = of.iter().copied().find(|other| other == symbol);
        if found.is_some() {
            self.next();
        }
        found
    }

    fn comparison(&mut self) -> Result<Expr, FormulaError> {
        const SIGNS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];
        self.depth += 1;
        if self.depth > DEEPEST {
            let place = self.tokens[self.at].1.clone();
            return Err(self.error(place, format!("more than {DEEPEST} parentheses inside each other")));
        }
        let mut value = self.sum()?;
        if let Some(sign) = self.symbol(&SIGNS) {
            let (left, right) = (value, self.sum()?);
            value = match sign {
                "<" => call(Function::Less, vec![left, right]),
                "<=" => call(Function::AtMost, vec![left, right]),
                ">" => call(Function::Less, vec![right, left]),
                ">=" => call(Function::AtMost, vec![right, left]),
                "==" => call(Function::Equal, vec![left, right]),
                _ => call(Function::Unequal, vec![left, right]),
            };
        }
        self.depth -= 1;
        Ok(value)
    }

    fn sum(&mut self) -> Result<Expr, FormulaError> {
        let mut terms = vec![self.product()?];
        while let Some(sign) = self.symbol(&["+", "-"]) {
            let term = self.product()?;
            terms.push(if sign == "-" { negate(term) } else { term });
        }
        Ok(add(terms))
    }

    fn product(&mut self) -> Result<Expr, FormulaError> {
        let mut product = self.factor()?;
        while let Some(sign) = self.symbol(&["*", "/"]) {
            let factor = self.factor()?;
            product = if sign == "*" { multiply(vec![product, factor]) } else { divide(product, factor) };
        }
        Ok(product)
    }

    fn factor(&mut self) -> Result<Expr, FormulaError> {
        let mut negative = false;
        while let Some(sign) = self.symbol(&["-", "+"]) {
            negative ^= sign == "-";
        }
        let value = self.value()?;
        Ok(if negative { negate(value) } else { value })
    }

    fn value(&mut self) -> Result<Expr, FormulaError> {
        match self.next() {
            (Token::Number(number), _) => Ok(Expr::Number(number)),
            (Token::Symbol("("), open) => {
                let inside = self.comparison()?;
                self.close(open)?;
                Ok(inside)
            }
            (Token::Name(name), place) => self.name(name, place),
            (token, place) => {
                let found = match token {
                    Token::End => "the formula ends where a value is expected".to_owned(),
                    Token::Text(text) => {
                        format!("the text {text:?} is not a value: texts stand in dot, rotated_dot and token_in")
                    }
                    _ => format!("a value is expected here, not `{}`", &self.text[place.clone()]),
                };
                Err(self.error(place, found))
            }
        }
    }

    fn close(&mut self, open: Range<usize>) -> Result<(), FormulaError> {
        if self.symbol(&[")"]).is_some() {
            return Ok(());
        }
        let place = self.tokens[self.at].1.clone();
        let hint = format!("close the parenthesis of character {}", self.text[..open.start].chars().count() + 1);
        Err(FormulaError { hint, ..self.error(place, "`,` or `)` is missing") })
    }

    fn name(&mut self, name: &'a str, place: Range<usize>) -> Result<Expr, FormulaError> {
        let function = calls().find(|function| function.name == name);
        let word = WORDS.iter().find(|word| word.name == name);
        let is_call = *self.peek() == Token::Symbol("(");
        match (function, word) {
            (Some(function), _) if is_call => self.arguments(function, place),
            (Some(function), _) => Err(self.misused(function, place, format!("`{name}` needs arguments"))),
            (_, Some(_)) if is_call => {
                Err(self.error(place, format!("`{name}` is a word and takes no arguments")))
            }
            (_, Some(word)) => Ok(Expr::Word(word.word)),
            (None, None) => {
                let known = WORDS.iter().map(|word| word.name).chain(calls().map(|call| call.name));
                let error = self.error(place, format!("unknown word `{name}`"));
                Err(FormulaError { hint: did_you_mean(name, known) + &error.hint, ..error })
            }
        }
    }

    /// A function that is used otherwise than its meaning says.
    fn misused(&self, row: &FunctionRow, place: Range<usize>, message: String) -> FormulaError {
        FormulaError { hint: format!("write {}{}", row.name, row.meaning), ..self.error(place, message) }
    }

    fn arguments(&mut self, row: &FunctionRow, place: Range<usize>) -> Result<Expr, FormulaError> {
        let FunctionRow { function, name, arguments: (fewest, most), of_texts, .. } = *row;
        let (_, open) = self.next();
        let mut arguments = Vec::new();
        loop {
            let start = self.tokens[self.at].1.start;
            let argument = if of_texts { self.text(row)? } else { self.comparison()? };
            let written = start..self.tokens[self.at - 1].1.end;
            arguments.push(argument);
            match (row.kind, row.count) {
                (Kind::Steps, _) if arguments.len() > 1 => self.check_number(function, &arguments, written)?,
                (_, Some(count)) if arguments.len() == most => {
                    self.check_count(name, count, &arguments, written)?
                }
                _ => {}
            }
            if self.symbol(&[","]).is_none() {
                break;
            }
        }
        self.close(open)?;
        if !(fewest..=most).contains(&arguments.len()) {
            let needed = match (fewest, most) {
                (1, 1) => "1 argument".to_owned(),
                (n, m) if n == m => format!("{n} arguments"),
                (n, m) => format!("{n} or {m} arguments"),
            };
            return Err(self.misused(row, place, format!("`{name}` takes {needed}, not {}", arguments.len())));
        }
        if let (Function::Dot | Function::RotatedDot, [Expr::Text(file), Expr::Text(tensor)]) =
            (function, arguments.as_slice())
        {
            // A formula means the vectors, wherever the file is.
            let opened = FileVectors::open(file, tensor).map_err(|error| {
                self.misused(row, place, format!("the file {file:?} of `{name}` cannot be used: {error}"))
            })?;
            arguments[0] = Expr::Text(opened);
        }
        Ok(call(function, arguments))
    }

    /// An argument that is a text.
    fn text(&mut self, row: &FunctionRow) -> Result<Expr, FormulaError> {
        match self.next() {
            (Token::Text(text), place) if text.is_empty() => Err(self.error(place, "the text is empty")),
            (Token::Text(text), _) => Ok(Expr::Text(text)),
            (_, place) => {
                Err(self.misused(row, place, format!("`{}` needs a text in double quotes here", row.name)))
            }
        }
    }

    /// The last argument, where that is a whole number of something, written as such.
    fn check_count(
        &self,
        name: &str,
        Count { of, from, to, is_odd }: Count,
        arguments: &[Expr],
        place: Range<usize>,
    ) -> Result<(), FormulaError> {
        let is_allowed = |number: f64| {
            let is_in_range = (f64::from(from)..=f64::from(to)).contains(&number);
            number.fract() == 0.0 && is_in_range && (!is_odd || number % 2.0 == 1.0)
        };
        match arguments {
            [.., Expr::Number(number)] if is_allowed(*number) => Ok(()),
            _ => {
                let a = if is_odd { "an odd" } else { "a" };
                Err(self.error(place, format!("`{name}` takes {a} number of {of} from {from} to {to}")))
            }
        }
    }

    /// The last argument of what remembers steps: a number, or arithmetic of numbers and `size`, which must give one at any size.
    fn check_number(
        &self,
        function: Function,
        arguments: &[Expr],
        place: Range<usize>,
    ) -> Result<(), FormulaError> {
        let call = Expr::Call(function, arguments.to_vec());
        let is_arithmetic = arguments.last().is_some_and(|number| number.number_at(Some(1)).is_some());
        let fault = call.parameter_fault(if is_arithmetic { None } else { Some(1) });
        fault.map_or(Ok(()), |message| Err(self.error(place, message)))
    }
}

impl FormulaError {
    pub(super) fn new(formula: &str, place: Range<usize>, message: impl Into<String>) -> FormulaError {
        let hint = "`tova-bench list scores` lists all words and functions".to_owned();
        FormulaError { formula: formula.to_owned(), place, message: message.into(), hint }
    }

    /// The part of the formula that is wrong; empty at its end.
    #[cfg(test)]
    pub fn part(&self) -> &str {
        &self.formula[self.place.clone()]
    }
}

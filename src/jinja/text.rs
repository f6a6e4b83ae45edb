//! Values as text, as Python writes them: `str`, `repr` and `json.dumps`.
//!
//! Text that is written is charged to the template, so that a template cannot write values without a limit.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Deepest nesting of values that are written; Python has a limit of this kind.
const MOST_DEPTH: usize = 100;

/// Options of `json.dumps`.
pub struct Json {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item: String,
    pub key: String,
    pub sort_keys: bool,
}

/// Shortest digits that give the number back, with an exponent below 1e-4 and from 1e16 on.
pub fn float(number: f64) -> String {
    if number.is_nan() || number.is_infinite() {
        return number.to_string().to_lowercase();
    }
    let exponent = format!("{number:e}");
    let (digits, exponent) = exponent.split_once('e').unwrap_or((&exponent, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..16 => format!("{number:?}"),
        power => format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs()),
    }
}

/// Writes a string in single quotes, or in double quotes if it has single quotes only.
pub fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_ascii_control() => drop(write!(out, "\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

/// Writes `str(value)`.
pub fn str(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    let mut writer = Writer { state, json: None, out: String::new() };
    match value.as_str() {
        Some(text) => writer.out += text,
        None if value.is_undefined() => {}
        None => writer.value(value, 0)?,
    }
    Ok(writer.out)
}

/// Writes `json.dumps(value)`.
pub fn json(state: &State<'_, '_>, value: &Value, json: &Json) -> Result<String, Error> {
    let mut writer = Writer { state, json: Some(json), out: String::new() };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'a, 't, 'e> {
    state: &'a State<'t, 'e>,
    /// Options of `json.dumps`; `None` writes `repr`.
    json: Option<&'a Json>,
    out: String,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MOST_DEPTH {
            let message = format!("a value holds others more than {MOST_DEPTH} deep");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        let before = self.out.len();
        let word =
            |of_json: &'static str, of_repr: &'static str| if self.json.is_some() { of_json } else { of_repr };
        match value.kind() {
            ValueKind::None => self.out += word("null", "None"),
            ValueKind::Bool => {
                self.out += if value.is_true() { word("true", "True") } else { word("false", "False") }
            }
            ValueKind::Number => self.number(value),
            ValueKind::String => {
                let text = value.as_str().unwrap_or_default();
                self.state.consume_fuel(text.len() as u64 / 16)?;
                self.string(text);
            }
            ValueKind::Seq | ValueKind::Iterable => return self.sequence(value, depth),
            ValueKind::Map => return self.mapping(value, depth),
            ValueKind::Undefined if self.json.is_none() => self.out += "Undefined",
            ValueKind::Plain if self.json.is_none() => drop(write!(self.out, "{value}")),
            kind => {
                let message = format!("a value of the type {kind} cannot be written");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        self.state.consume_fuel(1 + (self.out.len() - before) as u64 / 64)
    }

    fn number(&mut self, value: &Value) {
        match f64::try_from(value.clone()) {
            Ok(number) if !value.is_integer() => {
                let text = float(number);
                self.out += match text.as_str() {
                    "nan" if self.json.is_some() => "NaN",
                    "inf" if self.json.is_some() => "Infinity",
                    "-inf" if self.json.is_some() => "-Infinity",
                    text => text,
                };
            }
            _ => drop(write!(self.out, "{value}")),
        }
    }

    fn string(&mut self, text: &str) {
        let Some(json) = self.json else {
            self.out += &quoted(text);
            return;
        };
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out += "\\\"",
                '\\' => self.out += "\\\\",
                '\n' => self.out += "\\n",
                '\r' => self.out += "\\r",
                '\t' => self.out += "\\t",
                '\u{8}' => self.out += "\\b",
                '\u{c}' => self.out += "\\f",
                c if c < ' ' || (json.ensure_ascii && c > '~') => {
                    let mut units = [0; 2];
                    self.out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn sequence(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let is_tuple = value.is_tuple() && self.json.is_none();
        self.out.push(if is_tuple { '(' } else { '[' });
        let mut count = 0;
        for item in value.try_iter()? {
            self.separate(count, depth)?;
            self.value(&item, depth + 1)?;
            count += 1;
        }
        if is_tuple && count == 1 {
            self.out.push(',');
        }
        self.close(count, depth, if is_tuple { ')' } else { ']' })
    }

    fn mapping(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('{');
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.json.is_some_and(|json| json.sort_keys) {
            keys.sort();
        }
        for (at, key) in keys.iter().enumerate() {
            self.separate(at, depth)?;
            match (self.json, key.as_str()) {
                (Some(_), None) => {
                    let mut text = Writer { state: self.state, json: self.json, out: String::new() };
                    text.value(key, depth + 1)?;
                    self.string(&text.out);
                }
                _ => self.value(key, depth + 1)?,
            }
            self.out += self.json.map_or(": ", |json| &json.key);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.close(keys.len(), depth, '}')
    }

    fn separate(&mut self, at: usize, depth: usize) -> Result<(), Error> {
        if at > 0 {
            self.out += self.json.map_or(", ", |json| &json.item);
        }
        self.line(depth + 1)
    }

    fn close(&mut self, count: usize, depth: usize, bracket: char) -> Result<(), Error> {
        if count > 0 {
            self.line(depth)?;
        }
        self.out.push(bracket);
        self.state.consume_fuel(1)
    }

    fn line(&mut self, depth: usize) -> Result<(), Error> {
        let Some(indent) = self.json.and_then(|json| json.indent.as_ref()) else { return Ok(()) };
        self.state.consume_fuel((indent.len() * depth) as u64 / 64)?;
        self.out.push('\n');
        self.out += &indent.repeat(depth);
        Ok(())
    }
}

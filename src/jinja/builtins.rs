//! Filters, tests, functions and methods of jinja2 and Python that the engine lacks or defines otherwise.

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;
use minijinja_contrib::{filters, globals};

use super::Dialect;
use super::strftime::strftime_now;
use super::text::{self, Json};

/// Largest size in bytes of all that a value holds, counted each time that it is held. Each value also counts a fixed size beside
/// its text.
const MOST_HELD: usize = 1 << 26;
const SLOT: usize = 512;
/// Deepest nesting of values within values.
const MOST_DEPTH: usize = 64;

/// Error for an operation that cannot be done.
pub fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Adds all filters, tests, functions and methods to an engine.
pub fn add(environment: &mut Environment<'static>, dialect: Dialect) {
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, state, value| match value.kind() {
        ValueKind::String | ValueKind::Undefined => minijinja::escape_formatter(out, state, value),
        _ => Ok(out.write_str(&text::str(state, value)?)?),
    });
    environment.add_filter("bounded", |state: &State<'_, '_>, value: Value| bounded(state, value, 0));
    environment.add_filter("bounded_attribute", |state: &State<'_, '_>, value: Value| bounded(state, value, 1));
    environment.add_filter("string", |state: &State<'_, '_>, value: &Value| text::str(state, value));
    environment.add_filter("join", join);
    // Keys of a dictionary are not attributes.
    environment.add_filter("attr", |value: &Value, name: &str| match value.kind() {
        ValueKind::Map if !is_namespace(value) => Ok(Value::UNDEFINED),
        _ => value.get_attr(name),
    });
    environment.add_filter("wordcount", |text: &str| {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count()
    });
    environment.add_filter("truncate", truncate);
    environment.add_filter("int", |value: &Value, default: Option<Value>| {
        let number = number(value).map(f64::trunc).filter(|number| number.abs() < 2f64.powi(63));
        match i64::try_from(value.clone()) {
            Ok(integer) if value.is_integer() => Value::from(integer),
            _ => value.as_str().and_then(|text| text.trim().parse::<i64>().ok()).map(Value::from).unwrap_or_else(
                || number.map(|number| Value::from(number as i64)).or(default).unwrap_or_else(|| Value::from(0)),
            ),
        }
    });
    environment.add_filter("float", |value: &Value, default: Option<Value>| {
        number(value).map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0))
    });
    environment.add_filter("striptags", filters::striptags);
    environment.add_filter("filesizeformat", filters::filesizeformat);
    match dialect {
        Dialect::Chat => {
            environment.add_filter("tojson", tojson);
            environment.add_function("strftime_now", strftime_now);
            environment.add_function("raise_exception", |message: String| Err::<String, _>(refused(message)));
        }
        Dialect::Harness => environment.add_filter("tojson", html_json),
    }
    let is_callable = |value: &Value| value.kind() == ValueKind::Plain;
    environment.add_test("callable", is_callable);
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
            || (value.kind() == ValueKind::Iterable && value.len().is_some())
    });
    environment.add_function("cycler", |items: Rest<Value>| globals::cycler(items.0));
    environment.add_function("joiner", globals::joiner);
    environment.remove_global("debug");
}

/// Returns the value if it does not hold too much, or itself. An attribute of a namespace, which is inside it, and everything else
/// inside a value must not hold a namespace, which could hold that value in turn.
fn bounded(state: &State<'_, '_>, value: Value, depth: usize) -> Result<Value, Error> {
    if value.as_object().is_some() {
        let mut left = MOST_HELD;
        hold(&value, depth, &mut left)?;
        state.consume_fuel(1 + ((MOST_HELD - left) / SLOT / 8) as u64)?;
    }
    Ok(value)
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("Namespace"))
}

fn hold(value: &Value, depth: usize, left: &mut usize) -> Result<(), Error> {
    let cost = SLOT + value.as_str().map_or(0, str::len);
    *left = left.checked_sub(cost).ok_or_else(|| refused(format!("a value holds more than {MOST_HELD} bytes")))?;
    if depth > 0 && is_namespace(value) {
        return Err(refused("a namespace is put into a value, which could hold itself"));
    }
    if depth > MOST_DEPTH {
        return Err(refused(format!("a value holds others more than {MOST_DEPTH} deep")));
    }
    match value.kind() {
        // What has no length is made only when it is read.
        ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => {
            value.try_iter()?.try_for_each(|item| hold(&item, depth + 1, left))
        }
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            hold(&key, depth + 1, left)?;
            hold(&value.get_item(&key)?, depth + 1, left)
        }),
        _ => Ok(()),
    }
}

fn join(
    state: &State<'_, '_>,
    values: &Value,
    separator: Option<&Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let separator = separator.cloned().or(kwargs.get("d")?).map_or(Ok(String::new()), |d| text::str(state, &d))?;
    let attribute: Option<String> = kwargs.get("attribute")?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    for (at, value) in values.try_iter()?.enumerate() {
        let value = attribute.as_ref().map_or(Ok(value.clone()), |name| value.get_attr(name))?;
        let before = out.len();
        out += if at > 0 { &separator } else { "" };
        out += &text::str(state, &value)?;
        state.consume_fuel(1 + (out.len() - before) as u64 / 64)?;
    }
    Ok(out)
}

/// Number that a value is, or that its text says.
fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some(text) => text.trim().parse().ok(),
        None => f64::try_from(value.clone()).ok(),
    }
}

fn truncate(text: &str, length: Option<usize>, kwargs: Kwargs) -> Result<String, Error> {
    let length = length.or(kwargs.get("length")?).unwrap_or(255);
    let keeps_words = !kwargs.get::<Option<bool>>("killwords")?.unwrap_or(false);
    let end = kwargs.get::<Option<String>>("end")?.unwrap_or("...".into());
    let leeway = kwargs.get::<Option<usize>>("leeway")?.unwrap_or(5);
    kwargs.assert_all_used()?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text.to_owned());
    }
    let kept: String = text.chars().take(length.saturating_sub(end.chars().count())).collect();
    let words = kept.rsplit_once(' ').map_or(kept.as_str(), |(words, _)| words);
    Ok(if keeps_words { words } else { &kept }.to_owned() + &end)
}

/// Filter `tojson` of transformers: `json.dumps`, which escapes nothing for HTML.
fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    ensure_ascii: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let json = json_style(ensure_ascii.or(kwargs.get("ensure_ascii")?).unwrap_or(false), &kwargs)?;
    kwargs.assert_all_used()?;
    text::json(state, value, &json)
}

/// Filter `tojson` of jinja2 itself, which escapes HTML.
fn html_json(state: &State<'_, '_>, value: &Value, indent: Option<usize>, kwargs: Kwargs) -> Result<Value, Error> {
    let json = json_style(true, &kwargs)?;
    let json =
        Json { indent: indent.map(|count| " ".repeat(count.min(64))).or(json.indent), sort_keys: true, ..json };
    kwargs.assert_all_used()?;
    let text = text::json(state, value, &json)?;
    let escapes = [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\'', "\\u0027")];
    Ok(Value::from_safe_string(escapes.iter().fold(text, |text, (from, to)| text.replace(*from, to))))
}

fn json_style(ensure_ascii: bool, kwargs: &Kwargs) -> Result<Json, Error> {
    let indent: Option<Value> = kwargs.get("indent")?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(indent)?.min(64)),
        }),
    };
    let separators: Option<Value> = kwargs.get("separators")?;
    let (item, key) = match separators.filter(|separators| !separators.is_none()) {
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
        Some(pair) => {
            let part = |at: usize| {
                let part = pair.get_item_by_index(at)?;
                part.as_str().map(str::to_owned).ok_or_else(|| refused("`separators` are two strings"))
            };
            (part(0)?, part(1)?)
        }
    };
    let sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    Ok(Json { ensure_ascii, indent, item, key, sort_keys })
}

/// Whether Python's `str.isspace` says that a character is white space.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// Calls a method of Python's strings, lists or dictionaries.
fn method(state: &mut State<'_, '_>, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let none = || refused(format!("Python's {method} found nothing"));
    match value.kind() {
        ValueKind::Seq if method == "index" && args.len() == 1 => {
            let at = value.try_iter()?.position(|item| item == args[0]);
            return at.map(Value::from).ok_or_else(none);
        }
        ValueKind::Seq | ValueKind::Map if method == "copy" && args.is_empty() => return Ok(value.clone()),
        ValueKind::String => {}
        _ => return unknown_method_callback(state, value, method, args),
    }
    let text = value.as_str().unwrap_or_default();
    let first = args.first().and_then(Value::as_str);
    let place =
        |found: Option<usize>| found.map(|bytes| text[..bytes].chars().count()).map(Value::from).ok_or_else(none);
    let three = |parts: Option<(&str, &str)>, separator: &str, otherwise: [&str; 3]| {
        let parts = parts.map_or(otherwise, |(before, after)| [before, separator, after]);
        Ok(Value::from(minijinja::value::Tuple::from(parts.map(Value::from))))
    };
    match (method, args.len(), first) {
        ("strip", 0, _) => Ok(text.trim_matches(is_space).into()),
        ("lstrip", 0, _) => Ok(text.trim_start_matches(is_space).into()),
        ("rstrip", 0, _) => Ok(text.trim_end_matches(is_space).into()),
        ("split" | "rsplit", 0, _) => {
            Ok(text.split(is_space).filter(|word| !word.is_empty()).map(Value::from).collect())
        }
        ("rsplit", 2, Some(separator)) if !separator.is_empty() => {
            let most = args[1].as_usize().ok_or_else(|| refused("rsplit(separator, count)"))?;
            let mut parts: Vec<Value> = text.rsplitn(most.saturating_add(1), separator).map(Value::from).collect();
            parts.reverse();
            Ok(parts.into())
        }
        ("splitlines", 0, _) => Ok(lines(text).map(Value::from).collect()),
        ("index", 1, Some(wanted)) => place(text.find(wanted)),
        ("rindex", 1, Some(wanted)) => place(text.rfind(wanted)),
        ("partition", 1, Some(separator)) if !separator.is_empty() => {
            three(text.split_once(separator), separator, [text, "", ""])
        }
        ("rpartition", 1, Some(separator)) if !separator.is_empty() => {
            three(text.rsplit_once(separator), separator, ["", "", text])
        }
        ("removeprefix", 1, Some(prefix)) => Ok(text.strip_prefix(prefix).unwrap_or(text).into()),
        ("removesuffix", 1, Some(suffix)) => Ok(text.strip_suffix(suffix).unwrap_or(text).into()),
        _ => unknown_method_callback(state, value, method, args),
    }
}

/// Lines of a text as Python's `str.splitlines` splits it, which knows more ends of lines than `\n`.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_end = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let Some(at) = rest.find(is_end) else {
            return (!rest.is_empty()).then(|| std::mem::take(&mut rest));
        };
        let line = &rest[..at];
        let end = &rest[at..];
        let length = if end.starts_with("\r\n") { 2 } else { end.chars().next().map_or(0, char::len_utf8) };
        rest = &end[length..];
        Some(line)
    })
}

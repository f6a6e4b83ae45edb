//! A strict parser of pages for the tests: tags, quoted attributes and raw scripts.

use regex::Regex;
use serde_json::Value;

/// One tag or one text of a page.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'a> {
    Open(&'a str, Vec<(&'a str, &'a str)>),
    Close(&'a str),
    Text(&'a str),
}

/// Reads what the page may consist of: tags with quoted attributes, and raw text inside `script` and `style`.
pub(super) fn pieces(page: &str) -> Vec<Piece<'_>> {
    let tag = Regex::new(r#"^<(/?)(\w+)((?: [\w-]+(?:="[^"]*")?)*)>"#).unwrap();
    let attribute = Regex::new(r#" ([\w-]+)(?:="([^"]*)")?"#).unwrap();
    let mut pieces = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    let mut text_end = "<".to_owned();
    while !rest.is_empty() {
        let (text, after) = rest.split_at(rest.find(&text_end).unwrap());
        pieces.extend((!text.is_empty()).then_some(Piece::Text(text)));
        let found = tag.captures(after).unwrap_or_else(|| panic!("no tag: {after:.60}"));
        let [slash, name, attributes] = [1, 2, 3].map(|group| found.get(group).unwrap().as_str());
        let is_raw = slash.is_empty() && matches!(name, "script" | "style");
        text_end = if is_raw { format!("</{name}") } else { "<".to_owned() };
        pieces.push(match slash {
            "" => {
                let pairs = attribute.captures_iter(attributes).map(|pair| {
                    let value = pair.get(2).map_or("", |value| value.as_str());
                    (pair.get(1).unwrap().as_str(), value)
                });
                Piece::Open(name, pairs.collect())
            }
            _ => Piece::Close(name),
        });
        rest = &after[found[0].len()..];
    }
    pieces
}

/// The names and attributes of the tags that open an element.
pub(super) fn tags(page: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
    let open = |piece| if let Piece::Open(name, attributes) = piece { Some((name, attributes)) } else { None };
    pieces(page).into_iter().filter_map(open).collect()
}

pub(super) fn attribute<'a>(attributes: &[(&str, &'a str)], name: &str) -> Option<&'a str> {
    attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
}

/// The raw text of the scripts with an id, or of the page's style or own script.
pub(super) fn raw<'a>(page: &'a str, element: &str, id: Option<&str>) -> &'a str {
    let pieces = pieces(page);
    let is_it = |piece: &Piece| matches!(piece, Piece::Open(name, list) if *name == element && attribute(list, "id") == id);
    let at = pieces.iter().position(is_it).unwrap();
    let Piece::Text(raw) = pieces[at + 1] else { panic!("{element} is empty") };
    raw
}

pub(super) fn json(page: &str, id: &str) -> Value {
    serde_json::from_str(raw(page, "script", Some(id))).unwrap()
}

/// A number, or the text of one that is not finite.
pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

//! A strict parser of pages for the tests: tags, quoted attributes and raw scripts.

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
    let mut pieces = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    while !rest.is_empty() {
        let Some(tag) = rest.strip_prefix('<') else {
            let (text, after) = rest.split_at(rest.find('<').unwrap());
            pieces.push(Piece::Text(text));
            rest = after;
            continue;
        };
        if let Some(tag) = tag.strip_prefix('/') {
            let (name, after) = tag.split_once('>').unwrap();
            pieces.push(Piece::Close(name));
            rest = after;
            continue;
        }
        let end = tag.find(|c: char| !c.is_ascii_alphanumeric()).unwrap();
        let (name, mut inside) = tag.split_at(end);
        let mut attributes = Vec::new();
        while !inside.starts_with('>') {
            inside = inside.strip_prefix(' ').unwrap_or_else(|| panic!("no space in <{name}: {:.60}", inside));
            let end = inside.find(['=', ' ', '>']).unwrap();
            let (key, after) = inside.split_at(end);
            let Some(quoted) = after.strip_prefix("=\"") else {
                attributes.push((key, ""));
                inside = after;
                continue;
            };
            let (value, after) = quoted.split_once('"').unwrap();
            attributes.push((key, value));
            inside = after;
        }
        rest = &inside[1..];
        pieces.push(Piece::Open(name, attributes));
        if matches!(name, "script" | "style") {
            let (raw, after) = rest.split_at(rest.find(&format!("</{name}")).unwrap());
            pieces.push(Piece::Text(raw));
            rest = after;
        }
    }
    pieces
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

//! Names out of rows, made safe for where they are shown.
//!
//! Models, data sets, policies and samples are named by whoever wrote the sweep or the files, so they may hold anything:
//! terminal control codes, Markdown, path separators. Nothing here knows what a name means. In an SVG
//! the drawing library escapes `<`, `>` and `&`, and [`plain`] removes what XML cannot hold at all.

use sha2::{Digest, Sha256};

/// One line without control characters, which could otherwise drive a terminal or break an SVG.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) { '\u{FFFD}' } else { c }).collect()
}

/// Controls, line separators, text-direction overrides (which would let a name rewrite its neighbours) and the two
/// code points XML forbids.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FFFE}' | '\u{FFFF}')
}

/// Text that Markdown shows as it is, also inside a table cell.
pub fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '|' | '#' | '~' | '!' => {
                escaped.push('\\');
                escaped.push(c);
            }
            // Entities, since some Markdown readers pass backslashed angle brackets on as HTML.
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Text between the tags of an SVG.
pub(super) fn xml(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// One field of a CSV line, quoted as RFC 4180 asks when it must be.
pub(super) fn csv(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) || field.starts_with(' ') || field.ends_with(' ') {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// A part of a file name: lower-case letters, digits, `+`, `-` and `.` only, never hidden, never empty, at most 48 long.
pub(super) fn slug(text: &str) -> String {
    const LONGEST: usize = 48;
    let mut slug = String::new();
    for c in text.chars() {
        match c {
            'a'..='z' | '0'..='9' | '+' => slug.push(c),
            'A'..='Z' => slug.push(c.to_ascii_lowercase()),
            // Never two in a row, so that `..` cannot arise.
            '.' if !slug.ends_with(['.', '-']) => slug.push('.'),
            _ if !slug.ends_with(['.', '-']) => slug.push('-'),
            _ => {}
        }
        if slug.len() == LONGEST {
            break;
        }
    }
    let slug = slug.trim_matches(['.', '-']);
    if slug.is_empty() { "unnamed".to_owned() } else { slug.to_owned() }
}

/// Six hex digits that tell apart names whose slugs are equal.
pub(super) fn fingerprint(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(3).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_safe_file_names() {
        let check = |name: &str, expected: &str| assert_eq!(slug(name), expected, "{name:?}");
        check("meta-llama/Llama-2-7b-hf", "meta-llama-llama-2-7b-hf");
        check("../../etc/passwd", "etc-passwd");
        check("..", "unnamed");
        check("", "unnamed");
        check(".hidden", "hidden");
        check("a\0b\nc", "a-b-c");
        check("window+4", "window+4");
        check("C:\\temp\\x", "c-temp-x");
        check("模型", "unnamed");
        assert!(slug(&"x".repeat(1000)).len() <= 48);
        assert_ne!(fingerprint("模型"), fingerprint("型模"));
    }

    #[test]
    fn csv_fields_are_quoted_when_they_must_be() {
        let check = |field: &str, expected: &str| assert_eq!(csv(field), expected);
        check("tova", "tova");
        check("a,b", "\"a,b\"");
        check("say \"hi\"", "\"say \"\"hi\"\"\"");
        check("two\nlines", "\"two\nlines\"");
        check(" padded", "\" padded\"");
    }

    #[test]
    fn markdown_shows_names_as_they_are() {
        assert_eq!(markdown("a|b"), "a\\|b");
        assert_eq!(markdown("<img src=x>"), "&lt;img src=x&gt;");
        assert_eq!(markdown("[x](http://y)"), "\\[x\\](http://y)");
        assert_eq!(markdown("two\nlines"), "two\u{FFFD}lines");
        assert_eq!(plain("\u{1b}[31mred"), "\u{FFFD}[31mred");
    }
}

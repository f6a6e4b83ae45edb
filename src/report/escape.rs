//! Names from rows, made safe for where they are shown.
//!
//! Models, data sets, policies and samples are named by whoever wrote the sweep or the files, so they may hold anything:
//! terminal control codes, Markdown, path separators. Each format has a function here that shows such names as they are;
//! all begin with [`plain`], which removes what no format can hold.

use sha2::{Digest, Sha256};

use crate::format;
pub use crate::format::plain;

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
            // `@somebody` would notify them on GitHub; `tova@slot` would not.
            '@' if !escaped.ends_with(|before: char| before.is_ascii_alphanumeric()) => {
                escaped.push_str("@<!-- -->")
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// Text that LaTeX shows as it is, also at the beginning of a line of a table and inside a caption. Letters that pdfLaTeX
/// may lack are shown by their code points.
pub(super) fn latex(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut last = None;
    for c in plain(text).chars() {
        match c {
            '#' | '$' | '%' | '&' | '_' | '{' | '}' => {
                escaped.push('\\');
                escaped.push(c);
            }
            '\\' => escaped.push_str("\\textbackslash{}"),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            // Other letters stand in their places in TeX's older fonts.
            '<' => escaped.push_str("\\textless{}"),
            '>' => escaped.push_str("\\textgreater{}"),
            '|' => escaped.push_str("\\textbar{}"),
            '`' => escaped.push_str("\\textasciigrave{}"),
            // By its number, since some languages of babel make commands of it.
            '"' => escaped.push_str("\\char34{}"),
            // After the end of a line they would be that command's arguments.
            '[' | ']' | '*' => escaped.extend(['{', c, '}']),
            // Two in a row would become a dash or a quotation mark; in LuaTeX braces do not keep them apart.
            '-' | ',' | '\'' if last == Some(c) => {
                escaped.push_str("\\/");
                escaped.push(c);
            }
            ' '..='~' => escaped.push(c),
            '±' => escaped.push_str("\\ensuremath{\\pm}"),
            '\u{2212}' => escaped.push_str("\\ensuremath{-}"),
            '†' => escaped.push_str("\\ensuremath{^\\dagger}"),
            '–' => escaped.push_str("--"),
            '·' => escaped.push_str("\\textperiodcentered{}"),
            'À'..='ÿ' => escaped.push(c),
            other => escaped.push_str(&format!("\\texttt{{U+{:04X}}}", u32::from(other))),
        }
        last = Some(c);
    }
    escaped
}

/// Text between the tags of an SVG, or in a quoted attribute.
pub(super) fn xml(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// One field of a CSV line, quoted as RFC 4180 asks when it must be.
pub fn csv(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) || field.starts_with(' ') || field.ends_with(' ') {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// A part of a file name: lower-case letters, digits, `+` and `-` only, never empty, at most 48 long. LaTeX takes what follows
/// a dot for the type of a figure.
pub(crate) fn slug(text: &str) -> String {
    format::slug(&text.to_ascii_lowercase(), |c| matches!(c, 'a'..='z' | '0'..='9' | '+'))
}

/// The parts of a title, such as `model · data`, as a part of a file name.
pub(crate) fn slugs(title: &str) -> String {
    title.split(" \u{B7} ").map(slug).collect::<Vec<_>>().join("-")
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
        check("q4-1.gguf", "q4-1-gguf");
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

    #[test]
    fn latex_shows_names_as_they_are() {
        let check = |text: &str, expected: &str| assert_eq!(latex(text), expected, "{text:?}");
        check("# $ % & _ { }", "\\# \\$ \\% \\& \\_ \\{ \\}");
        check("~^\\", "\\textasciitilde{}\\textasciicircum{}\\textbackslash{}");
        check("\\input{/etc/passwd}", "\\textbackslash{}input\\{/etc/passwd\\}");
        check("[2J*", "{[}2J{*}");
        check("a---b", "a-\\/-\\/-b");
        check("<\"x\">", "\\textless{}\\char34{}x\\char34{}\\textgreater{}");
        check("±0.26†", "\\ensuremath{\\pm}0.26\\ensuremath{^\\dagger}");
        check("模 · é", "\\texttt{U+6A21} \\textperiodcentered{} é");
        check("two\nlines", "two\\texttt{U+FFFD}lines");
    }
}

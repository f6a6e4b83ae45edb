//! One spelling of an answer's LaTeX: braces where arguments are, no layout, no units.

use std::iter::Peekable;
use std::str::Chars;

/// Commands that change the look only.
const LAYOUT: &str = "left right big Big bigl bigr Bigl Bigr bigg Bigg displaystyle textstyle quad qquad limits mathstrut hspace \
     degree degrees circ";
/// Commands around text.
const TEXT: [&str; 10] =
    ["text", "textbf", "textit", "textrm", "mbox", "mathrm", "mathbf", "mathit", "operatorname", "hbox"];
/// Pairs of commands with the same meaning; the second is kept.
const SAME: [(&str, &str); 12] = [
    ("dfrac", "frac"),
    ("tfrac", "frac"),
    ("cfrac", "frac"),
    ("leq", "le"),
    ("geq", "ge"),
    ("neq", "ne"),
    ("lbrace", "{"),
    ("rbrace", "}"),
    ("cdot", "times"),
    ("lvert", "vert"),
    ("rvert", "vert"),
    ("dots", "ldots"),
];
/// Marks that stand around words until it is known whether these are a unit. No answer has them.
const WORDS: [char; 2] = ['\u{1}', '\u{2}'];
/// Deepest nesting of groups that is read.
const MOST_DEPTH: usize = 50;

/// Rewrites LaTeX to its canonical spelling. Never fails: what is not understood stays as it is, without spaces.
pub fn canonical(text: &str) -> String {
    let text: String = text.chars().filter(|c| !WORDS.contains(c)).collect();
    let written = Reader { rest: text.chars().peekable(), depth: 0 }.group(false);
    let written = without_unit(&written).replace(WORDS, "");
    let written = written.trim_start_matches('+').replace("bmatrix", "pmatrix").replace("+\\infty", "\\infty");
    // Only before a letter does a space end a command's name: `\pi r`.
    let next = written.chars().skip(1).chain(['.']);
    let needed = written.chars().zip(next).filter(|(c, next)| *c != ' ' || next.is_ascii_alphabetic());
    needed.map(|(c, _)| c).collect()
}

/// Removes the words at a text's end, with an exponent or not, if there is something before them.
fn without_unit(text: &str) -> &str {
    let mut whole = text;
    loop {
        let end = whole.trim_end_matches('.');
        let end = end.strip_suffix("^2").or(end.strip_suffix("^3")).unwrap_or(end);
        let Some(inside) = end.strip_suffix(WORDS[1]) else { return whole };
        match inside.rfind(WORDS[0]) {
            Some(start) if start > 0 => whole = &whole[..start],
            _ => return whole,
        }
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    depth: usize,
}

impl Reader<'_> {
    /// What follows, up to the brace that closes the group or the end.
    fn group(&mut self, in_braces: bool) -> String {
        let mut written = String::new();
        while let Some(c) = self.rest.next() {
            if c == '}' && in_braces {
                break;
            }
            self.item(c, &mut written);
        }
        written
    }

    /// Adds what begins with a character.
    fn item(&mut self, c: char, written: &mut String) {
        match c {
            '{' if self.depth < MOST_DEPTH => {
                let inside = self.braces();
                written.push_str(&inside);
            }
            '\\' => self.command(written),
            '^' | '_' => self.script(c, written),
            c if c.is_whitespace() => {}
            '$' | '%' | '~' | '°' => {}
            '−' | '–' => written.push('-'),
            'π' => written.push_str("\\pi "),
            '∞' => written.push_str("\\infty "),
            '√' => {
                let inside = self.argument();
                written.push_str(&format!("\\sqrt{{{inside}}}"));
            }
            c => written.push(c),
        }
    }

    fn braces(&mut self) -> String {
        self.depth += 1;
        let inside = self.group(true);
        self.depth -= 1;
        inside
    }

    /// A group in braces, a command, or one character.
    fn argument(&mut self) -> String {
        let mut written = String::new();
        if self.depth >= MOST_DEPTH {
            return written;
        }
        self.depth += 1;
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        if let Some(c) = self.rest.next_if(|c| *c != '}') {
            self.item(c, &mut written);
        }
        self.depth -= 1;
        written
    }

    fn script(&mut self, sign: char, written: &mut String) {
        let script = self.argument();
        match script.chars().count() {
            // `^\circ`.
            0 => {}
            1 => written.extend([sign, script.chars().next().unwrap_or(sign)]),
            _ => written.push_str(&format!("{sign}{{{script}}}")),
        }
    }

    fn command(&mut self, written: &mut String) {
        let mut name = String::new();
        while let Some(c) = self.rest.next_if(char::is_ascii_alphabetic) {
            name.push(c);
        }
        if name.is_empty() {
            match self.rest.next() {
                // A row's end.
                Some('\\') => written.push('\n'),
                Some(brace @ ('{' | '}')) => written.extend(['\\', brace]),
                Some(c @ ('|' | '#' | '&' | '_')) => written.push(c),
                // `\,`, `\!`, `\(`, `\%`, `\$`.
                _ => {}
            }
            return;
        }
        let name = SAME.iter().find(|(other, _)| *other == name).map_or(name.as_str(), |(_, kept)| kept);
        match name {
            "frac" => {
                let (above, below) = (self.argument(), self.argument());
                written.push_str(&format!("\\frac{{{above}}}{{{below}}}"));
            }
            "sqrt" => {
                let mut degree = String::new();
                if self.rest.next_if_eq(&'[').is_some() {
                    while let Some(c) = self.rest.next_if(|c| *c != ']') {
                        degree.push(c);
                    }
                    self.rest.next();
                }
                let inside = self.argument();
                let degree = if degree.is_empty() { degree } else { format!("[{}]", degree.trim()) };
                written.push_str(&format!("\\sqrt{degree}{{{inside}}}"));
            }
            name if TEXT.contains(&name) => {
                let words = self.argument();
                if !words.is_empty() {
                    written.push(WORDS[0]);
                    written.push_str(&words);
                    written.push(WORDS[1]);
                }
            }
            name if LAYOUT.split(' ').any(|other| other == name) => {}
            // On a line of its own, apart from the first and last elements.
            "begin" | "end" => {
                let kind = self.argument();
                written.push_str(&format!("\n\\{name}{{{kind}}}\n"));
            }
            "{" | "}" => written.extend(["\\", name]),
            // A space ends the name, so that `\pi r` is not `\pir`.
            name => written.extend(["\\", name, " "]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_have_one_form() {
        let cases = [
            (r"\dfrac12", r"\frac{1}{2}"),
            (r"\frac1{72}", r"\frac{1}{72}"),
            (r"\frac{72}1", r"\frac{72}{1}"),
            (r"\sqrt 2", r"\sqrt{2}"),
            (r"\sqrt[3]{x}", r"\sqrt[3]{x}"),
            (r"x^{2} + y_{10}", "x^2+y_{10}"),
            (r"90^{\circ}", "90"),
            (r"5\text{ cm}^2", "5"),
            (r"\text{Evelyn}", "Evelyn"),
            (r"3 \text{ or } 4", "3or4"),
            (r"\left( \frac{1}{2}, \, 3 \right]", r"(\frac{1}{2},3]"),
            ("10{,}000", "10,000"),
            (r"\$18.90", "18.90"),
            (r"\frac", r"\frac{}{}"),
            ("{{", ""),
            ("}", "}"),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(text), expected, "{text}");
        }
        canonical(&"{".repeat(100_000));
        canonical(&"\\frac".repeat(100_000));
        canonical(&"^".repeat(100_000));
    }
}

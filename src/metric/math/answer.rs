//! The answer in a text's last box, and whether two answers are the same.
//!
//! kvpress (`evaluation/benchmarks/math500` and `aime25`) takes the text from `boxed{` to the next `}`, in MATH-500 of the
//! first box, and compares letter by letter. So `\boxed{\frac{1}{2}}` is never right there. Here braces balance, the last
//! box counts, as in Hendrycks' MATH (arXiv 2103.03874), and spellings are compared after normalisation.

use super::latex;
use super::number::Number;

/// Finds the contents of the last `\boxed{...}` or `\fbox{...}` whose braces balance. A text without one has no answer.
pub fn boxed(text: &str) -> Option<&str> {
    let starts = ["\\boxed{", "\\fbox{"]
        .into_iter()
        .flat_map(|start| text.match_indices(start).map(move |(at, _)| at + start.len()));
    let mut starts: Vec<usize> = starts.collect();
    starts.sort_unstable();
    starts.into_iter().rev().find_map(|start| Some(&text[start..start + closing(&text[start..])?]))
}

/// Byte of the brace that closes a group already open. `\{` and `\}` do not open or close a group.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Whether two answers are the same but for spelling: fractions, decimals and roots, spaces, units, signs of money, percent
/// and degrees, thousands separators, `x=`, parentheses around a choice.
///
/// Expressions are not computed: `2+3` is not 5, and `\sqrt{8}` is not `2\sqrt{2}`. The order of a list or a set matters.
pub fn equal(a: &str, b: &str) -> bool {
    let [a, b] = [a, b].map(normal);
    !a.is_empty() && a == b
}

/// Normal form that equal answers share.
fn normal(answer: &str) -> String {
    let text = latex::canonical(answer);
    let text = without_unit_words(&without_name(text.trim_end_matches('.')));
    if let Some(number) = grouped(&text).and_then(|digits| Number::parse(&digits)) {
        return number.to_string();
    }
    if let Some(letter) = choice(&text) {
        return letter.to_string();
    }
    // A word may be capitalised; `AB` and `ab` may be two segments.
    let mut rest = text.chars().skip(1).peekable();
    let is_word = rest.peek().is_some() && rest.all(char::is_lowercase);
    if is_word { text.to_lowercase() } else { elements(&text) }
}

/// Right side of an equation such as `x=5` or `x\in[0,1]`, if its left side has at most two letters and there is no second
/// equation.
fn without_name(text: &str) -> String {
    let is_name = |left: &str| {
        left.chars().next().is_some_and(char::is_alphabetic) && left.chars().count() <= 2 && !left.contains('\\')
    };
    for sign in ["=", "\\in"] {
        if let Some((left, right)) = text.split_once(sign)
            && is_name(left)
            && !right.contains(sign)
            && !right.is_empty()
            // `\infty` and `\int` are others.
            && !(sign == "\\in" && right.starts_with(|c: char| c.is_ascii_alphabetic()))
        {
            return right.trim_start().to_owned();
        }
    }
    text.to_owned()
}

/// Words for units that may follow a number without `\text`. Single letters may be variables.
const UNITS: &str = "square cubic inches inch in feet foot ft yards yard miles mile mi mm cm km metres metre meters meter \
     centimeters centimeter kilometers kilometres units unit seconds second sec minutes minute min hours hour hr days day \
     weeks week months month years year dollars dollar cents cent percent degrees degree radians pounds lbs grams gram kg mg \
     ml liters liter litres litre mph ways students people points apples books sq and";

/// Removes the words of units after a number.
fn without_unit_words(text: &str) -> String {
    let whole = text;
    let text = text.strip_suffix("^2").or(text.strip_suffix("^3")).unwrap_or(text);
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let mut words = &text[number.len()..];
    let follows_number = number.ends_with(|c: char| c.is_ascii_digit() || c == '}');
    if words.is_empty() || !follows_number {
        return whole.to_owned();
    }
    let mut units: Vec<&str> = UNITS.split_whitespace().collect();
    units.sort_by_key(|unit| std::cmp::Reverse(unit.len()));
    while !words.is_empty() {
        match units.iter().find_map(|unit| words.strip_prefix(unit)) {
            Some(rest) => words = rest,
            None => return whole.to_owned(),
        }
    }
    number.to_owned()
}

/// Removes commas between groups of three digits; `None` if commas stand elsewhere.
fn grouped(text: &str) -> Option<String> {
    if !text.contains(',') {
        return Some(text.to_owned());
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut groups = whole.split(',');
    let is_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let first = groups.next().is_some_and(|first| (1..=3).contains(&first.len()) && is_digits(first));
    let rest = groups.all(|group| group.len() == 3 && is_digits(group));
    (first && rest).then(|| format!("{sign}{}{fraction}", whole.replace(',', "")))
}

/// Letter of a choice such as `(C)`.
fn choice(text: &str) -> Option<char> {
    let mut inside = text.strip_prefix('(')?.strip_suffix(')')?.chars();
    let letter = inside.next().filter(char::is_ascii_uppercase)?;
    inside.next().is_none().then_some(letter)
}

/// Normal form of a tuple, an interval, a set or a list, with each element in normal form.
fn elements(text: &str) -> String {
    let mut result = String::new();
    let mut start = 0;
    for (at, c) in text.char_indices() {
        if matches!(c, ',' | ';' | '(' | ')' | '[' | ']' | '=' | '&' | '\n' | ' ') {
            result.push_str(&element(&text[start..at]));
            result.push(c);
            start = at + c.len_utf8();
        }
    }
    result.push_str(&element(&text[start..]));
    result
}

/// Normal form of a number, in its lowest terms and with `a/b` as a fraction.
fn element(text: &str) -> String {
    if let Some(number) = Number::parse(text) {
        return number.to_string();
    }
    let (sign, plain) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    match plain.split_once('/') {
        Some((above, below)) if is_atom(above) && is_atom(below) => format!("{sign}\\frac{{{above}}}{{{below}}}"),
        _ => text.to_owned(),
    }
}

/// Whether a part of a quotient needs no parentheses.
fn is_atom(text: &str) -> bool {
    !text.is_empty() && !text.contains(['+', '-', '/', '{', '}', '<', '>']) || is_root(text)
}

fn is_root(text: &str) -> bool {
    text.strip_prefix("\\sqrt{")
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|inside| !inside.contains(['{', '}']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Pair {
        a: String,
        b: String,
        equal: bool,
    }

    #[test]
    fn pairs_compare_as_written_down() {
        let pairs: Vec<Pair> = serde_json::from_str(include_str!("../../../tests/golden/math.json")).unwrap();
        assert!(pairs.len() >= 100);
        let wrong = |pair: &&Pair| equal(&pair.a, &pair.b) != pair.equal || equal(&pair.b, &pair.a) != pair.equal;
        let wrong: Vec<String> = pairs
            .iter()
            .filter(wrong)
            .map(|Pair { a, b, equal }| format!("{a:?} {b:?} {equal}: {:?} {:?}", normal(a), normal(b)))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for Pair { a, b, .. } in &pairs {
            // No answer equals none.
            assert!([a, b].into_iter().all(|text| equal(text, text) != text.is_empty()), "{a} {b}");
        }
    }

    #[test]
    fn the_last_balanced_box_counts() {
        let cases = [
            (r"So \boxed{5}.", Some("5")),
            (r"\boxed{1} or rather \boxed{\frac{1}{2}}", Some(r"\frac{1}{2}")),
            (r"\boxed{3} and then \boxed{\frac{1}{", Some("3")),
            (r"\boxed{\{1, 2\}}", Some(r"\{1, 2\}")),
            (r"\boxed{\boxed{7}}", Some("7")),
            (r"\fbox{8}", Some("8")),
            (r"$\boxed{}$", Some("")),
            (r"\boxed 5", None),
            ("The answer is 5.", None),
            (r"\boxed{5", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(boxed(text), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_can_be_compared(a in r"[ -~]{0,30}", b in r"(\\frac|\\sqrt|\\text|\\left|\{|\}|[0-9,./ ^_=-]){0,12}") {
            proptest::prop_assert_eq!(equal(&a, &b), equal(&b, &a));
            boxed(&a);
        }
    }
}

//! How amounts and names are written for people: bytes, counts, durations, and which known name a misspelt one is near.
//!
//! Rows and cell ids never go through here; they hold the numbers themselves.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Beyond this a double no longer holds every byte; no machine has it.
const MOST: f64 = (1u64 << 50) as f64;

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let wrong = || format!("{text:?} is not an amount of memory");
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, unit) = text.split_at(end);
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit.trim_start()).ok_or_else(wrong)?;
        let bytes = number.parse::<f64>().map_err(|_| wrong())? * *unit as f64;
        if (1.0..=MOST).contains(&bytes) { Ok(Bytes(bytes.round() as u64)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Bytes {
    /// For people, with three digits; ids and rows take the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = UNITS[..5].iter().rev().find(|(_, unit)| self.0 >= *unit).unwrap_or(&UNITS[0]);
        let amount = self.0 as f64 / *unit as f64;
        let digits = if *unit == 1 || amount >= 100.0 { 0 } else { 2 - amount.log10().floor().max(0.0) as usize };
        write!(f, "{amount:.digits$} {name}")
    }
}

/// A number with a unit of thousands, for counts that nobody reads to the last digit: tokens, parameters.
pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..10_000_000 => format!("{:.1} k", n as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.1} G", n as f64 / 1e9),
    }
}

/// `1 cell`, `2 cells`.
pub fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The first `most` of some names, and how many there are more: `a, b and 3 more`.
pub fn first_of(names: &[&str], most: usize) -> String {
    let shown = names[..names.len().min(most)].join(", ");
    if names.len() > most { format!("{shown} and {} more", names.len() - most) } else { shown }
}

/// `< 1 s`, `1.5 s`, `90 s`, `12 min`, `3.5 h`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1.0 => "< 1 s".into(),
        _ if seconds < 9.95 => format!("{seconds:.1} s"),
        _ if seconds < 120.0 => format!("{seconds:.0} s"),
        _ if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// One line without control characters, which could otherwise drive a terminal or break an SVG.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) { '\u{FFFD}' } else { c }).collect()
}

/// Text of any number of lines as a terminal gets it: whatever could drive the terminal or turn the direction of its text is written
/// in the way of JSON, so that JSON stays what it means.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_raw = |c: char| is_unprintable(c) && c != '\n' && c != '\t';
    if !text.contains(is_raw) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if is_raw(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Controls, line separators, text-direction overrides (which would let a name rewrite its neighbours) and the two
/// code points XML forbids.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FFFE}' | '\u{FFFF}')
}

/// Longer words are compared with nothing: the time is the product of two lengths.
const LONGEST_WORD: usize = 200;

/// "did you mean `a` or `b`? " for the known names within a third of `word`'s length in edits, nearest first, three at
/// most; nothing when none is near.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let length = word.chars().count();
    if length > LONGEST_WORD {
        return String::new();
    }
    let edits = |name: &str| strsim::osa_distance(&word.to_lowercase(), &name.to_lowercase());
    let mut near: Vec<(usize, &str)> = known.into_iter().map(|name| (edits(name), name)).collect();
    near.retain(|(edits, _)| *edits <= (length / 3).max(1));
    near.sort();
    let quoted: Vec<String> = near.iter().take(3).map(|(_, name)| format!("`{name}`")).collect();
    if quoted.is_empty() { String::new() } else { format!("did you mean {}? ", quoted.join(" or ")) }
}

/// Part of a file name from a `name`: at most 48 letters, what `is_kept` refuses being `-`, and no two `-` or `_` in a row; never empty.
/// `is_kept` may accept characters of ASCII only.
pub fn slug(name: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut slug = String::new();
    for c in name.chars().map(|c| if is_kept(c) { c } else { '-' }) {
        if !matches!(c, '-' | '_') || !slug.ends_with(c) {
            slug.push(c);
        }
        if slug.len() == 48 {
            break;
        }
    }
    let slug = slug.trim_matches(['-', '.', '_']);
    if slug.is_empty() { "unnamed".to_owned() } else { slug.to_owned() }
}

/// Makes the first letter a capital.
pub fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_strictly() {
        let read = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0);
        for (text, bytes) in [
            ("8 GiB", 8 << 30),
            ("32 GB", 32_000_000_000),
            ("1.5 MiB", 3 << 19),
            ("700MB", 700_000_000),
            ("64 KiB", 1 << 16),
            ("1 B", 1),
        ] {
            assert_eq!(read(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "8", "GiB", "8 gib", "8 Gb", "-1 GB", "1e3 GB", "inf GB", "0 GB", ". GB", "8 GB ", "9999 TiB"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_shown_with_three_digits() {
        let shown = [1, 999, 1500, 16_809_984, 2_180_000_000, 34_359_738_368].map(|n| Bytes(n).to_string());
        assert_eq!(shown, ["1 B", "999 B", "1.50 kB", "16.8 MB", "2.18 GB", "34.4 GB"]);
    }

    #[test]
    fn nothing_that_drives_a_terminal_is_printable() {
        assert!(matches!(printable("größe\n\t1"), Cow::Borrowed("größe\n\t1")));
        let raw = "a\u{1b}]0;x\u{7}b\rc\u{9b}31m\u{7f}\u{202e}d\u{2066}\u{200f}\u{61c}\0";
        let shown = r"a\u001b]0;x\u0007b\u000dc\u009b31m\u007f\u202ed\u2066\u200f\u061c\u0000";
        assert_eq!(printable(raw), shown);
        // What JSON leaves as it is, DEL and C1, stays the same text.
        let json = serde_json::to_string(raw).unwrap();
        assert!(json.contains('\u{7f}'));
        assert_eq!(serde_json::from_str::<String>(&printable(&json)).unwrap(), raw);
    }

    #[test]
    fn only_near_names_are_offered() {
        let known = ["window", "tova", "tova-head", "h2o"];
        assert_eq!(did_you_mean("widow", known), "did you mean `window`? ");
        assert_eq!(did_you_mean("TOVA", known), "did you mean `tova`? ");
        assert_eq!(did_you_mean("toav", known), "did you mean `tova`? ", "swapped neighbours are one edit");
        assert_eq!(did_you_mean("snapkv", known), "");
    }
}

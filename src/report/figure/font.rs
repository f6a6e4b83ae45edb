//! The embedded font: how wide a text is.
//!
//! DejaVu Sans, cut down to Latin (see `font/LICENSE-DejaVu.txt`), so that figures look alike on every machine and need
//! no system font. A character it lacks is drawn as a box; SVG viewers use their own fonts for those.

use std::sync::OnceLock;

use ttf_parser::Face;

/// The embedded font, then what an SVG falls back to: Verdana is as wide, the others narrower, so nothing overlaps.
pub(crate) const FAMILY: &str = "DejaVu Sans, Verdana, Arial, Helvetica, sans-serif";
/// Half the height of a digit, as a share of the font size.
pub(crate) const HALF_DIGIT: f64 = 0.365;
/// The font as a TrueType file.
pub(crate) const FILE: &[u8] = include_bytes!("font/DejaVuSans-subset.ttf");

fn font() -> &'static Face<'static> {
    static FONT: OnceLock<Face<'static>> = OnceLock::new();
    FONT.get_or_init(|| Face::parse(FILE, 0).expect("the embedded font is a valid font: a test reads it"))
}

/// Whether the font has a character.
pub(crate) fn has(c: char) -> bool {
    font().glyph_index(c).is_some()
}

/// In font units. Glyph 0 is the box that is drawn for a character the font lacks.
fn advance(c: char) -> f64 {
    let glyph = font().glyph_index(c).unwrap_or_default();
    f64::from(font().glyph_hor_advance(glyph).unwrap_or_default())
}

/// The width of a text, in the unit of `size`.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size / f64::from(font().units_per_em())
}

/// The text cut to a width, with an ellipsis where something is missing.
pub(crate) fn fit(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let room = room * f64::from(font().units_per_em()) / size - advance('…');
    // The width of what was passed, and of that without the spaces at its end, which no cut has.
    let (mut passed, mut shown, mut end) = (0.0, 0.0, None);
    for (start, c) in text.char_indices() {
        if shown > room {
            break;
        }
        end = Some(start);
        passed += advance(c);
        if !c.is_whitespace() {
            shown = passed;
        }
    }
    end.map_or_else(String::new, |end| format!("{}…", text[..end].trim_end()))
}

/// The text in lines of a width, broken at spaces; a word that is longer is cut.
pub(crate) fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(" ", size) + width(word, size) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| fit(line, size, room)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_measures() {
        // Digits of DejaVu Sans are 1303 of 2048 units wide.
        assert!((width("1024", 10.0) - 4.0 * 10.0 * 1303.0 / 2048.0).abs() < 1e-9);
        for c in "±×–…≥†·°".chars() {
            assert!(font().glyph_index(c).is_some(), "{c} is not in the font");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(fit("tova", 7.0, 100.0), "tova");
        let cut = fit("a very long name of a model", 7.0, 40.0);
        assert!(cut.ends_with('…') && width(&cut, 7.0) <= 40.0, "{cut}");
        assert_eq!(fit("x", 7.0, 0.0), "");
        // The longest cut that fits, found by trying all.
        let text = "a very  long name of a model";
        for room in 0..150 {
            let room = f64::from(room);
            let cuts = text.char_indices().rev().map(|(end, _)| format!("{}…", text[..end].trim_end()));
            let longest = cuts.into_iter().find(|cut| width(cut, 7.0) <= room).unwrap_or_default();
            let expected = if width(text, 7.0) <= room { text.to_owned() } else { longest };
            assert_eq!(fit(text, 7.0, room), expected, "{room}");
        }
        // As long as a name in a stranger's rows may be.
        assert!(fit(&"a b ".repeat(1 << 20), 7.0, 40.0).ends_with('…'));
    }

    #[test]
    fn texts_wrap_at_spaces() {
        assert_eq!(wrap("tova h2o window", 7.0, width("tova h2o", 7.0)), ["tova h2o", "window"]);
        assert_eq!(wrap("tova", 7.0, 500.0), ["tova"]);
        assert!(wrap("a verylongword", 7.0, width("verylon", 7.0))[1].ends_with('…'));
    }
}

//! The embedded font, and fonts of the machine for what it lacks: how wide a text is, and with which fonts it is drawn.
//!
//! DejaVu Sans, cut down to Latin (see `font/LICENSE-DejaVu.txt`), so that figures look alike on every machine and need
//! no system font. A character it lacks is drawn with a font of the machine; where none has it, as a box. SVG viewers use their own
//! fonts for those.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use resvg::usvg::fontdb::{Database, ID, Stretch, Style};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

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

/// What is drawn for a character that no font has.
const BOX: char = '\u{25A1}';

/// The embedded font, the first, and those of the machine, which are looked for once.
pub(super) static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(FILE.to_vec());
    fonts.load_system_fonts();
    Arc::new(fonts)
});

/// Whether the embedded font has a character.
fn has(c: char) -> bool {
    font().glyph_index(c).is_some()
}

/// Whether a character only says how others are drawn, as joiners and selectors of emoji do.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200B}'..='\u{200F}' | '\u{2060}'..='\u{206F}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{E0000}'..='\u{E0FFF}')
}

/// A font of the machine that has a character, and how wide that is in it, in units of the embedded font.
pub(super) fn fallback(c: char) -> Option<(ID, f64)> {
    /// Face and width of each letter that was asked for; `None` where no font has it.
    type Known = HashMap<char, Option<(ID, f64)>>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let find = || {
        // Upright, regular and like the embedded font before others, then by name, so that the same machine draws the same.
        let mut faces: Vec<_> = FONTS.faces().skip(1).collect();
        faces.sort_by_cached_key(|face| {
            let name = face.post_script_name.clone();
            let slant =
                (face.style != Style::Normal, face.weight.0.abs_diff(400), face.stretch != Stretch::Normal);
            (slant, !name.contains("Sans"), face.monospaced, name, face.index)
        });
        faces.iter().find_map(|face| Some((face.id, advance_in(face.id, c)?)))
    };
    *known.get_or_insert_default().entry(c).or_insert_with(find)
}

/// How wide a character is in a font, in units of the embedded font. `None` where the font has no outline for it: pictures of emoji
/// cannot be in every format.
fn advance_in(face: ID, c: char) -> Option<f64> {
    /// Only whether there is an outline counts.
    struct Nothing;
    impl OutlineBuilder for Nothing {
        fn move_to(&mut self, _: f32, _: f32) {}
        fn line_to(&mut self, _: f32, _: f32) {}
        fn quad_to(&mut self, _: f32, _: f32, _: f32, _: f32) {}
        fn curve_to(&mut self, _: f32, _: f32, _: f32, _: f32, _: f32, _: f32) {}
        fn close(&mut self) {}
    }
    let measure = |data: &[u8], index| {
        let face = Face::parse(data, index).ok()?;
        let glyph = face.glyph_index(c).filter(|glyph| *glyph != GlyphId(0))?;
        let is_drawn = face.outline_glyph(glyph, &mut Nothing).is_some() && !face.is_color_glyph(glyph);
        let scale = f64::from(font().units_per_em()) / f64::from(face.units_per_em());
        (is_drawn || c.is_whitespace())
            .then(|| f64::from(face.glyph_hor_advance(glyph).unwrap_or_default()) * scale)
    };
    FONTS.with_face_data(face, measure).flatten()
}

/// A text in pieces that one font each can draw, with the font of the machine or `None` for the embedded one. What no font has is a box.
pub(super) fn runs(text: &str) -> Vec<(String, Option<ID>)> {
    let mut runs: Vec<(String, Option<ID>)> = Vec::new();
    for c in text.chars() {
        let face = if has(c) { None } else { fallback(c).map(|(face, _)| face) };
        let drawn = if face.is_some() || has(c) { c } else { BOX };
        match runs.last_mut() {
            // Joiners and selectors belong to what they change, and without a font to nothing.
            Some((run, Some(_))) if is_invisible(c) => run.push(c),
            _ if is_invisible(c) => {}
            Some((run, own)) if *own == face => run.push(drawn),
            _ => runs.push((drawn.to_string(), face)),
        }
    }
    // Words of one foreign font stay together, since they may read from right to left.
    let mut at = 1;
    while at + 1 < runs.len() {
        let (before, after) = (runs[at - 1].1, runs[at + 1].1);
        let has_spaces = |face: ID| runs[at].0.chars().all(|c| c == ' ' && advance_in(face, c).is_some());
        if before == after && runs[at].1.is_none() && before.is_some_and(has_spaces) {
            let joined: String = runs.drain(at..=at + 1).map(|(run, _)| run).collect();
            runs[at - 1].0.push_str(&joined);
        } else {
            at += 1;
        }
    }
    runs
}

/// Whether a text has a character that the embedded font lacks.
pub(super) fn is_foreign(text: &str) -> bool {
    text.chars().any(|c| !has(c))
}

/// In font units.
fn advance(c: char) -> f64 {
    let own = |glyph| f64::from(font().glyph_hor_advance(glyph).unwrap_or_default());
    match font().glyph_index(c) {
        Some(glyph) => own(glyph),
        None if is_invisible(c) => 0.0,
        None => match fallback(c) {
            Some((_, advance)) => advance,
            None => font().glyph_index(BOX).map_or(0.0, own),
        },
    }
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
        for c in ['±', '×', '–', '…', '≥', '†', '·', '°', BOX] {
            assert!(has(c), "{c} is not in the font");
        }
    }

    #[test]
    fn every_character_is_in_a_piece_that_has_a_font_for_it_or_is_a_box() {
        // Greek, Chinese, Arabic, an emoji with a selector, a mark that stands on a letter, a private character.
        let text = "A \u{3B1}\u{3B2} \u{6A21}\u{578B} \u{645}\u{631}\u{62D}\u{628}\u{627} \u{645} \u{2764}\u{FE0F} e\u{301} \u{E123}";
        let runs = runs(text);
        let drawn: String = runs.iter().map(|(run, _)| run.as_str()).filter(|run| !run.is_empty()).collect();
        let visible = |text: &str| text.chars().filter(|c| !is_invisible(*c)).collect::<Vec<char>>();
        let (drawn, asked) = (visible(&drawn), visible(text));
        assert_eq!(drawn.len(), asked.len(), "{runs:?}");
        for (drawn, asked) in drawn.iter().zip(&asked) {
            assert!(drawn == asked || (*drawn == BOX && !has(*asked)), "{asked:?} is drawn as {drawn:?}");
        }
        for (run, face) in &runs {
            let fits = |c: char| match face {
                None => has(c),
                Some(face) => is_invisible(c) || advance_in(*face, c).is_some(),
            };
            assert!(run.chars().all(fits), "{run:?} of {face:?}");
        }
        // No font has private characters, but for those made to.
        assert!(fallback('\u{10FFFD}').is_some() || drawn.last() == Some(&BOX) || fallback('\u{E123}').is_some());
        // A text is as wide as its pieces are, and nothing is of no width but what is invisible.
        let widths: f64 = runs.iter().map(|(run, _)| width(run, 10.0)).sum();
        assert!((widths - width(text, 10.0)).abs() < 1e-9 && width(text, 10.0) > width("A        e", 10.0));
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

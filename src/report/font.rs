//! The embedded font: how wide a text is, and its letters as pixels.
//!
//! DejaVu Sans, cut down to Latin (see `font/LICENSE-DejaVu.txt`), so that figures look alike on every machine and need
//! no system library. A character it lacks is drawn as a box; SVG viewers use their own fonts for those.

use std::sync::OnceLock;

use ab_glyph::{Font, FontRef, Point, PxScale};

/// The embedded font, then what an SVG falls back to: Verdana is as wide, the others narrower, so nothing overlaps.
pub(crate) const FAMILY: &str = "DejaVu Sans, Verdana, Arial, Helvetica, sans-serif";
/// Half the height of a digit and of an x, as shares of the font size.
pub(crate) const HALF_DIGIT: f64 = 0.365;
pub(crate) const HALF_X: f64 = 0.273;

/// The font as a TrueType file, to be put into a document.
pub(crate) const FILE: &[u8] = include_bytes!("font/DejaVuSans-subset.ttf");

fn font() -> &'static FontRef<'static> {
    static FONT: OnceLock<FontRef<'static>> = OnceLock::new();
    FONT.get_or_init(|| FontRef::try_from_slice(FILE).expect("the embedded font is a valid font: a test reads it"))
}

/// From font units to the length unit of `size`.
fn scale(size: f64) -> f64 {
    size / f64::from(font().units_per_em().unwrap_or(2048.0))
}

fn advance(c: char) -> f64 {
    f64::from(font().h_advance_unscaled(font().glyph_id(c)))
}

/// A character's glyph in the file, 0 where the font lacks it.
pub(crate) fn glyph(c: char) -> u16 {
    font().glyph_id(c).0
}

/// The width of a text, in the unit of `size`.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * scale(size)
}

/// The text cut to a width, with an ellipsis where something is missing.
pub(crate) fn fit(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut cut: Vec<char> = text.chars().collect();
    while let Some(_dropped) = cut.pop() {
        let shown: String = cut.iter().collect::<String>().trim_end().to_owned() + "…";
        if width(&shown, size) <= room {
            return shown;
        }
    }
    String::new()
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

/// RGB pixels, row by row.
pub(crate) struct Canvas<'a> {
    pub(crate) pixels: &'a mut [u8],
    pub(crate) width: usize,
}

impl Canvas<'_> {
    /// Writes from `start` along the line of text; upright text runs towards the top.
    pub(crate) fn write(
        self,
        text: &str,
        size: f64,
        at: (f64, f64),
        start: f64,
        upright: bool,
        color: (u8, u8, u8),
    ) {
        let Self { pixels, width } = self;
        let height = pixels.len() / 3 / width.max(1);
        let px = PxScale::from((scale(size) * f64::from(font().height_unscaled())) as f32);
        let baseline = HALF_DIGIT * size;
        let mut pen = start;
        for c in text.chars() {
            let glyph =
                font().glyph_id(c).with_scale_and_position(px, Point { x: pen as f32, y: baseline as f32 });
            pen += advance(c) * scale(size);
            let Some(outline) = font().outline_glyph(glyph) else { continue };
            let corner = outline.px_bounds().min;
            outline.draw(|x, y, coverage| {
                let (along, down) = (f64::from(corner.x) + f64::from(x), f64::from(corner.y) + f64::from(y));
                let (x, y) = if upright { (at.0 + down, at.1 - along) } else { (at.0 + along, at.1 + down) };
                let (x, y) = (x.round(), y.round());
                if x < 0.0 || y < 0.0 || x >= width as f64 || y >= height as f64 {
                    return;
                }
                let place = (y as usize * width + x as usize) * 3;
                for (pixel, ink) in pixels[place..place + 3].iter_mut().zip([color.0, color.1, color.2]) {
                    let (old, ink) = (f32::from(*pixel), f32::from(ink));
                    *pixel = (old + (ink - old) * coverage.clamp(0.0, 1.0)).round() as u8;
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_measures() {
        // Digits of DejaVu Sans are 1303 of 2048 units wide.
        assert!((width("1024", 10.0) - 4.0 * 10.0 * 1303.0 / 2048.0).abs() < 1e-9);
        for c in "±×–…≥†·°".chars() {
            assert_ne!(font().glyph_id(c).0, 0, "{c} is not in the font");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(fit("tova", 7.0, 100.0), "tova");
        let cut = fit("a very long name of a model", 7.0, 40.0);
        assert!(cut.ends_with('…') && width(&cut, 7.0) <= 40.0, "{cut}");
        assert_eq!(fit("x", 7.0, 0.0), "");
    }

    #[test]
    fn texts_wrap_at_spaces() {
        assert_eq!(wrap("tova h2o window", 7.0, width("tova h2o", 7.0)), ["tova h2o", "window"]);
        assert_eq!(wrap("tova", 7.0, 500.0), ["tova"]);
        assert!(wrap("a verylongword", 7.0, width("verylon", 7.0))[1].ends_with('…'));
    }

    #[test]
    fn letters_leave_ink_where_they_should() {
        let mut pixels = vec![255; 40 * 20 * 3];
        Canvas { pixels: &mut pixels, width: 40 }.write("8", 16.0, (20.0, 10.0), 0.0, false, (0, 0, 0));
        let dark = |x: usize, y: usize| pixels[(y * 40 + x) * 3] < 128;
        let ink: Vec<(usize, usize)> =
            (0..20).flat_map(|y| (0..40).map(move |x| (x, y))).filter(|&(x, y)| dark(x, y)).collect();
        assert!(
            !ink.is_empty() && ink.iter().all(|&(x, y)| (20..31).contains(&x) && (3..17).contains(&y)),
            "{ink:?}"
        );
    }
}

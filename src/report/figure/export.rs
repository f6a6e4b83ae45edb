//! A figure's SVG as PNG, by resvg, and as PDF, by svg2pdf.
//!
//! Both know the embedded font only, so that files are the same on every machine, unless a text has letters that it lacks: those are
//! drawn with a font of the machine, and then a PDF has its fonts in another order each time. The text of a PDF can be searched.
//! There is no date in a file, and no identifier.

use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, Result, anyhow};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{FontResolver, Options, Tree};
use svg2pdf::{ConversionOptions, PageOptions};

use crate::report::figure::{Scene, font};

/// Pixels per inch that usvg assumes.
const USVG_PIXELS: f32 = 96.0;

impl Scene {
    /// A PNG file of 300 pixels per inch.
    pub fn png(&self) -> Result<Vec<u8>> {
        let (width, height, rgb) = self.pixels(2)?;
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        // Most of a figure is white: the pixel beside another predicts it well.
        encoder.set_adaptive_filter(png::AdaptiveFilterType::Adaptive);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&rgb));
        written.context("encoding the PNG")?;
        Ok(bytes)
    }

    /// Width, height and pixels of three bytes, each of so many units of the figure.
    fn pixels(&self, units: u32) -> Result<(u32, u32, Vec<u8>)> {
        let tree = self.tree()?;
        let (width, height) = self.size();
        let (width, height) = (width / units, height / units);
        let mut pixels = Pixmap::new(width, height).ok_or_else(|| anyhow!("a picture of {width} x {height}"))?;
        let (across, down) = (width as f32 / tree.size().width(), height as f32 / tree.size().height());
        resvg::render(&tree, Transform::from_scale(across, down), &mut pixels.as_mut());
        // The background is opaque, so colours without alpha are all there is.
        let rgb = pixels.data().chunks_exact(4).flat_map(|pixel| &pixel[..3]).copied().collect();
        Ok((width, height, rgb))
    }

    /// Figures of one size as an animated PNG of 120 pixels per inch, which repeats. The last is shown for two seconds, those before
    /// it for equal parts of `seconds`.
    pub fn animated_png(frames: &[Scene], seconds: f64) -> Result<Vec<u8>> {
        const PIXEL: u32 = 5;
        let pictures = frames.iter().map(|scene| scene.pixels(PIXEL)).collect::<Result<Vec<_>>>()?;
        let (width, height, _) = pictures.first().context("an animation has at least one frame")?;
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, *width, *height);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Best);
        encoder.set_animated(frames.len() as u32, 0)?;
        let delay = |seconds: f64| (seconds * 1000.0).round().clamp(1.0, 60_000.0) as u16;
        encoder.set_frame_delay(delay(seconds / frames.len() as f64), 1000)?;
        let mut writer = encoder.write_header()?;
        let mut before: Option<&[u8]> = None;
        for (at, (_, _, rgb)) in pictures.iter().enumerate() {
            if at > 0 {
                writer.set_blend_op(png::BlendOp::Over)?;
            }
            if at + 1 == pictures.len() {
                writer.set_frame_delay(2000, 1000)?;
            }
            writer.write_image_data(&changed(rgb, before))?;
            before = Some(rgb);
        }
        writer.finish()?;
        Ok(bytes)
    }

    /// A PDF file of one page.
    pub(crate) fn pdf(&self) -> Result<Vec<u8>> {
        let tree = self.tree()?;
        let make = |embed_text| {
            let options = ConversionOptions { embed_text, ..ConversionOptions::default() };
            svg2pdf::to_pdf(&tree, options, PageOptions { dpi: USVG_PIXELS })
        };
        // A font of the machine may be of a kind that cannot be cut down; its letters are then shapes.
        let file = make(true).or_else(|error| if self.is_foreign() { make(false) } else { Err(error) });
        file.map(|file| sorted(&file)).map_err(|error| anyhow!("making a PDF of the figure: {error}"))
    }

    fn tree(&self) -> Result<Tree> {
        static EMBEDDED: LazyLock<Arc<Database>> = LazyLock::new(|| {
            let mut fonts = Database::new();
            fonts.load_font_data(font::FILE.to_vec());
            Arc::new(fonts)
        });
        let is_foreign = self.is_foreign();
        let fonts = if is_foreign { &font::FONTS } else { &EMBEDDED };
        let font_resolver = FontResolver {
            // The embedded font, whatever the machine has of its name.
            select_font: Box::new(|_, fonts| Some(fonts.faces().next()?.id)),
            select_fallback: Box::new(move |c, tried, _| {
                let face = if is_foreign { font::fallback(c)?.0 } else { return None };
                (!tried.contains(&face)).then_some(face)
            }),
        };
        let options = Options { fontdb: Arc::clone(fonts), dpi: USVG_PIXELS, font_resolver, ..Options::default() };
        Tree::from_str(&self.svg_in_pieces(), &options).context("reading the figure's SVG")
    }
}

/// Pixels of four bytes, transparent where a picture is as the one `before` it.
fn changed(rgb: &[u8], before: Option<&[u8]>) -> Vec<u8> {
    let is_as_before = |at: usize, pixel: &[u8]| before.is_some_and(|before| before[3 * at..][..3] == *pixel);
    let pixels = rgb.chunks_exact(3).enumerate();
    let rgba = pixels.flat_map(|(at, pixel)| match pixel {
        _ if is_as_before(at, pixel) => [0; 4],
        pixel => [pixel[0], pixel[1], pixel[2], u8::MAX],
    });
    rgba.collect()
}

/// The PDF with its lists of resources sorted, which svg2pdf writes in the order of a hash map, so another each time. Lines
/// change places within a list, so every object stays where the file's table says.
fn sorted(file: &[u8]) -> Vec<u8> {
    // Such as `/gs0 7 0 R`: names of resources are in small letters, all other names in a PDF begin with a capital.
    let is_resource = |line: &[u8]| matches!(line.trim_ascii(), [b'/', b'a'..=b'z', .., b' ', b'0', b' ', b'R']);
    let mut lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    for list in lines.chunk_by_mut(|a, b| is_resource(a) && is_resource(b)) {
        list.sort_unstable();
    }
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::{Across, BLACK, GREY, Pen};

    /// A black square of 12 points at the left, a picture of two squares at the right, and a text below.
    fn scene() -> Scene {
        let mut scene = Scene::new("A (title) \u{1b} \\", 72.0);
        scene.height = 36.0;
        scene.fill("area", &[(0.0, 0.0), (12.0, 0.0), (12.0, 12.0), (0.0, 12.0)], BLACK, 1.0);
        scene.image((48.0, 0.0), (24.0, 12.0), 2, &[100, 200]);
        scene.image((60.0, 30.0), (4.0, 4.0), 1, &[50]);
        for left in [1.0, 7.0, 13.0] {
            scene.fill("band", &[(left, 30.0), (left + 5.0, 30.0), (left, 35.0)], GREY, 0.18);
        }
        scene.stroke("axis", &[(0.0, 14.0), (10.0, 14.0)], Pen::new(GREY, 1.0).dashed((4.0, 2.0)));
        scene.text((36.0, 25.0), "tova ±4 模", 7.0, BLACK, Across::Centre);
        scene
    }

    #[test]
    fn shapes_pictures_and_letters_become_pixels() {
        let file = scene().png().unwrap();
        assert_eq!(file, scene().png().unwrap());
        let mut reader = png::Decoder::new(&file[..]).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (300, 150));
        let at = |x: usize, y: usize| pixels[(y * 300 + x) * 3];
        assert_eq!((at(25, 25), at(60, 25)), (0, 255));
        assert_eq!([at(201, 25), at(249, 48), at(251, 1), at(298, 25)], [100, 100, 200, 200]);
        // Letters are within 20 points of the middle, and nowhere else at their height.
        let dark: Vec<usize> = (90..120)
            .flat_map(|y| (0..300).map(move |x| (x, y)))
            .filter(|&(x, y)| at(x, y) < 128)
            .map(|(x, _)| x)
            .collect();
        assert!(dark.len() > 100 && dark.iter().all(|x| (65..235).contains(x)), "{dark:?}");
    }

    #[test]
    fn letters_of_any_alphabet_can_be_drawn() {
        // Greek, Chinese, Arabic with two words, Devanagari with marks, emoji of one and of several characters, a mark without a letter, and
        // characters that mean nothing.
        let texts = [
            "\u{3B1}\u{3B2}\u{3B3} \u{6A21}\u{578B} \u{645}\u{631}\u{62D}\u{628}\u{627} \u{628}\u{643} \u{1F600}",
            "\u{915}\u{94D}\u{937}\u{93F} e\u{301}\u{323}",
            "\u{1F469}\u{200D}\u{1F680} \u{2764}\u{FE0F} \u{1F1E9}\u{1F1EA}",
            "\u{301}",
            "\u{200D}\u{FE0F}",
            "\u{10FFFD}\u{E000}\u{FFFF}",
        ];
        for text in texts {
            let mut scene = Scene::new(text, 144.0);
            scene.height = 48.0;
            scene.text((72.0, 12.0), text, 7.0, BLACK, Across::Centre);
            scene.text((140.0, 24.0), text, 7.0, GREY, Across::Right);
            scene.upright_text((10.0, 24.0), text, 7.0);
            assert!(scene.svg().contains(&crate::report::escape::xml(text)));
            let (width, _, pixels) = scene.pixels(2).unwrap();
            assert_eq!(pixels, scene.pixels(2).unwrap().2);
            // Of the first text something is at every fifth of its width: letters, or boxes.
            let half = font::width(text, 7.0) / 2.0;
            let is_dark = |from: f64, to: f64| {
                let columns = (from * 300.0 / 72.0) as usize..(to * 300.0 / 72.0) as usize;
                columns.into_iter().any(|x| (20..80).any(|y| pixels[(y * width as usize + x) * 3] < 128))
            };
            let fifths = if text == texts[0] { 5 } else { 0 };
            for fifth in 0..fifths {
                let from = 72.0 - half + 2.0 * half * f64::from(fifth) / 5.0;
                assert!(is_dark(from, from + 2.0 * half / 5.0), "{fifth} of {text}");
            }
            let pdf = scene.pdf().unwrap();
            assert!(pdf.starts_with(b"%PDF-1.") && pdf.len() > 1000);
        }
    }

    #[test]
    fn an_animation_plays_its_pictures() {
        let second = || {
            let mut second = scene();
            second.fill("band", &[(20.0, 0.0), (30.0, 0.0), (30.0, 9.0)], BLACK, 0.5);
            second
        };
        let file = Scene::animated_png(&[scene(), second(), scene()], 1.0).unwrap();
        let mut decoder = png::Decoder::new(&file[..]);
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        assert_eq!(reader.info().animation_control.unwrap().num_frames, 3);
        let mut canvas = Vec::new();
        for expected in [scene(), second(), scene()] {
            let mut pixels = vec![0; reader.output_buffer_size()];
            reader.next_frame(&mut pixels).unwrap();
            canvas.resize(pixels.len() / 4, [0; 3]);
            for (shown, pixel) in canvas.iter_mut().zip(pixels.as_chunks::<4>().0) {
                if pixel[3] > 0 {
                    *shown = [pixel[0], pixel[1], pixel[2]];
                }
            }
            assert!(canvas.concat() == expected.pixels(5).unwrap().2);
        }
    }

    #[test]
    fn a_pdf_has_its_page_and_repeats() {
        let file = scene().pdf().unwrap();
        assert_eq!(file, scene().pdf().unwrap());
        let text: String = file.iter().map(|byte| char::from(*byte)).collect();
        assert!(text.starts_with("%PDF-1.") && text.contains("/MediaBox [0 0 72 36]"), "{text:.300}");
        // The font, the text's characters, and the picture are in the file; a date is not.
        for part in ["DejaVuSans", "/ToUnicode", "/Subtype /Image", "/Width 2"] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("Date"));
        // Every object is where the table at the end says.
        let (_, end) = text.rsplit_once("startxref\n").unwrap();
        let start: usize = end.lines().next().unwrap().parse().unwrap();
        let mut lines = String::from_utf8_lossy(&file[start..]).into_owned();
        lines = lines.strip_prefix("xref\n0 ").unwrap().to_owned();
        let count: usize = lines.lines().next().unwrap().parse().unwrap();
        for (number, line) in lines.lines().skip(2).take(count - 1).enumerate() {
            let place: usize = line[..10].parse().unwrap();
            assert!(file[place..].starts_with(format!("{} 0 obj", number + 1).as_bytes()), "{number}: {line}");
        }
    }
}

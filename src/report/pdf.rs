//! A scene as a PDF of one page, for papers: lines stay lines, text can be searched and copied.
//!
//! It knows the file format and the embedded font, nothing of what is drawn. The same scene gives the same bytes: there is
//! no date in it, and no identifier.

use std::collections::BTreeMap;

use miniz_oxide::deflate::{CompressionLevel, compress_to_vec_zlib};
use pdf_writer::types::{CidFontType, FontFlags, LineCapStyle, LineJoinStyle, SystemInfo, UnicodeCmap};
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};
use plotters::style::RGBColor;

use super::scene::{Across, Scene, Shape, Spot};
use super::{escape, font};

const CATALOG: Ref = Ref::new(1);
const PAGES: Ref = Ref::new(2);
const PAGE: Ref = Ref::new(3);
const CONTENT: Ref = Ref::new(4);
const INFO: Ref = Ref::new(5);
const FONT: Ref = Ref::new(6);
const CID_FONT: Ref = Ref::new(7);
const DESCRIPTOR: Ref = Ref::new(8);
const FONT_FILE: Ref = Ref::new(9);
const TO_UNICODE: Ref = Ref::new(10);
/// Opacities and pictures follow, as many as there are.
const FIRST_FREE: i32 = 11;

const FONT_NAME: Name = Name(b"F");
/// Of the bundled subset; six letters and a plus sign say that it is one.
const POSTSCRIPT_NAME: Name = Name(b"TOVABN+DejaVuSans");
const SYSTEM: SystemInfo = SystemInfo { registry: Str(b"Adobe"), ordering: Str(b"Identity"), supplement: 0 };
/// Its head and hhea tables, in thousandths of the font size.
const BOX: Rect = Rect { x1: -1021.0, y1: -463.0, x2: 1794.0, y2: 1233.0 };
const ASCENT: f32 = 928.0;
const DESCENT: f32 = -236.0;

/// The file's bytes.
pub(super) fn file(scene: &Scene) -> Vec<u8> {
    let mut pdf = Pdf::new();
    pdf.catalog(CATALOG).pages(PAGES);
    pdf.pages(PAGES).kids([PAGE]).count(1);
    let title = escape::plain(&scene.title);
    pdf.document_info(INFO).title(TextStr(&title)).producer(TextStr("tova-bench"));

    let mut drawing = Drawing::new(scene.height);
    // Pictures lie below everything else, as in the other formats.
    let (pictures, others): (Vec<&Shape>, Vec<&Shape>) =
        scene.shapes.iter().partition(|shape| matches!(shape, Shape::Image { .. }));
    for shape in pictures.into_iter().chain(others) {
        drawing.shape(shape);
    }
    let Drawing { content, opacities, images, glyphs, .. } = drawing;

    let mut free = (FIRST_FREE..).map(Ref::new);
    let opacities: Vec<(u8, Ref)> = opacities.into_iter().zip(&mut free).collect();
    let images: Vec<(Image<'_>, Ref)> = images.into_iter().zip(&mut free).collect();
    let mut page = pdf.page(PAGE);
    page.parent(PAGES).contents(CONTENT).media_box(Rect::new(0.0, 0.0, scene.width as f32, scene.height as f32));
    let mut resources = page.resources();
    resources.fonts().pair(FONT_NAME, FONT);
    let mut states = resources.ext_g_states();
    for (percent, id) in &opacities {
        states.pair(Name(opacity_name(*percent).as_bytes()), *id);
    }
    states.finish();
    let mut objects = resources.x_objects();
    for (number, (_, id)) in images.iter().enumerate() {
        objects.pair(Name(image_name(number).as_bytes()), *id);
    }
    objects.finish();
    resources.finish();
    page.finish();
    let compressed = compress(&content.finish());
    pdf.stream(CONTENT, &compressed).filter(Filter::FlateDecode);
    for (percent, id) in opacities {
        pdf.ext_graphics(id).non_stroking_alpha(f32::from(percent) / 100.0);
    }
    for (image, id) in images {
        let compressed = compress(image.grey);
        let mut object = pdf.image_xobject(id, &compressed);
        object.filter(Filter::FlateDecode);
        object.width(image.columns).height(image.rows).bits_per_component(8).color_space().device_gray();
    }
    write_font(&mut pdf, &glyphs);
    pdf.finish()
}

/// The font with the widths and the characters of the glyphs that are used.
fn write_font(pdf: &mut Pdf, glyphs: &BTreeMap<u16, char>) {
    pdf.type0_font(FONT)
        .base_font(POSTSCRIPT_NAME)
        .encoding_predefined(Name(b"Identity-H"))
        .descendant_font(CID_FONT)
        .to_unicode(TO_UNICODE);
    let mut cid = pdf.cid_font(CID_FONT);
    cid.subtype(CidFontType::Type2).base_font(POSTSCRIPT_NAME).system_info(SYSTEM).font_descriptor(DESCRIPTOR);
    cid.default_width(0.0).cid_to_gid_map_predefined(Name(b"Identity"));
    let mut widths = cid.widths();
    for (glyph, c) in glyphs {
        widths.same(*glyph, *glyph, font::width(c.encode_utf8(&mut [0; 4]), 1000.0) as f32);
    }
    widths.finish();
    cid.finish();
    let mut descriptor = pdf.font_descriptor(DESCRIPTOR);
    descriptor.name(POSTSCRIPT_NAME).flags(FontFlags::NON_SYMBOLIC).bbox(BOX).italic_angle(0.0);
    descriptor.ascent(ASCENT).descent(DESCENT).cap_height(2000.0 * font::HALF_DIGIT as f32).stem_v(92.0);
    descriptor.font_file2(FONT_FILE);
    descriptor.finish();
    let compressed = compress(font::FILE);
    let mut file = pdf.stream(FONT_FILE, &compressed);
    file.pair(Name(b"Length1"), i32::try_from(font::FILE.len()).unwrap_or(i32::MAX));
    file.filter(Filter::FlateDecode);
    file.finish();
    let mut characters = UnicodeCmap::new(Name(b"Characters"), SYSTEM);
    // Glyph 0 is the box that stands for whatever the font lacks.
    for (glyph, c) in glyphs.iter().filter(|(glyph, _)| **glyph != 0) {
        characters.pair(*glyph, *c);
    }
    pdf.cmap(TO_UNICODE, &characters.finish());
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec_zlib(bytes, CompressionLevel::BestCompression as u8)
}

fn opacity_name(percent: u8) -> String {
    format!("O{percent}")
}

fn image_name(number: usize) -> String {
    format!("I{number}")
}

struct Image<'a> {
    grey: &'a [u8],
    columns: i32,
    rows: i32,
}

/// A page in the making, and what it refers to.
struct Drawing<'a> {
    content: Content,
    /// The page's; PDF counts from the bottom.
    height: f64,
    /// In percent.
    opacities: Vec<u8>,
    images: Vec<Image<'a>>,
    glyphs: BTreeMap<u16, char>,
}

impl<'a> Drawing<'a> {
    fn new(height: f64) -> Self {
        let mut content = Content::new();
        content.set_line_join(LineJoinStyle::RoundJoin).set_line_cap(LineCapStyle::ButtCap);
        Self { content, height, opacities: Vec::new(), images: Vec::new(), glyphs: BTreeMap::new() }
    }

    fn shape(&mut self, shape: &'a Shape) {
        match shape {
            Shape::Fill { points, color, opacity } => self.fill(points, *color, *opacity),
            Shape::Stroke { points, color, width, dash } => self.stroke(points, *color, *width, *dash),
            Shape::Image { corner, size, columns, grey } => self.image(*corner, *size, *columns, grey),
            Shape::Text { .. } => self.text(shape),
        }
    }

    /// From the top left to the bottom left.
    fn spot(&self, (x, y): Spot) -> (f32, f32) {
        (x as f32, (self.height - y) as f32)
    }

    fn path(&mut self, points: &[Spot]) -> bool {
        let mut spots = points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()).map(|spot| self.spot(*spot));
        let spots: Vec<(f32, f32)> = spots.by_ref().collect();
        let [first, others @ ..] = &spots[..] else { return false };
        self.content.move_to(first.0, first.1);
        for (x, y) in others {
            self.content.line_to(*x, *y);
        }
        true
    }

    fn fill(&mut self, points: &[Spot], color: RGBColor, opacity: f64) {
        let percent = (100.0 * opacity.clamp(0.0, 1.0)).round() as u8;
        if percent < 100 {
            if !self.opacities.contains(&percent) {
                self.opacities.push(percent);
            }
            self.content.save_state().set_parameters(Name(opacity_name(percent).as_bytes()));
        }
        let [red, green, blue] = shares(color);
        self.content.set_fill_rgb(red, green, blue);
        if self.path(points) {
            self.content.close_path().fill_nonzero();
        }
        if percent < 100 {
            self.content.restore_state();
        }
    }

    fn stroke(&mut self, points: &[Spot], color: RGBColor, width: f64, dash: Option<(f64, f64)>) {
        let [red, green, blue] = shares(color);
        self.content.set_stroke_rgb(red, green, blue).set_line_width(width as f32);
        let dashes = dash.map_or_else(Vec::new, |(on, off)| vec![on as f32, off as f32]);
        self.content.set_dash_pattern(dashes, 0.0);
        if self.path(points) {
            // A frame that ends where it began has no open corner.
            let closed = points.len() > 2 && points.first() == points.last();
            if closed {
                self.content.close_and_stroke()
            } else {
                self.content.stroke()
            };
        }
    }

    fn image(&mut self, corner: Spot, (width, height): (f64, f64), columns: usize, grey: &'a [u8]) {
        let columns = columns.max(1);
        let rows = grey.len() / columns;
        let (Ok(across), Ok(down)) = (i32::try_from(columns), i32::try_from(rows)) else { return };
        let name = image_name(self.images.len());
        self.images.push(Image { grey: &grey[..rows * columns], columns: across, rows: down });
        let (x, y) = self.spot((corner.0, corner.1 + height));
        self.content.save_state().transform([width as f32, 0.0, 0.0, height as f32, x, y]);
        self.content.x_object(Name(name.as_bytes())).restore_state();
    }

    fn text(&mut self, shape: &Shape) {
        let Shape::Text { at, text, size, color, across, upright } = shape else { return };
        let text = escape::plain(text);
        let start = match across {
            Across::Left => 0.0,
            Across::Centre => -0.5 * font::width(&text, *size),
            Across::Right => -font::width(&text, *size),
        };
        let down = font::HALF_DIGIT * size;
        let mut line = Vec::with_capacity(2 * text.len());
        for c in text.chars() {
            let glyph = font::glyph(c);
            self.glyphs.insert(glyph, c);
            line.extend(glyph.to_be_bytes());
        }
        let [red, green, blue] = shares(*color);
        let (x, y) =
            if *upright { self.spot((at.0 + down, at.1 - start)) } else { self.spot((at.0 + start, at.1 + down)) };
        let turned = if *upright { [0.0, 1.0, -1.0, 0.0] } else { [1.0, 0.0, 0.0, 1.0] };
        let [a, b, c, d] = turned;
        self.content.set_fill_rgb(red, green, blue).begin_text().set_font(FONT_NAME, *size as f32);
        self.content.set_text_matrix([a, b, c, d, x, y]).show(Str(&line)).end_text();
    }
}

fn shares(RGBColor(red, green, blue): RGBColor) -> [f32; 3] {
    [red, green, blue].map(|channel| f32::from(channel) / 255.0)
}

#[cfg(test)]
mod tests {
    use super::super::ink::{BLACK, GREY};
    use super::*;

    fn scene() -> Scene {
        let mut scene =
            Scene { title: "A (title) \u{1b} \\".into(), width: 100.0, height: 50.0, shapes: Vec::new() };
        scene.stroke(vec![(0.0, 0.0), (10.0, 10.0)], BLACK, 1.0, Some((4.0, 2.0)));
        scene.shapes.push(Shape::Fill {
            points: vec![(0.0, 0.0), (9.0, 0.0), (9.0, 9.0)],
            color: GREY,
            opacity: 0.18,
        });
        scene.shapes.push(Shape::Image {
            corner: (20.0, 0.0),
            size: (8.0, 8.0),
            columns: 2,
            grey: vec![0, 255, 9, 80],
        });
        scene.text((50.0, 25.0), "tova 模±4", 7.0, BLACK, Across::Centre);
        scene
    }

    /// The object that starts at each place the table of places names, by number.
    fn objects(file: &[u8]) -> Vec<String> {
        let text: String = file.iter().map(|byte| char::from(*byte)).collect();
        let (_, end) = text.rsplit_once("startxref\n").unwrap();
        let start: usize = end.lines().next().unwrap().parse().unwrap();
        let mut lines = text[char_start(&text, start)..].lines();
        assert_eq!(lines.next(), Some("xref"));
        let count: usize = lines.next().unwrap().strip_prefix("0 ").unwrap().parse().unwrap();
        let places = lines.skip(1).take(count - 1).map(|line| line[..10].parse::<usize>().unwrap());
        places.map(|place| text[char_start(&text, place)..].to_owned()).collect()
    }

    /// Bytes beyond ASCII take two in the text made of them.
    fn char_start(text: &str, byte: usize) -> usize {
        text.char_indices().nth(byte).unwrap().0
    }

    #[test]
    fn every_object_lies_where_the_table_says() {
        let file = file(&scene());
        assert!(file.starts_with(b"%PDF-1."));
        let objects = objects(&file);
        for (number, object) in objects.iter().enumerate() {
            assert!(object.starts_with(&format!("{} 0 obj", number + 1)), "{number}: {object:.40}");
        }
        // The page, its size, and one opacity and one picture after the fixed ones.
        assert!(
            objects[1].contains("/Count 1") && objects[2].contains("/MediaBox [0 0 100 50]"),
            "{:.200}",
            objects[2]
        );
        assert_eq!(objects.len() as i32, FIRST_FREE - 1 + 2);
    }

    #[test]
    fn text_can_be_found_and_bytes_repeat() {
        let first = file(&scene());
        assert_eq!(first, file(&scene()));
        let text: String = first.iter().map(|byte| char::from(*byte)).collect();
        // Every letter's glyph is told apart by its character; the one the font lacks has none.
        for c in "tova ±4".chars() {
            assert!(text.contains(&format!("<{:04X}> <{:04X}>", font::glyph(c), c as u32)), "{c}");
        }
        assert!(!text.contains(&format!("<0000> <{:04X}>", '模' as u32)) && !text.contains("Date"));
    }
}

//! The writer of figures: one SVG, which stands alone as a file and inside the page.
//!
//! Lengths are points (1/72 inch) from the top left. Every element has its colour, which files show, and a class, by which
//! the page's style sheet replaces that colour with one of the light or dark theme. Knows nothing of what is drawn.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::report::escape;
use crate::report::figure::{BLACK, Color, WHITE, font};

/// A position in points: across and down.
pub(crate) type Spot = (f64, f64);

/// Which part of a text is at its position; vertically, half the height of a digit is.
#[derive(Clone, Copy)]
pub(crate) enum Across {
    Left,
    Centre,
    Right,
}

/// What a line is drawn with.
#[derive(Clone, Copy)]
pub(crate) struct Pen {
    pub(crate) color: Color,
    /// In points.
    pub(crate) width: f64,
    /// Lengths of a dash and of the gap after it.
    pub(crate) dash: Option<(f64, f64)>,
}

impl Pen {
    pub(crate) fn new(color: Color, width: f64) -> Self {
        Self { color, width, dash: None }
    }

    pub(crate) fn dashed(self, dash: (f64, f64)) -> Self {
        Self { dash: Some(dash), ..self }
    }
}

/// Units per inch. Positions are whole units, which are too fine to be seen.
const UNITS: f64 = 600.0;

pub struct Scene {
    pub(crate) title: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// The elements so far.
    parts: Vec<Part>,
}

/// A part of a figure. Texts are kept apart, since a file of pixels has them in other pieces than an SVG.
enum Part {
    Markup(String),
    Text(Text),
}

struct Text {
    /// In units.
    at: (i32, i32),
    text: String,
    /// In points.
    size: f64,
    color: Color,
    anchor: &'static str,
    /// The `transform` of the element.
    turn: String,
}

impl Text {
    /// The element; viewers choose fonts for what the embedded one lacks.
    fn svg(&self) -> String {
        self.piece(self.at.0, &self.text, self.anchor)
    }

    /// Elements of one font each, from left to right.
    fn pieces(&self) -> String {
        if !font::is_foreign(&self.text) {
            return self.svg();
        }
        let whole = font::width(&self.text, self.size);
        let before = match self.anchor {
            "start" => 0.0,
            "middle" => whole / 2.0,
            _ => whole,
        };
        let mut along = -before;
        let piece = |(run, _): (String, _)| {
            let svg = self.piece(self.at.0 + unit(along), &run, "start");
            along += font::width(&run, self.size);
            svg
        };
        font::runs(&self.text).into_iter().map(piece).collect()
    }

    fn piece(&self, x: i32, text: &str, anchor: &str) -> String {
        let class = if self.color == BLACK { "ink" } else { "soft" };
        let (y, size, color, turn) = (self.at.1, unit(self.size), hex(self.color), &self.turn);
        // A space at the beginning of a piece has its place.
        let spaces = if anchor == self.anchor { "" } else { " xml:space=\"preserve\"" };
        format!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
             fill=\"{color}\"{turn}{spaces}>{}</text>\n",
            escape::xml(text)
        )
    }
}

impl Scene {
    /// Without a height, which is set when everything is drawn.
    pub(crate) fn new(title: impl Into<String>, width: f64) -> Self {
        Self { title: title.into(), width, height: 0.0, parts: Vec::new() }
    }

    pub(crate) fn stroke(&mut self, class: &str, points: &[Spot], pen: Pen) {
        let mut points: Vec<_> = points.iter().copied().map(units).collect();
        points.dedup();
        let (color, width) = (hex(pen.color), unit(pen.width).max(2));
        let dash = pen.dash.map(|(on, off)| format!(" stroke-dasharray=\"{} {}\"", unit(on), unit(off)));
        let dash = dash.unwrap_or_default();
        self.path(class, &points, "", &format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"{dash}"));
    }

    pub(crate) fn fill(&mut self, class: &str, points: &[Spot], color: Color, opacity: f64) {
        let points: Vec<_> = points.iter().copied().map(units).collect();
        let opacity = if opacity < 1.0 { format!(" opacity=\"{opacity}\"") } else { String::new() };
        self.path(class, &points, "Z", &format!("fill=\"{}\"{opacity}", hex(color)));
    }

    fn path(&mut self, class: &str, points: &[(i32, i32)], end: &str, paint: &str) {
        let steps: Vec<String> = points.iter().map(|(x, y)| format!("{x} {y}")).collect();
        let start = if steps.is_empty() { "" } else { "M" };
        self.add(&format!("<path class=\"{class}\" d=\"{start}{}{end}\" {paint}></path>\n", steps.join("L")));
    }

    fn add(&mut self, markup: &str) {
        match self.parts.last_mut() {
            Some(Part::Markup(last)) => last.push_str(markup),
            _ => self.parts.push(Part::Markup(markup.to_owned())),
        }
    }

    /// All elements, texts as they are written.
    fn body(&self, write: fn(&Text) -> String) -> String {
        let part = |part: &Part| match part {
            Part::Markup(markup) => markup.clone(),
            Part::Text(text) => write(text),
        };
        self.parts.iter().map(part).collect()
    }

    pub(crate) fn text(&mut self, at: Spot, text: &str, size: f64, color: Color, across: Across) {
        let anchor = match across {
            Across::Left => "start",
            Across::Centre => "middle",
            Across::Right => "end",
        };
        self.write_text(units((at.0, at.1 + font::HALF_DIGIT * size)), text, (size, color), anchor, String::new());
    }

    /// Black text that reads from bottom to top, centred.
    pub(crate) fn upright_text(&mut self, at: Spot, text: &str, size: f64) {
        let (x, y) = units((at.0 + font::HALF_DIGIT * size, at.1));
        self.write_text((x, y), text, (size, BLACK), "middle", format!(" transform=\"rotate(270 {x} {y})\""));
    }

    fn write_text(
        &mut self,
        at: (i32, i32),
        text: &str,
        (size, color): (f64, Color),
        anchor: &'static str,
        turn: String,
    ) {
        self.parts.push(Part::Text(Text { at, text: escape::plain(text), size, color, anchor, turn }));
    }

    /// A picture of grey squares, `columns` in each row, in a rectangle.
    pub(crate) fn image(&mut self, corner: Spot, size: (f64, f64), columns: usize, grey: &[u8]) {
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, columns as u32, (grey.len() / columns) as u32);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.set_depth(png::BitDepth::Eight);
        let encoded = encoder.write_header().and_then(|mut writer| writer.write_image_data(grey));
        encoded.expect("a picture of whole rows can be encoded in memory");
        let ((x, y), (width, height)) = (units(corner), units(size));
        let data = STANDARD.encode(png);
        self.add(&format!(
            "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
             href=\"data:image/png;base64,{data}\"></image>\n"
        ));
    }

    /// What is drawn `inside` as one group; `attributes` must be escaped.
    pub(crate) fn group(&mut self, attributes: &str, inside: impl FnOnce(&mut Self)) {
        self.add(&format!("<g {attributes}>\n"));
        inside(self);
        self.add("</g>\n");
    }

    /// A text that a reader gets who points at the group it is in, and a transparent circle to point at.
    pub(crate) fn tooltip(&mut self, at: Spot, radius: f64, text: &str) {
        let ((x, y), radius, text) = (units(at), unit(radius), escape::xml(text));
        self.add(&format!(
            "<title>{text}</title>\n<circle class=\"target\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"none\" \
             pointer-events=\"all\"></circle>\n"
        ));
    }

    /// Width and height in units; both are even, since two units are a pixel of a PNG.
    pub(crate) fn size(&self) -> (u32, u32) {
        let even = |points: f64| (points * UNITS / 72.0 / 2.0).ceil() as u32 * 2;
        (even(self.width), even(self.height))
    }

    /// The figure as a file.
    pub(crate) fn svg(&self) -> String {
        self.file(&self.body(Text::svg))
    }

    /// The figure with every text in pieces that one font each can draw.
    pub(super) fn svg_in_pieces(&self) -> String {
        self.file(&self.body(Text::pieces))
    }

    /// Whether the figure has a text with characters that the embedded font lacks.
    pub(super) fn is_foreign(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Text(text) if font::is_foreign(&text.text)))
    }

    fn file(&self, body: &str) -> String {
        let (width, height) = self.size();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" {} role=\"img\" font-family=\"{}\" \
             stroke-linejoin=\"round\">\n<title>{}</title>\n\
             <style>image{{image-rendering:pixelated}}</style>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n{}</svg>\n",
            self.dimensions(1.0),
            font::FAMILY,
            escape::xml(&self.title),
            hex(WHITE),
            body
        )
    }

    /// The figure as a part of the page, whose style sheet has the colours; `label` is its name for screen readers. Where the
    /// style sheet leaves it its own width, it is a fourth larger than in print: 6 points are then 10 pixels.
    pub(crate) fn inline(&self, class: &str, label: &str) -> String {
        format!(
            "<svg class=\"plot drawn {class}\" {} role=\"group\" aria-label=\"{}\" stroke-linejoin=\"round\">\n{}</svg>\n",
            self.dimensions(1.25),
            escape::xml(label),
            self.body(Text::svg)
        )
    }

    fn dimensions(&self, scale: f64) -> String {
        let (width, height) = self.size();
        let [across, down] = [width, height].map(|units| scale * f64::from(units) / UNITS);
        format!("width=\"{across:.3}in\" height=\"{down:.3}in\" viewBox=\"0 0 {width} {height}\"")
    }
}

fn unit(points: f64) -> i32 {
    (points * UNITS / 72.0).round() as i32
}

fn units((x, y): Spot) -> (i32, i32) {
    (unit(x), unit(y))
}

fn hex(Color(red, green, blue): Color) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// A text of a figure, with the room it takes in points.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct PlacedText {
    pub(crate) text: String,
    pub(crate) size: f64,
    pub(crate) upright: bool,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) y: f64,
}

#[cfg(test)]
impl PlacedText {
    /// An SVG has positions in whole units of 0.12 points, so a text may be half a unit outside: 0.1 points are allowed.
    pub(crate) fn is_inside(&self, scene: &Scene) -> bool {
        let across = self.upright || (self.left >= -0.1 && self.right <= scene.width + 0.1);
        across && (0.0..=scene.height).contains(&self.y)
    }
}

/// The texts of a figure, read back from its SVG.
#[cfg(test)]
pub(crate) fn texts(scene: &Scene) -> Vec<PlacedText> {
    let svg = scene.svg();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    let placed = texts.map(|node| {
        let number = |name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap() * 72.0 / UNITS;
        let (text, size, x) = (node.text().unwrap_or_default().to_owned(), number("font-size"), number("x"));
        let width = font::width(&text, size);
        let left = match node.attribute("text-anchor").unwrap() {
            "start" => x,
            "middle" => x - width / 2.0,
            _ => x - width,
        };
        let upright = node.attribute("transform").is_some();
        PlacedText { text, size, upright, left, right: left + width, y: number("y") }
    });
    placed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::GREY;

    #[test]
    fn elements_have_their_colour_class_and_place() {
        let mut scene = Scene::new("A & <b>", 72.0);
        scene.height = 36.0;
        scene.stroke("axis", &[(0.0, 0.0), (72.0, 36.0)], Pen::new(BLACK, 0.6).dashed((4.0, 2.5)));
        scene.fill("band", &[(0.0, 0.0), (9.0, 0.0), (9.0, 9.0)], GREY, 0.18);
        scene.text((36.0, 18.0), "1 < 2", 7.2, BLACK, Across::Centre);
        scene.tooltip((3.0, 6.0), 4.8, "a \"tip\"");
        let svg = scene.svg();
        for part in [
            "width=\"1.000in\" height=\"0.500in\" viewBox=\"0 0 600 300\"",
            "<title>A &amp; &lt;b&gt;</title>",
            "<path class=\"axis\" d=\"M0 0L600 300\" fill=\"none\" stroke=\"#000000\" stroke-width=\"5\" stroke-dasharray=\"33 21\">",
            "<path class=\"band\" d=\"M0 0L75 0L75 75Z\" fill=\"#6e6e6e\" opacity=\"0.18\">",
            "x=\"300\" y=\"172\" text-anchor=\"middle\" font-size=\"60\" fill=\"#000000\">1 &lt; 2</text>",
            "cx=\"25\" cy=\"50\" r=\"40\"",
        ] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
        assert!(roxmltree::Document::parse(&svg).is_ok());
    }
}

//! A picture as a list of shapes, and its two renderings: SVG text and a PNG file.
//!
//! Lengths are points (1/72 inch) from the top left, so sizes mean the same in both and on paper. It knows nothing of
//! what is drawn. The drawing library fills and strokes; letters of the PNG are set here, from the embedded font, since
//! the library's own bitmap text ignores where a glyph starts and so spaces letters unevenly.

use anyhow::{Context as _, Result, anyhow};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::image::{self, Image};
use super::{escape, font};

pub(crate) type Spot = (f64, f64);

/// Where a text hangs on its spot; up and down it is always centred on the height of a digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Across {
    Left,
    Centre,
    Right,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Fill {
        points: Vec<Spot>,
        color: RGBColor,
        opacity: f64,
    },
    /// `dash` is the length of a dash and of the gap after it.
    Stroke {
        points: Vec<Spot>,
        color: RGBColor,
        width: f64,
        dash: Option<(f64, f64)>,
    },
    /// Squares of grey, row by row, in a rectangle; it lies below everything else.
    Image {
        corner: Spot,
        size: (f64, f64),
        columns: usize,
        grey: Vec<u8>,
    },
    /// `size` is the font's; upright text reads from bottom to top.
    Text {
        at: Spot,
        text: String,
        size: f64,
        color: RGBColor,
        across: Across,
        upright: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) title: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) shapes: Vec<Shape>,
}

/// Units per inch: fine enough that whole units, all the library draws in, are no grid to see.
const UNITS: f64 = 600.0;
/// Units that become one pixel of the PNG each way, which smooths its edges: 300 pixels per inch remain.
const SMOOTHING: usize = 2;

impl Scene {
    pub(crate) fn stroke(&mut self, points: Vec<Spot>, color: RGBColor, width: f64, dash: Option<(f64, f64)>) {
        self.shapes.push(Shape::Stroke { points, color, width, dash });
    }

    pub(crate) fn text(&mut self, at: Spot, text: &str, size: f64, color: RGBColor, across: Across) {
        self.shapes.push(Shape::Text { at, text: text.to_owned(), size, color, across, upright: false });
    }

    pub(crate) fn svg(&self) -> Result<String> {
        let mut body = String::new();
        {
            let root = SVGBackend::with_string(&mut body, self.size()).into_drawing_area();
            root.fill(&WHITE).context("drawing the SVG")?;
            draw(&root, self).and_then(|()| draw_texts(&root, self)).context("drawing the SVG")?;
            root.present().context("drawing the SVG")?;
        }
        // The library's first line sizes the picture in pixels; paper wants inches. Text inherits nothing else.
        let (width, height) = self.size();
        let (_, shapes) = body.split_once(">\n").ok_or_else(|| anyhow!("the SVG has no first line"))?;
        // Pictures go right after the white the library began with.
        let (white, shapes) = shapes.split_once("/>\n").ok_or_else(|| anyhow!("the SVG has no background"))?;
        let images = self.images().map(image::svg).collect::<Result<String>>()?;
        let title = escape::xml(&self.title);
        Ok(format!(
            "<svg width=\"{:.3}in\" height=\"{:.3}in\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             stroke-linejoin=\"round\" xmlns=\"http://www.w3.org/2000/svg\">\n<title>{title}</title>\n{white}/>\n{images}{shapes}",
            f64::from(width) / UNITS,
            f64::from(height) / UNITS,
        ))
    }

    /// The bytes of a PNG file.
    pub(crate) fn png(&self) -> Result<Vec<u8>> {
        let (width, height) = self.size();
        let mut pixels = vec![255; width as usize * height as usize * 3];
        for image in self.images() {
            image.paint(&mut pixels, width as usize);
        }
        {
            let root = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
            draw(&root, self).context("drawing the PNG")?;
            root.present().context("drawing the PNG")?;
        }
        for shape in &self.shapes {
            if let Shape::Text { at, text, size, color, across, upright } = shape {
                let start = match across {
                    Across::Left => 0.0,
                    Across::Centre => -0.5 * font::width(text, *size),
                    Across::Right => -font::width(text, *size),
                };
                let at = (at.0 * UNITS / 72.0, at.1 * UNITS / 72.0);
                let canvas = font::Canvas { pixels: &mut pixels, width: width as usize };
                canvas.write(
                    text,
                    size * UNITS / 72.0,
                    at,
                    start * UNITS / 72.0,
                    *upright,
                    (color.0, color.1, color.2),
                );
            }
        }
        let (small, size) = shrink(&pixels, width as usize, height as usize);
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, size.0, size.1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        // Most of a figure is white: what is beside a pixel says nearly all of it.
        encoder.set_adaptive_filter(png::AdaptiveFilterType::Adaptive);
        let mut writer = encoder.write_header().context("encoding the PNG")?;
        writer.write_image_data(&small).context("encoding the PNG")?;
        writer.finish().context("encoding the PNG")?;
        Ok(bytes)
    }

    fn images(&self) -> impl Iterator<Item = Image<'_>> {
        self.shapes.iter().filter_map(|shape| match shape {
            Shape::Image { corner, size, columns, grey } => {
                let end = (corner.0 + size.0, corner.1 + size.1);
                Some(Image { from: unit(*corner), to: unit(end), columns: (*columns).max(1), grey })
            }
            _ => None,
        })
    }

    /// In units, a multiple of the smoothing.
    fn size(&self) -> (u32, u32) {
        let units = |points: f64| (points * UNITS / 72.0 / SMOOTHING as f64).ceil() as u32 * SMOOTHING as u32;
        (units(self.width), units(self.height))
    }
}

fn unit((x, y): Spot) -> (i32, i32) {
    ((x * UNITS / 72.0).round() as i32, (y * UNITS / 72.0).round() as i32)
}

/// Everything but pictures and text.
fn draw<B: DrawingBackend>(root: &DrawingArea<B, Shift>, scene: &Scene) -> Result<()>
where
    B::ErrorType: 'static,
{
    for shape in &scene.shapes {
        match shape {
            Shape::Fill { points, color, opacity } => {
                let points: Vec<_> = points.iter().copied().map(unit).collect();
                root.draw(&Polygon::new(points, color.mix(*opacity)))?;
            }
            Shape::Stroke { points, color, width, dash } => {
                let mut points: Vec<_> = points.iter().copied().map(unit).collect();
                // Points that fall together would leave the library's corners without a direction.
                points.dedup();
                let style = color.stroke_width(((width * UNITS / 72.0).round() as u32).max(2));
                let long = |points: f64| (points * UNITS / 72.0).round() as i32;
                match dash {
                    Some((on, off)) => {
                        root.draw(&DashedPathElement::new(points, long(*on), long(*off), style))?;
                    }
                    None => root.draw(&PathElement::new(points, style))?,
                }
            }
            Shape::Image { .. } | Shape::Text { .. } => {}
        }
    }
    Ok(())
}

fn draw_texts<B: DrawingBackend>(root: &DrawingArea<B, Shift>, scene: &Scene) -> Result<()>
where
    B::ErrorType: 'static,
{
    // The library sizes fonts by their line, not their em.
    const LINE: f64 = 1.24;
    // It centres on half the height of an x; this more to centre on a digit.
    const DOWN: f64 = font::HALF_DIGIT - font::HALF_X;
    for shape in &scene.shapes {
        let Shape::Text { at, text, size, color, across, upright } = shape else { continue };
        let horizontal = match across {
            Across::Left => HPos::Left,
            Across::Centre => HPos::Center,
            Across::Right => HPos::Right,
        };
        let (turn, at) = if *upright {
            (FontTransform::Rotate270, (at.0 + DOWN * size, at.1))
        } else {
            (FontTransform::None, (at.0, at.1 + DOWN * size))
        };
        let font = FontDesc::new(FontFamily::Name(font::FAMILY), size * UNITS / 72.0 * LINE, FontStyle::Normal);
        let style = font.transform(turn).color(color).pos(Pos::new(horizontal, VPos::Center));
        root.draw(&Text::new(escape::plain(text), unit(at), style))?;
    }
    Ok(())
}

/// Each square of pixels becomes its mean.
fn shrink(pixels: &[u8], width: usize, height: usize) -> (Vec<u8>, (u32, u32)) {
    let (small_width, small_height) = (width / SMOOTHING, height / SMOOTHING);
    let mut small = Vec::with_capacity(small_width * small_height * 3);
    for (y, x) in (0..small_height).flat_map(|y| (0..small_width).map(move |x| (y, x))) {
        for channel in 0..3 {
            let square = (0..SMOOTHING * SMOOTHING).map(|i| {
                let (row, column) = (y * SMOOTHING + i / SMOOTHING, x * SMOOTHING + i % SMOOTHING);
                usize::from(pixels[(row * width + column) * 3 + channel])
            });
            let mean = (square.sum::<usize>() + SMOOTHING * SMOOTHING / 2) / (SMOOTHING * SMOOTHING);
            small.push(u8::try_from(mean).unwrap_or(u8::MAX));
        }
    }
    (small, (small_width as u32, small_height as u32))
}

//! Pictures of grey squares: pixels of a PNG, or an `<image>` inside an SVG.
//!
//! A map of a long text has too many spots for shapes. Nothing here knows what is pictured.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Squares of grey, `columns` in a row, between two corners in units of the drawing.
pub(super) struct Image<'a> {
    pub(super) from: (i32, i32),
    pub(super) to: (i32, i32),
    pub(super) columns: usize,
    pub(super) grey: &'a [u8],
}

impl Image<'_> {
    fn rows(&self) -> usize {
        self.grey.len() / self.columns
    }

    /// Paints onto RGB pixels, `width` in a row; what lies outside is left out.
    pub(super) fn paint(&self, pixels: &mut [u8], width: usize) {
        let (across, down) =
            ((self.to.0 - self.from.0).max(1) as usize, (self.to.1 - self.from.1).max(1) as usize);
        for y in 0..down {
            for x in 0..across {
                let (Ok(left), Ok(top)) = (usize::try_from(self.from.0), usize::try_from(self.from.1)) else {
                    return;
                };
                let square = y * self.rows() / down * self.columns + x * self.columns / across;
                let at = ((top + y) * width + left + x) * 3;
                if let (true, Some(pixel)) = (left + x < width, pixels.get_mut(at..at + 3)) {
                    pixel.fill(self.grey[square]);
                }
            }
        }
    }
}

/// The picture as an element of an SVG.
pub(super) fn svg(image: Image<'_>) -> Result<String> {
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, image.columns as u32, image.rows() as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(image.grey))
        .context("making a picture for the SVG")?;
    Ok(format!(
        "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" preserveAspectRatio=\"none\" \
         style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{}\"/>\n",
        image.from.0,
        image.from.1,
        image.to.0 - image.from.0,
        image.to.1 - image.from.1,
        STANDARD.encode(png)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_become_pixels_and_an_element() {
        let image = || Image { from: (1, 0), to: (5, 2), columns: 2, grey: &[0, 100] };
        let mut pixels = vec![255; 4 * 3 * 3];
        image().paint(&mut pixels, 4);
        let first: Vec<u8> = pixels.chunks(3).map(|pixel| pixel[0]).collect();
        // The fourth column of the picture is outside.
        assert_eq!(first, [255, 0, 0, 100, 255, 0, 0, 100, 255, 255, 255, 255]);
        let svg = svg(image()).unwrap();
        assert!(
            svg.starts_with("<image x=\"1\" y=\"0\" width=\"4\" height=\"2\"") && svg.contains("base64,iVBOR")
        );
    }
}

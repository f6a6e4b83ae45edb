//! The colours of lines on a light and on a dark page.
//!
//! Okabe and Ito chose for white paper; here each colour is mixed with black or white until it stands out from the
//! background as WCAG 2.2 asks of graphics (3 to 1).

use plotters::style::RGBColor;

use super::super::series_style::COLORS;

/// The backgrounds of page.css.
pub(super) const LIGHT: RGBColor = RGBColor(255, 255, 255);
pub(super) const DARK: RGBColor = RGBColor(21, 24, 29);
/// Success criterion 1.4.11.
const LEAST_CONTRAST: f64 = 3.0;

/// The part of the style sheet that gives lines their colours, by their classes.
pub(super) fn css() -> String {
    let on = |background: RGBColor| -> String {
        let variable = |(place, color): (usize, &RGBColor)| {
            let RGBColor(red, green, blue) = visible(*color, background);
            format!("--p{place}:#{red:02x}{green:02x}{blue:02x};")
        };
        COLORS.iter().enumerate().map(variable).collect()
    };
    let classes: String = (0..COLORS.len()).map(|place| format!(".p{place}{{--ink:var(--p{place})}}\n")).collect();
    let (light, dark) = (on(LIGHT), on(DARK));
    format!(
        ":root{{{light}}}\n:root[data-theme=dark]{{{dark}}}\n\
         @media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n\
         @media print{{:root:root:root{{{light}}}}}\n{classes}"
    )
}

/// The colour, mixed with black or white as far as is necessary.
fn visible(color: RGBColor, background: RGBColor) -> RGBColor {
    let towards = if luminance(background) > 0.5 { 0.0 } else { 255.0 };
    let mixed = |step: u32| {
        let share = f64::from(step) / 20.0;
        let mix = |channel: u8| (f64::from(channel) * (1.0 - share) + towards * share).round() as u8;
        RGBColor(mix(color.0), mix(color.1), mix(color.2))
    };
    let stands_out = |color: &RGBColor| contrast(*color, background) >= LEAST_CONTRAST;
    (0..=20).map(mixed).find(stands_out).unwrap_or(color)
}

/// WCAG 2.2: from 1, the same, to 21, black and white.
fn contrast(a: RGBColor, b: RGBColor) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

fn luminance(RGBColor(r, g, b): RGBColor) -> f64 {
    let linear = |channel: u8| {
        let share = f64::from(channel) / 255.0;
        if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contrast_is_that_of_the_standard() {
        // Published examples: #767676 is the lightest grey that reaches 4.5 on white, pure red has 3.998 there.
        assert!((contrast(RGBColor(0, 0, 0), LIGHT) - 21.0).abs() < 1e-9);
        assert!((contrast(RGBColor(0x76, 0x76, 0x76), LIGHT) - 4.54).abs() < 0.005);
        assert!((contrast(RGBColor(255, 0, 0), LIGHT) - 3.998).abs() < 0.001);
    }

    #[test]
    fn every_colour_stands_out_on_both_backgrounds() {
        for color in COLORS {
            for background in [LIGHT, DARK] {
                let seen = visible(color, background);
                assert!(contrast(seen, background) >= 3.0, "{color:?} {seen:?}");
            }
        }
        // What stands out already is left alone.
        let blue = RGBColor(0, 114, 178);
        assert_eq!(visible(blue, LIGHT), blue);
    }
}

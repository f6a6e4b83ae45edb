//! The colours of policies on a light and on a dark page, and the classes by which a style sheet finds them.
//!
//! Okabe and Ito chose for white paper; here each colour is moved towards black or white until it stands out from its background
//! as WCAG 2.2 asks of graphics (3 to 1). It knows looks and refuses to know where they are used.

use plotters::style::RGBColor;

use super::super::curve::Looks;
use super::super::ink::Look;
use super::plot;

/// The backgrounds of page.css.
pub(super) const LIGHT: RGBColor = RGBColor(255, 255, 255);
pub(super) const DARK: RGBColor = RGBColor(21, 24, 29);
/// Success criterion 1.4.11.
const LEAST_CONTRAST: f64 = 3.0;

/// The policies of a page in their order: the place of each is its class.
pub(super) struct Palette<'a> {
    policies: Vec<(&'a str, Look)>,
}

impl<'a> Palette<'a> {
    pub(super) fn of(looks: &'a Looks) -> Self {
        Self { policies: looks.in_order() }
    }

    /// All but the full cache.
    pub(super) fn policies(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.policies.iter().map(|(policy, _)| *policy)
    }

    pub(super) fn look(&self, policy: &str) -> Option<Look> {
        self.policies.iter().find(|(known, _)| *known == policy).map(|(_, look)| *look)
    }

    /// `p3 d1`: the fourth policy, the second in its colour, whose line is dashed.
    pub(super) fn class(&self, policy: &str) -> String {
        let Some(place) = self.policies.iter().position(|(known, _)| *known == policy) else {
            return String::new();
        };
        let color = self.policies[place].1.color;
        let before = self.policies[..place].iter().filter(|(_, look)| look.color == color).count();
        format!("p{place} d{}", before.min(3))
    }

    /// What a script draws a policy with: its classes, its marker's outline, and whether that is open.
    pub(super) fn drawn(&self, policy: &str) -> Option<(String, String, bool)> {
        let (path, filled) = plot::outline(self.look(policy)?.marker);
        Some((self.class(policy), path, !filled))
    }

    /// The style sheet's part that depends on the policies.
    pub(super) fn css(&self) -> String {
        let on = |background: RGBColor| -> String {
            let one = |(place, (_, look)): (usize, &(&str, Look))| {
                let RGBColor(r, g, b) = toned(look.color, background);
                format!("--p{place}:#{r:02x}{g:02x}{b:02x};")
            };
            self.policies.iter().enumerate().map(one).collect()
        };
        let classes: String =
            (0..self.policies.len()).map(|place| format!(".p{place}{{--ink:var(--p{place})}}\n")).collect();
        let (light, dark) = (on(LIGHT), on(DARK));
        format!(
            ":root{{{light}}}\n:root[data-theme=dark]{{{dark}}}\n\
             @media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n\
             @media print{{:root:root:root{{{light}}}}}\n{classes}"
        )
    }
}

/// The colour, moved away from the background as far as it must.
fn toned(color: RGBColor, background: RGBColor) -> RGBColor {
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
    use super::super::super::fixture::{Sample, panels, rows};
    use super::*;

    #[test]
    fn contrast_is_that_of_the_standard() {
        // Published examples: #767676 is the lightest grey that reaches 4.5 on white, pure red has 3.998 there.
        assert!((contrast(RGBColor(0, 0, 0), LIGHT) - 21.0).abs() < 1e-9);
        assert!((contrast(RGBColor(0x76, 0x76, 0x76), LIGHT) - 4.54).abs() < 0.005);
        assert!((contrast(RGBColor(255, 0, 0), LIGHT) - 3.998).abs() < 0.001);
    }

    #[test]
    fn every_policy_stands_out_on_both_backgrounds() {
        let sample = [Sample { sample: "a", cluster: "a", value: 1.0, weight: 1.0 }];
        let names: Vec<String> = (0..16).map(|i| format!("mine{i}")).collect();
        let all: Vec<_> = names.iter().flat_map(|name| rows(name, Some(8), &sample)).collect();
        let looks = Looks::of(&panels(&all));
        let palette = Palette::of(&looks);
        assert_eq!(palette.policies.len(), 16);
        for (policy, look) in &palette.policies {
            for background in [LIGHT, DARK] {
                let toned = toned(look.color, background);
                assert!(contrast(toned, background) >= 3.0, "{policy} {toned:?}");
            }
        }
        // What stands out already is left alone.
        let blue = RGBColor(0, 114, 178);
        assert_eq!(toned(blue, LIGHT), blue);
        // Two policies of one colour have lines of different dashes.
        let classes: Vec<String> = names.iter().map(|name| palette.class(name)).collect();
        assert!(
            classes.iter().any(|class| class.ends_with("d0")) && classes.iter().any(|class| class.ends_with("d1"))
        );
    }
}

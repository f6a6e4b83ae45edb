//! What the lines of policies look like: a colour that the colour-blind can tell apart, and a marker.
//!
//! A policy looks the same in a whole report, so that a reader learns it once. Colours are Okabe and Ito's, without their
//! yellow (too pale on white) and their black (the full cache's), and two of Tol's; markers differ too, for grey prints.

use indexmap::IndexSet;

use super::points::Panel;

pub(crate) use plotters::style::RGBColor as Color;

pub(crate) const BLACK: Color = Color(0, 0, 0);
pub(crate) const WHITE: Color = Color(255, 255, 255);
pub(crate) const PALE: Color = Color(222, 222, 222);
pub(crate) const GREY: Color = Color(110, 110, 110);
/// The colours of lines. page.css has a class for each, with a shade of it for light and one for dark pages.
pub(crate) const COLORS: [Color; 9] = [
    Color(213, 94, 0),    // vermillion
    Color(0, 114, 178),   // blue
    Color(0, 158, 115),   // bluish green
    Color(86, 180, 233),  // sky blue
    Color(204, 121, 167), // reddish purple
    Color(230, 159, 0),   // orange
    Color(51, 34, 136),   // indigo
    Color(136, 34, 85),   // wine
    GREY,
];
/// The place of grey, which is for cut texts, random eviction and what knows the future.
const GREY_AT: usize = COLORS.len() - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Diamond,
    Up,
    Down,
    Cross,
    Plus,
    Star,
}

/// In the order in which policies get them.
const MARKERS: [Marker; 8] = {
    use Marker::*;
    [Circle, Square, Up, Diamond, Down, Star, Plus, Cross]
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SeriesStyle {
    /// A place in [`COLORS`].
    color: usize,
    pub(crate) marker: Marker,
    /// How many series before this one have its colour.
    repeats: usize,
}

impl SeriesStyle {
    pub(crate) fn color(self) -> Color {
        COLORS[self.color]
    }

    /// `p3 d1`: the fourth colour, and the second series to have it, which the page draws dashed.
    pub(crate) fn class(self) -> String {
        format!("p{} d{}", self.color, self.repeats.min(3))
    }
}

/// The styles of all series of a report, in their order.
pub(crate) struct SeriesStyles(Vec<(String, SeriesStyle)>);

impl SeriesStyles {
    /// The policies of panels, in the order of tables.
    pub(crate) fn of(panels: &[Panel]) -> Self {
        let names = panels.iter().flat_map(Panel::policies).filter(|policy| *policy != "full");
        let names: IndexSet<&str> = names.collect();
        Self::of_names(&names.into_iter().collect::<Vec<_>>())
    }

    /// Some policies always look the same; others get colours and markers that are not taken.
    pub(crate) fn of_names(names: &[&str]) -> Self {
        let mut taken: Vec<(usize, Marker)> = names.iter().filter_map(|name| fixed(name)).collect();
        let mut again = (0..GREY_AT).cycle().skip(3);
        let mut styles: Vec<(String, SeriesStyle)> = Vec::new();
        for name in names {
            let (color, marker) = fixed(name).unwrap_or_else(|| {
                let unused = (0..GREY_AT).find(|color| taken.iter().all(|(other, _)| other != color));
                let color = unused.or_else(|| again.next()).unwrap_or(GREY_AT);
                let clash = |marker: &Marker, anywhere: bool| {
                    taken.iter().any(|(other, taken)| taken == marker && (anywhere || *other == color))
                };
                let free = |anywhere| MARKERS.iter().find(|marker| !clash(marker, anywhere));
                let marker = *free(true).or_else(|| free(false)).unwrap_or(&Marker::Circle);
                taken.push((color, marker));
                (color, marker)
            });
            let repeats = styles.iter().filter(|(_, style)| style.color == color).count();
            styles.push(((*name).to_owned(), SeriesStyle { color, marker, repeats }));
        }
        Self(styles)
    }

    pub(crate) fn get(&self, name: &str) -> Option<SeriesStyle> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, style)| *style)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, SeriesStyle)> {
        self.0.iter().map(|(name, style)| (name.as_str(), *style))
    }
}

/// Whether a policy is in the paper's figures; drawn last, since lines of its variants often lie under it.
pub(crate) fn is_of_the_paper(policy: &str) -> bool {
    of_the_paper(policy).is_some()
}

fn of_the_paper(policy: &str) -> Option<(usize, Marker)> {
    Some(match policy {
        "truncate" => (GREY_AT, Marker::Cross),
        "window" => (3, Marker::Down),
        "window+4" => (1, Marker::Square),
        "h2o" => (2, Marker::Up),
        "tova" => (0, Marker::Circle),
        _ => return None,
    })
}

/// The looks that policies always have: the paper's, and grey for what nobody chooses.
fn fixed(policy: &str) -> Option<(usize, Marker)> {
    of_the_paper(policy).or(match policy {
        "random" => Some((GREY_AT, Marker::Plus)),
        "clairvoyant" => Some((GREY_AT, Marker::Star)),
        "clairvoyant-head" => Some((GREY_AT, Marker::Diamond)),
        _ => None,
    })
}

impl Marker {
    /// The outlines around a place, of about equal area for every shape, and whether they are filled; others are lines.
    pub(crate) fn strokes(self, at: (f64, f64), radius: f64) -> (bool, Vec<Vec<(f64, f64)>>) {
        let around = |corners: u32, turn: f64, radius: f64| -> Vec<(f64, f64)> {
            let angle = |i: u32| (turn + f64::from(i) / f64::from(corners)) * std::f64::consts::TAU;
            (0..corners).map(|i| (at.0 + radius * angle(i).sin(), at.1 - radius * angle(i).cos())).collect()
        };
        let line = |(x, y): (f64, f64)| vec![(at.0 - x, at.1 - y), (at.0 + x, at.1 + y)];
        let r = radius;
        match self {
            Self::Circle => (true, vec![around(32, 0.0, r)]),
            Self::Square => (true, vec![around(4, 0.125, 1.25 * r)]),
            Self::Diamond => (true, vec![around(4, 0.0, 1.3 * r)]),
            Self::Up => (true, vec![around(3, 0.0, 1.35 * r)]),
            Self::Down => (true, vec![around(3, 0.5, 1.35 * r)]),
            Self::Star => {
                let (outer, inner) = (around(5, 0.0, 1.4 * r), around(5, 0.1, 0.6 * r));
                (true, vec![outer.into_iter().zip(inner).flat_map(|(tip, dent)| [tip, dent]).collect()])
            }
            Self::Cross => (false, vec![line((0.9 * r, 0.9 * r)), line((0.9 * r, -0.9 * r))]),
            Self::Plus => (false, vec![line((1.2 * r, 0.0)), line((0.0, 1.2 * r))]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_looks_the_same_whatever_it_is_drawn_with() {
        let few = SeriesStyles::of_names(&["tova", "window+4"]);
        let many = SeriesStyles::of_names(&["truncate", "window", "window+1", "window+4", "h2o", "tova"]);
        for policy in ["tova", "window+4"] {
            assert_eq!(few.get(policy).unwrap(), many.get(policy).unwrap());
        }
    }

    #[test]
    fn no_two_policies_look_alike() {
        let own: Vec<String> = (0..20).map(|i| format!("mine{i}")).collect();
        let mut policies = vec!["truncate", "window", "window+4", "h2o", "tova"];
        policies.extend(own.iter().map(String::as_str));
        let styles = SeriesStyles::of_names(&policies);
        let looks: Vec<(usize, Marker)> = styles.iter().map(|(_, style)| (style.color, style.marker)).collect();
        for (i, look) in looks.iter().enumerate() {
            assert!(!looks[..i].contains(look), "{}: {look:?}", policies[i]);
        }
        // Each of the first eight has a marker of its own.
        for (i, (_, marker)) in looks[..8].iter().enumerate() {
            assert!(looks[..i].iter().all(|(_, other)| other != marker), "{}", policies[i]);
        }
        // Two of one colour are dashed differently on the page.
        assert_eq!(
            (styles.get("tova").unwrap().class(), styles.get("window").unwrap().class()),
            ("p0 d0".into(), "p3 d0".into())
        );
        assert!(styles.iter().any(|(_, style)| style.class().ends_with("d1")));
    }
}

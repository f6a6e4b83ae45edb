//! What a policy's line looks like: a colour that the colour-blind can tell apart, and a marker.
//!
//! One look per policy over a whole report, so that a reader learns it once. Colours are Okabe and Ito's, without their
//! yellow (too pale on white) and their black (the full cache's), and two of Tol's; markers differ too, since print may be grey.

use plotters::style::RGBColor;

pub(crate) const BLACK: RGBColor = RGBColor(0, 0, 0);
pub(crate) const WHITE: RGBColor = RGBColor(255, 255, 255);
pub(crate) const PALE: RGBColor = RGBColor(222, 222, 222);
pub(crate) const GREY: RGBColor = RGBColor(110, 110, 110);
const PALETTE: [RGBColor; 8] = [
    RGBColor(213, 94, 0),    // vermillion
    RGBColor(0, 114, 178),   // blue
    RGBColor(0, 158, 115),   // bluish green
    RGBColor(86, 180, 233),  // sky blue
    RGBColor(204, 121, 167), // reddish purple
    RGBColor(230, 159, 0),   // orange
    RGBColor(51, 34, 136),   // indigo
    RGBColor(136, 34, 85),   // wine
];

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

const MARKERS: [Marker; 8] = [
    Marker::Circle,
    Marker::Square,
    Marker::Up,
    Marker::Diamond,
    Marker::Down,
    Marker::Star,
    Marker::Plus,
    Marker::Cross,
];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Look {
    pub(crate) color: RGBColor,
    pub(crate) marker: Marker,
}

/// The looks of policies, in their order. The paper's own always look the same; the others take what is left.
pub(crate) fn looks(policies: &[&str]) -> Vec<Look> {
    let known = policies.iter().map(|policy| usual(policy));
    let mut taken: Vec<Look> = known.clone().flatten().collect();
    let mut colors = PALETTE.iter().cycle().skip(3);
    let mut looks = Vec::new();
    for usual in known {
        let look = usual.unwrap_or_else(|| {
            let unused = PALETTE.iter().find(|color| taken.iter().all(|look| look.color != **color));
            let color = *unused.or_else(|| colors.next()).unwrap_or(&GREY);
            let clash = |marker: &Marker, anywhere: bool| {
                taken.iter().any(|look| look.marker == *marker && (anywhere || look.color == color))
            };
            let free = |anywhere| MARKERS.iter().find(|marker| !clash(marker, anywhere));
            let marker = *free(true).or_else(|| free(false)).unwrap_or(&Marker::Circle);
            let look = Look { color, marker };
            taken.push(look);
            look
        });
        looks.push(look);
    }
    looks
}

/// Whether a policy is one of the paper's figures; drawn last, since lines of its variants often lie under it.
pub(crate) fn is_usual(policy: &str) -> bool {
    usual(policy).is_some()
}

fn usual(policy: &str) -> Option<Look> {
    let (color, marker) = match policy {
        "truncate" => (GREY, Marker::Cross),
        "window" => (PALETTE[3], Marker::Down),
        "window+4" => (PALETTE[1], Marker::Square),
        "h2o" => (PALETTE[2], Marker::Up),
        "tova" => (PALETTE[0], Marker::Circle),
        _ => return None,
    };
    Some(Look { color, marker })
}

impl Marker {
    /// The outline around the origin, of about equal area for every shape; open shapes are strokes.
    pub(crate) fn strokes(self, radius: f64) -> (bool, Vec<Vec<(f64, f64)>>) {
        let around = |corners: u32, turn: f64, radius: f64| -> Vec<(f64, f64)> {
            let angle = |i: u32| (turn + f64::from(i) / f64::from(corners)) * std::f64::consts::TAU;
            (0..corners).map(|i| (radius * angle(i).sin(), -radius * angle(i).cos())).collect()
        };
        let line = |(x, y): (f64, f64)| vec![(-x, -y), (x, y)];
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
    fn a_policy_looks_the_same_in_every_company() {
        let few = looks(&["tova", "window+4"]);
        let many = looks(&["truncate", "window", "window+1", "window+4", "h2o", "tova"]);
        assert_eq!((few[0], few[1]), (many[5], many[3]));
    }

    #[test]
    fn no_two_policies_look_alike() {
        let names: Vec<String> = (0..20).map(|i| format!("mine{i}")).collect();
        let mut policies = vec!["truncate", "window", "window+4", "h2o", "tova"];
        policies.extend(names.iter().map(String::as_str));
        let looks = looks(&policies);
        for (i, look) in looks.iter().enumerate() {
            assert!(looks[..i].iter().all(|other| other != look), "{}: {look:?}", policies[i]);
        }
        // The first dozen differ in colour or, at least, never share both neighbours' marker and colour.
        assert!(
            looks[..8]
                .iter()
                .all(|look| looks[..8].iter().filter(|other| other.marker == look.marker).count() == 1)
        );
    }
}

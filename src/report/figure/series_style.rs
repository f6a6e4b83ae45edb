//! What the lines of policies look like: a colour that the colour-blind can tell apart, and a marker.
//!
//! A policy looks the same in most reports, so that a reader learns it once: presets have fixed looks, which one of another schedule or
//! other positions takes where the preset is not drawn. Every other policy takes a free look of a colour that fewest beside it have; its
//! name decides among those. In one figure no two lines share a colour, so there a policy gives way to another of its colour; where
//! lines are more than colours, those of one hue have darker shades and other dashes. Colours are Okabe and Ito's, without their yellow (too pale on
//! white) and their black (the full cache's), two of Tol's, and a brown; markers differ too, for grey prints.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use indexmap::{IndexMap, IndexSet};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::report::figure::Color;
use crate::report::series::{Panel, Schedules};

pub(crate) const BLACK: Color = Color(0, 0, 0);
pub(crate) const WHITE: Color = Color(255, 255, 255);
pub(crate) const PALE: Color = Color(222, 222, 222);
pub(crate) const GREY: Color = Color(110, 110, 110);
/// The colours of lines, by the names that `looks.json` has for them. page.css has a class for each, with a shade of it for light
/// and one for dark pages. The last is for cut texts, random eviction and what knows the future.
pub(crate) const COLORS: [(&str, Color); 10] = [
    ("vermillion", Color(213, 94, 0)),
    ("blue", Color(0, 114, 178)),
    ("green", Color(0, 158, 115)),
    ("sky", Color(86, 180, 233)),
    ("purple", Color(204, 121, 167)),
    ("orange", Color(230, 159, 0)),
    ("indigo", Color(51, 34, 136)),
    ("wine", Color(136, 34, 85)),
    ("brown", Color(107, 63, 0)),
    ("grey", GREY),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
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

/// A place in [`COLORS`], and a marker.
type Look = (usize, Marker);

/// The policies with fixed looks: the names of a colour and of a marker.
#[derive(Deserialize)]
struct Fixed {
    /// Policies of the paper's figures, which have colours of their own as long as few others are drawn.
    paper: BTreeMap<String, (String, Marker)>,
    /// The other presets and the paper's other policies. Those that are often drawn with the five above have other colours.
    others: BTreeMap<String, (String, Marker)>,
}

static FIXED: LazyLock<Fixed> =
    LazyLock::new(|| serde_json::from_str(include_str!("looks.json")).expect("the file is part of the program"));

/// The markers of policies without a fixed look; the paper's have the last four.
const MARKERS: [Marker; 8] = {
    use Marker::*;
    [Star, Plus, Diamond, Cross, Circle, Square, Up, Down]
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
    /// The colour of its line.
    pub(crate) fn color(self) -> Color {
        self.darkened(1.0)
    }

    /// The colour of its name, in which letters are darker than a line so that they can be read on white.
    pub(crate) fn ink(self) -> Color {
        self.darkened(0.85)
    }

    /// A share of its line's colour, the rest black. A second and a third series of one hue are darker; page.css has their shares too.
    fn darkened(self, share: f64) -> Color {
        let share = share * [1.0, 0.65, 0.4][self.repeats.min(2)];
        let Color(red, green, blue) = COLORS[self.color].1;
        let [red, green, blue] = [red, green, blue].map(|part| (share * f64::from(part)) as u8);
        Color(red, green, blue)
    }

    /// Lengths in points of a dash and of the gap after it; the first series of a colour has none.
    pub(crate) fn dash(self) -> Option<(f64, f64)> {
        match self.repeats {
            0 => None,
            1 => Some((4.5, 1.8)),
            2 => Some((1.1, 1.5)),
            _ => Some((9.0, 1.8)),
        }
    }

    /// `p3 d1`: the fourth colour, and the second series to have it, which the page draws dashed.
    pub(crate) fn class(self) -> String {
        format!("p{} d{}", self.color, self.repeats.min(3))
    }
}

/// The styles of all series of a report, in their order.
pub(crate) struct SeriesStyles(IndexMap<String, SeriesStyle>);

impl SeriesStyles {
    /// The policies of panels, in the order of tables.
    pub(crate) fn of(panels: &[Panel]) -> Self {
        Self::with_schedules(panels, &Schedules::new())
    }

    /// Styles of the policies of panels and of the lines over several schedules, which choose their looks first.
    pub(crate) fn with_schedules(panels: &[Panel], schedules: &Schedules) -> Self {
        let policies: IndexSet<&str> =
            panels.iter().flat_map(Panel::policies).filter(|policy| *policy != "full").collect();
        let lines = || policies.iter().filter_map(|policy| Some(schedules.get(*policy)?.0.as_str()));
        let of_several = lines().filter(|line| lines().filter(|other| other == line).count() > 1);
        let names: IndexSet<&str> = of_several.chain(policies.iter().copied()).collect();
        Self::of_names(&names.into_iter().collect::<Vec<_>>())
    }

    /// Policies with fixed looks have them. Each other one takes its preset's if that is free, or else the first of its candidates
    /// that is, of a colour that fewest have.
    pub(crate) fn of_names(names: &[&str]) -> Self {
        let mut taken: Vec<Look> = names.iter().filter_map(|name| fixed(name)).collect();
        let look = |name: &&str| {
            fixed(name).unwrap_or_else(|| {
                let of_preset = name.split_once('@').and_then(|(preset, _)| fixed(preset));
                let own = candidates(name);
                let free = own.iter().filter(|look| !taken.contains(look));
                let by_color = |(color, _): &&Look| taken.iter().filter(|(other, _)| other == color).count();
                // The first of equal ones, so that the name decides.
                let rarest = free.min_by_key(by_color).unwrap_or(&own[0]);
                let look = of_preset.filter(|look| !taken.contains(look)).unwrap_or(*rarest);
                taken.push(look);
                look
            })
        };
        Self::with_looks(names, names.iter().map(look).collect())
    }

    /// For lines that are no policies: colours in their order.
    pub(crate) fn in_order(names: &[&str]) -> Self {
        use Marker::*;
        let markers = [Circle, Square, Up, Diamond, Down, Star, Plus, Cross];
        let colors = COLORS.len() - 1;
        let look = |at| (at % colors, markers[(at + at / colors) % markers.len()]);
        Self::with_looks(names, (0..names.len()).map(look).collect())
    }

    fn with_looks(names: &[&str], looks: Vec<Look>) -> Self {
        let mut styles: IndexMap<String, SeriesStyle> = IndexMap::new();
        for (name, (color, marker)) in names.iter().zip(looks) {
            let repeats = styles.values().filter(|style| style.color == color).count();
            styles.insert((*name).to_owned(), SeriesStyle { color, marker, repeats });
        }
        Self(styles)
    }

    /// The styles of the lines of one figure. No two have the same colour while there are colours left, then no two the same colour
    /// and dash. Of policies with one colour the paper's keeps it, then a preset, then the first.
    pub(crate) fn among(&self, drawn: &[&str]) -> Self {
        let rank = |name: &&str| (!FIXED.paper.contains_key(*name), fixed(name).is_none());
        let mut names: Vec<&str> = self.0.keys().map(String::as_str).filter(|name| drawn.contains(name)).collect();
        names.sort_by_key(rank);
        let mut chosen: BTreeMap<&str, SeriesStyle> = BTreeMap::new();
        for name in &names {
            let own = self.0[*name];
            if chosen.values().all(|other| other.color != own.color) {
                chosen.insert(name, SeriesStyle { repeats: 0, ..own });
            }
        }
        for name in &names {
            if chosen.contains_key(name) {
                continue;
            }
            let own = self.0[*name];
            let uses = |color: usize| chosen.values().filter(|other| other.color == color).count();
            let color = (0..COLORS.len()).min_by_key(|color| uses(*color)).unwrap_or(own.color);
            let is_free =
                |marker: &Marker| chosen.values().all(|other| (other.color, other.marker) != (color, *marker));
            let marker = std::iter::once(own.marker).chain(MARKERS).find(is_free).unwrap_or(own.marker);
            chosen.insert(name, SeriesStyle { color, marker, repeats: uses(color) });
        }
        let style = |name: &String| Some((name.clone(), *chosen.get(name.as_str())?));
        Self(self.0.keys().filter_map(style).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<SeriesStyle> {
        self.0.get(name).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, SeriesStyle)> {
        self.0.iter().map(|(name, style)| (name.as_str(), *style))
    }
}

fn fixed(policy: &str) -> Option<Look> {
    let (color, marker) = FIXED.paper.get(policy).or_else(|| FIXED.others.get(policy))?;
    Some((COLORS.iter().position(|(name, _)| name == color)?, *marker))
}

/// The looks that are not fixed, from the one that a name decides: first each of the colours that the paper's policies leave,
/// then the same with other markers, and the paper's colours last.
fn candidates(name: &str) -> Vec<Look> {
    let start = usize::from(Sha256::digest(name.as_bytes())[0]) % 4;
    let [vermillion, purple] = [0, 4];
    let looks = [purple, vermillion].into_iter().flat_map(|first| {
        (0..MARKERS.len()).flat_map(move |round| {
            (start..start + 4).map(move |at| {
                let at = at % 4;
                // Two rounds have all eight markers, and a colour never has one twice.
                (first + at, MARKERS[(4 * round + at + round / 2) % MARKERS.len()])
            })
        })
    });
    let taken: Vec<Look> = FIXED.paper.keys().chain(FIXED.others.keys()).filter_map(|name| fixed(name)).collect();
    looks.filter(|look| !taken.contains(look)).collect()
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
    use std::collections::BTreeSet;

    use super::*;
    use crate::eviction::presets::PRESETS;

    fn looks(names: &[&str]) -> Vec<Look> {
        SeriesStyles::of_names(names).iter().map(|(_, style)| (style.color, style.marker)).collect()
    }

    #[test]
    fn a_preset_looks_the_same_whatever_it_is_drawn_with() {
        let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        for preset in &presets {
            let alone = looks(&[preset])[0];
            assert!(fixed(preset).is_some(), "{preset} has no look of its own");
            assert_eq!(looks(&["mine", "window+9", preset, "other"])[2], alone, "{preset}");
        }
        let all: BTreeSet<String> = looks(&presets).iter().map(|look| format!("{look:?}")).collect();
        assert_eq!(all.len(), presets.len());
    }

    #[test]
    fn a_policy_of_one_s_own_keeps_its_look_when_others_come() {
        let alone = looks(&["mine"])[0];
        let later: Vec<String> = (0..20).map(|i| format!("later{i}")).collect();
        let all: Vec<&str> = ["mine"].into_iter().chain(later.iter().map(String::as_str)).collect();
        assert_eq!(looks(&all)[0], alone);
        // One that comes later gives way only where the look is the same.
        let [one, other] = [looks(&["later1"])[0], looks(&["mine", "later1"])[1]];
        assert!(one == other || one == alone, "{one:?} {other:?} {alone:?}");
    }

    #[test]
    fn a_preset_at_another_schedule_looks_like_the_preset_unless_that_is_drawn() {
        let [tova, h2o] = ["tova", "h2o"].map(|preset| fixed(preset).unwrap());
        assert_eq!(looks(&["tova@cut", "h2o@32"]), [tova, h2o]);
        let both = looks(&["tova@cut", "tova", "tova@32"]);
        assert!(both[1] == tova && both[0] != tova && both[2] != tova && both[0] != both[2], "{both:?}");
    }

    #[test]
    fn a_colour_that_fewest_have_is_taken() {
        let own: Vec<String> = (0..8).map(|i| format!("mine{i}")).collect();
        // Two of the presets are purple, one is indigo and one orange.
        for (presets, alone) in [(&["snapkv", "adakv", "expected", "caote"][..], 5), (&[], 8)] {
            let names: Vec<&str> = presets.iter().copied().chain(own.iter().map(String::as_str)).collect();
            let colors: Vec<usize> = looks(&names).iter().map(|(color, _)| *color).collect();
            let first: BTreeSet<usize> = colors[..presets.len() + alone].iter().copied().collect();
            assert_eq!(first.len(), 8, "{colors:?}");
        }
    }

    #[test]
    fn no_two_policies_look_alike() {
        let own: Vec<String> = (0..20).map(|i| format!("mine{i}")).collect();
        let mut policies = vec!["truncate", "window", "window+4", "h2o", "tova"];
        policies.extend(own.iter().map(String::as_str));
        let looks = looks(&policies);
        for (i, look) in looks.iter().enumerate() {
            assert!(!looks[..i].contains(look), "{}: {look:?}", policies[i]);
        }
        // The paper's and four others have colours of their own.
        let colors: BTreeSet<usize> = looks[..9].iter().map(|(color, _)| *color).collect();
        assert_eq!(colors.len(), 9);
        // Two of one colour are dashed differently on the page.
        let styles = SeriesStyles::of_names(&policies);
        assert_eq!(
            (styles.get("tova").unwrap().class(), styles.get("window").unwrap().class()),
            ("p0 d0".into(), "p3 d0".into())
        );
        assert!(styles.iter().any(|(_, style)| style.class().ends_with("d1")));
    }
}

//! Which policy is best at which size: policies down, cache sizes across.

use crate::report::escape;
use crate::report::figure::{
    Across, BLACK, COLORS, LABEL, PALE, Pen, Plain, SMALL, Scene, TITLE, WHITE, chart, font,
};

/// What a policy is at one size among those measured there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    /// Of the best value.
    Best,
    /// No other is better, as far as they can be told apart.
    NotWorse,
    /// Another is better.
    Worse,
}

/// One metric of one setting.
pub(crate) struct BestMap {
    pub(crate) title: String,
    pub(crate) sizes: Vec<String>,
    /// Each policy with what it is at each size; `None` where it was not measured.
    pub(crate) lines: Vec<(String, Vec<Option<Standing>>)>,
    /// What the squares mean.
    pub(crate) caption: String,
}

const WIDE: f64 = 30.0;
const HIGH: f64 = 14.0;
const PART: f64 = 1.0;

pub(crate) fn scene(map: &BestMap, plain: Plain) -> Scene {
    let names: Vec<String> = map.lines.iter().map(|(policy, _)| escape::plain(policy)).collect();
    let left = names.iter().map(|name| font::width(name, LABEL)).fold(40.0, f64::max) + 8.0;
    let width = (left + WIDE * map.sizes.len() as f64 + 8.0).max(240.0);
    let mut scene = Scene::new(&*map.title, width);
    let mut top = 4.0;
    if !plain.title {
        for line in font::wrap(&escape::plain(&map.title), TITLE, width - 8.0) {
            scene.text((4.0, top + 6.0), &line, TITLE, BLACK, Across::Left);
            top += TITLE * 1.5;
        }
    }
    for (name, (policy, standings)) in names.iter().zip(&map.lines) {
        let middle = top + HIGH / 2.0;
        scene.text((left - 5.0, middle), name, LABEL, BLACK, Across::Right);
        for ((at, standing), size) in (0..).zip(standings).zip(&map.sizes) {
            let Some(standing) = standing else { continue };
            let (color, words) = match standing {
                Standing::Best => (Some(COLORS[1]), "the best value"),
                Standing::NotWorse => (Some(COLORS[3]), "no other is better, as far as they can be told apart"),
                Standing::Worse => (None, "another is better"),
            };
            let x = left + WIDE * f64::from(at);
            let (right, bottom) = (x + WIDE - PART, top + HIGH - PART);
            let class = if *standing == Standing::Best { "cell dark" } else { "cell" };
            scene.group(&format!("class=\"pt {class}\" tabindex=\"0\" role=\"img\""), |scene| {
                let corners = [(x, top), (right, top), (right, bottom), (x, bottom), (x, top)];
                match color {
                    Some(color) => scene.fill("square", &corners[..4], color, 1.0),
                    None => scene.stroke("axis", &corners, Pen::new(PALE, 0.6)),
                }
                if *standing == Standing::Best {
                    scene.text((x + WIDE / 2.0, middle), "best", SMALL, WHITE, Across::Centre);
                }
                scene.tooltip((x + WIDE / 2.0, middle), HIGH / 2.0, &format!("{policy} at {size}: {words}"));
            });
        }
        top += HIGH;
    }
    for (at, size) in (0..).zip(&map.sizes) {
        scene.text((left + WIDE * (f64::from(at) + 0.5), top + 6.0), size, SMALL, BLACK, Across::Centre);
    }
    scene.text(
        (left + WIDE * map.sizes.len() as f64 / 2.0, top + 16.0),
        "cache size",
        LABEL,
        BLACK,
        Across::Centre,
    );
    top += 28.0;
    let end =
        if plain.footnote { top } else { chart::draw_caption(&mut scene, (4.0, top), width - 8.0, &map.caption) };
    scene.height = end + 2.0;
    scene
}

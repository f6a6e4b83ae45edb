//! What each key-value head holds: maps of heads (down) by layers (across), one for each cache size.

use super::needle_map::square;
use crate::report::escape;
use crate::report::figure::{Across, BLACK, LABEL, Pen, Plain, SMALL, Scene, TITLE, chart};

/// One policy at one cache size.
#[derive(Clone)]
pub(crate) struct HeadMap {
    pub(crate) title: String,
    /// What the heads hold, in percent of the tokens read: (layers)(heads)
    pub(crate) shares: Vec<Vec<f64>>,
}

const LEFT: f64 = 34.0;
const HIGH: f64 = 14.0;
/// Squares are narrower where there are many layers, and have numbers only where these fit.
const MOST_WIDTH: f64 = 500.0;
const WIDE: f64 = 20.0;
const TITLE_ROOM: f64 = 16.0;
const GAP: f64 = 28.0;

/// The maps of a policy, one below the other.
pub(crate) fn scene(title: &str, maps: &[HeadMap], plain: Plain) -> Scene {
    let layers = maps.iter().map(|map| map.shares.len()).max().unwrap_or(1).max(1);
    let wide = (MOST_WIDTH / layers as f64).min(WIDE);
    let mut scene = Scene::new(title, LEFT + (wide * layers as f64).max(180.0) + 8.0);
    let mut top = 2.0;
    for map in maps {
        let heads = map.shares.iter().map(Vec::len).max().unwrap_or(0);
        let (squares, right) = (top + TITLE_ROOM, LEFT + wide * map.shares.len() as f64);
        let bottom = squares + HIGH * heads as f64;
        scene.text((LEFT, top + 8.0), &map.title, TITLE, BLACK, Across::Left);
        for (layer, shares) in map.shares.iter().enumerate() {
            for (head, share) in shares.iter().enumerate() {
                let (x, y) = (LEFT + wide * layer as f64, squares + HIGH * head as f64);
                let tooltip = format!("layer {layer}, head {head}: {share:.1} % of the tokens; {}", map.title);
                square(&mut scene, (x, y), (wide, HIGH), *share, ("", &tooltip));
            }
        }
        let frame = [(LEFT, squares), (right, squares), (right, bottom), (LEFT, bottom), (LEFT, squares)];
        scene.stroke("axis", &frame, Pen::new(BLACK, 0.5));
        for head in (0..heads).step_by(heads.div_ceil(8).max(1)) {
            let middle = squares + HIGH * (head as f64 + 0.5);
            scene.text((LEFT - 3.0, middle), &head.to_string(), SMALL, BLACK, Across::Right);
        }
        for layer in (0..map.shares.len()).step_by(if wide < 14.0 { 5 } else { 1 }) {
            let middle = LEFT + wide * (layer as f64 + 0.5);
            scene.text((middle, bottom + 6.0), &layer.to_string(), SMALL, BLACK, Across::Centre);
        }
        scene.upright_text((6.0, (squares + bottom) / 2.0), "head", LABEL);
        scene.text(((LEFT + right) / 2.0, bottom + 15.0), "layer", LABEL, BLACK, Across::Centre);
        top = bottom + GAP;
    }
    let caption = format!("{}; numbers: percent of the tokens read that a head holds", escape::plain(title));
    let room = scene.width - 8.0;
    let end = match plain.footnote {
        true => top,
        false => chart::draw_caption(&mut scene, (4.0, top), room, &caption),
    };
    scene.height = end + 2.0;
    scene
}

//! Which tokens are in the cache at each step: the paper's Figures 8, 12 and 13, a map of steps (down) by tokens (across).
//!
//! A map is made of the step at which each token was evicted, which rows hold as text. A long text has more pairs of step
//! and token than a figure has pixels, so each square is the share of its pairs where the token is kept: black all, white none.
//! Where heads evict by themselves, a pair is the share of the heads that keep the token.

use std::collections::BTreeMap;

use crate::ledger::Row;
use crate::report::escape;
use crate::report::figure::{Across, BLACK, LABEL, Pen, Plain, SMALL, Scene, TITLE, chart, font};

/// One layer of one sample.
#[derive(Clone)]
pub(crate) struct Map {
    pub(crate) layer: usize,
    sample: String,
    tokens: usize,
    /// For each key-value head that evicts by itself, the step at which each token was evicted: (heads)(tokens)
    evicted: Vec<Vec<usize>>,
}

/// Squares each way, alone and among other maps.
const ALONE: usize = 512;
const TOGETHER: usize = 160;
const ABREAST: usize = 4;
/// Maps of one figure: the paper's pages have as many.
pub(crate) const MOST: usize = 20;
const SHADES: &str = "black: kept; grey: by some of the heads, or for some of the tokens and steps of a point";
/// Between a map and its frame, in points.
const AIR: f64 = 0.75;

/// The maps of the first sample that has any, by layer.
pub(crate) fn maps(rows: Vec<&Row>) -> Vec<Map> {
    let mapped = || rows.iter().filter(|row| row.metric == "kept_until");
    let Some(sample) = mapped().map(|row| row.sample.as_str()).next() else { return Vec::new() };
    let mut maps: BTreeMap<usize, Map> = BTreeMap::new();
    for row in mapped().filter(|row| row.sample == sample) {
        let numbers =
            |text: &str| text.split(' ').map(|number| number.parse().ok()).collect::<Option<Vec<usize>>>();
        // A layer, or a layer and a head.
        let layer = row.slice.as_ref().and_then(|slice| usize::try_from(slice.single()?).ok());
        let (Some(layer), Some(evicted)) = (layer, row.output.as_deref().and_then(numbers)) else { continue };
        let tokens = evicted.len();
        let map =
            maps.entry(layer).or_insert(Map { layer, sample: sample.to_owned(), tokens, evicted: Vec::new() });
        if map.tokens == tokens {
            map.evicted.push(evicted);
        }
    }
    maps.into_values().collect()
}

impl Map {
    /// Shares of each square, row after row, as grey.
    fn grey(&self, squares: usize) -> Vec<u8> {
        let mut sums = vec![0.0; squares * squares];
        // Squares may end inside a token's step, which then counts for each by the share that is in it.
        let side = self.tokens as f64 / squares as f64;
        for evicted in &self.evicted {
            for (token, step) in evicted.iter().enumerate() {
                let (from, to) = (token as f64 / side, ((step + 1).min(self.tokens)) as f64 / side);
                let across = (token as f64 / side, (token + 1) as f64 / side);
                for column in across.0 as usize..(across.1.ceil() as usize).min(squares) {
                    let wide = across.1.min((column + 1) as f64) - across.0.max(column as f64);
                    for row in from as usize..(to.ceil() as usize).min(squares) {
                        let high = to.min((row + 1) as f64) - from.max(row as f64);
                        sums[row * squares + column] += wide * high;
                    }
                }
            }
        }
        let groups = self.evicted.len().max(1) as f64;
        sums.into_iter().map(|sum: f64| (255.0 * (1.0 - sum / groups)).clamp(0.0, 255.0).round() as u8).collect()
    }
}

/// The title of a figure.
pub(crate) fn title(what: &str) -> String {
    format!("Tokens kept in the cache: {what}")
}

/// The figure of one map, or of several in a grid.
pub(crate) fn scene(title: &str, maps: &[Map], plain: Plain) -> Scene {
    let abreast = maps.len().clamp(1, ABREAST);
    let side = if maps.len() == 1 { 3.1 * 72.0 } else { 1.55 * 72.0 };
    scene_of(title, maps, LEFT + abreast as f64 * (side + gap(maps)), abreast, plain)
}

/// Room for the steps, left of the maps.
const LEFT: f64 = 38.0;

fn gap(maps: &[Map]) -> f64 {
    if maps.len() == 1 { 8.0 } else { 16.0 }
}

/// The same on a page of some width, in points.
pub(crate) fn scene_of(title: &str, maps: &[Map], width: f64, abreast: usize, plain: Plain) -> Scene {
    let alone = maps.len() == 1;
    let is_untitled = alone && plain.title;
    let (left, top, gap) = (LEFT, if is_untitled { 6.0 } else { 16.0 }, gap(maps));
    let side = (width - left) / abreast as f64 - gap;
    let rows = maps.len().div_ceil(abreast);
    let mut scene = Scene::new(self::title(title), width);
    for (i, map) in maps.iter().enumerate() {
        let (column, row) = (i % abreast, i / abreast);
        let corner = (left + column as f64 * (side + gap), top + row as f64 * (side + gap + 8.0));
        let squares = map.tokens.clamp(1, if alone { ALONE } else { TOGETHER });
        scene.image(corner, (side, side), squares, &map.grey(squares));
        let end = (corner.0 + side, corner.1 + side);
        // Beside the map, not on it: the first few tokens are often those that are never evicted.
        let (outer, far) = ((corner.0 - AIR, corner.1 - AIR), (end.0 + AIR, end.1 + AIR));
        let pen = Pen::new(BLACK, 0.5);
        scene.stroke("axis", &[outer, (far.0, outer.1), far, (outer.0, far.1), outer], pen);
        let middle = (corner.0 + end.0) / 2.0;
        // The caption has the whole title.
        let fits = alone && font::width(title, TITLE) <= side + gap;
        let name = if fits { title.to_owned() } else { format!("layer {}", map.layer) };
        if !is_untitled {
            scene.text((middle, corner.1 - 7.5), &name, TITLE, BLACK, Across::Centre);
        }
        let lowest = i + abreast >= maps.len();
        for part in [0, 1, 2] {
            let (share, label) = (f64::from(part) / 2.0, (map.tokens * part as usize / 2).to_string());
            let (x, y) = (corner.0 + share * side, corner.1 + share * side);
            scene.stroke("axis", &[(x, far.1), (x, far.1 + 2.0)], pen);
            scene.stroke("axis", &[(outer.0 - 2.0, y), (outer.0, y)], pen);
            let across = [Across::Left, Across::Centre, Across::Right][part as usize];
            // On a small map the middle's would touch the end's.
            let wide = 1.5 * font::width(&map.tokens.to_string(), SMALL) + 3.0;
            if lowest && (part != 1 || wide <= side / 2.0) {
                scene.text((x, far.1 + 6.5), &label, SMALL, BLACK, across);
            }
            if column == 0 {
                scene.text((outer.0 - 3.5, y), &label, SMALL, BLACK, Across::Right);
            }
        }
    }
    let bottom = top + rows as f64 * (side + gap + 8.0) - gap;
    let middle = (left + width - gap) / 2.0;
    scene.upright_text((6.0, (top + bottom) / 2.0), "step", LABEL);
    scene.text((middle, bottom + 10.0), "kept token", LABEL, BLACK, Across::Centre);
    let sample = maps.first().map_or("", |map| map.sample.as_str());
    let caption = format!("{title}; sample {}; {SHADES}", escape::plain(sample));
    let end = match plain.footnote {
        true => bottom + 15.0,
        false => chart::draw_caption(&mut scene, (4.0, bottom + 20.0), width - 8.0, &caption),
    };
    scene.height = end + 2.0;
    scene
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(evicted: Vec<Vec<usize>>) -> Map {
        Map { layer: 0, sample: "a".into(), tokens: evicted[0].len(), evicted }
    }

    #[test]
    fn a_square_is_the_share_of_steps_at_which_its_tokens_are_kept() {
        // Four tokens; the second is evicted at step 2, the others never.
        let exact = map(vec![vec![4, 2, 4, 4]]).grey(4);
        let (kept, gone) = (0, 255);
        let rows = [
            [kept, gone, gone, gone],
            [kept, kept, gone, gone],
            [kept, kept, kept, gone],
            [kept, gone, kept, kept],
        ];
        assert_eq!(exact, rows.concat());
        // Two by two: three of four pairs before the middle, all but one below, and so on.
        let share = |kept: f64| (255.0 * (1.0 - kept)).round() as u8;
        assert_eq!(map(vec![vec![4, 2, 4, 4]]).grey(2), [share(0.75), 255, share(0.75), share(0.75)]);
        // Heads that evict by themselves are averaged.
        let heads = map(vec![vec![4, 2, 4, 4], vec![4, 4, 4, 4]]).grey(4);
        assert_eq!(heads[13], 128);
    }
}

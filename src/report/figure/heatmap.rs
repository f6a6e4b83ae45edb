//! Which tokens are in the cache at each step: the paper's Figures 8, 12 and 13, a map of steps (down) by tokens (across).
//!
//! A map is made of the step at which each token was evicted, which rows hold as text. A long text has more pairs of step
//! and token than a figure has pixels, so each square is the share of its pairs where the token is kept: black all, white none.
//! Where heads evict by themselves, a pair is the share of the heads that keep the token.

use std::collections::BTreeMap;

use crate::ledger::Row;
use crate::report::escape;
use crate::report::figure::square_map::{GAP, LABEL_ROOM, Squares, names_room};
use crate::report::figure::{SquareMap, SquareMaps, TITLE, font};

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

/// The maps of one figure, each on a side in points, or on a page of some width with as many abreast.
pub(crate) fn square_maps(what: &str, maps: &[Map], page: Option<(f64, usize)>) -> SquareMaps {
    let is_alone = maps.len() == 1;
    let sample = maps.first().map_or("", |map| map.sample.as_str());
    let abreast = page.map_or(ABREAST, |(_, abreast)| abreast);
    let map = |map: &Map| {
        let names: Vec<String> = [0, map.tokens / 2, map.tokens].iter().map(usize::to_string).collect();
        let side = match page {
            Some((width, abreast)) => (width - LABEL_ROOM) / abreast as f64 - GAP - names_room(&names),
            None if is_alone => 3.1 * 72.0,
            None => 1.55 * 72.0,
        };
        // The caption has the whole title.
        let fits = is_alone && font::width(what, TITLE) <= side;
        let squares = map.tokens.clamp(1, if is_alone { ALONE } else { TOGETHER });
        SquareMap {
            title: if fits { what.to_owned() } else { format!("layer {}", map.layer) },
            policy: String::new(),
            horizontal: "kept token",
            vertical: "step",
            columns: names.clone(),
            lines: names,
            squares: Squares::Shades { squares, grey: map.grey(squares), side },
        }
    };
    let about = format!("sample {}; {SHADES}", escape::plain(sample));
    SquareMaps {
        maps: maps.iter().map(map).collect(),
        abreast,
        asks: "Which tokens are kept, and how long?",
        about,
    }
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

//! Titles above plots, in as many lines as they need.

use super::{MARGIN, SMALL, TITLE, TITLE_ROW};
use crate::report::escape;
use crate::report::figure::{Across, BLACK, GREY, Scene, Spot, font};

/// The most lines of a title.
const MOST: usize = 3;
/// From one line to the next, in points.
const LINE: f64 = 9.5;

/// Draws what a figure answers and below it what it is of, from a corner on; returns the height that they take.
pub(crate) fn draw_head(scene: &mut Scene, (question, about): (&str, &str), corner: Spot) -> f64 {
    let room = scene.width - corner.0 - MARGIN;
    let mut y = corner.1 + TITLE / 2.0 + 1.0;
    for line in font::wrap(&escape::plain(question), TITLE, room) {
        scene.text((corner.0, y), &line, TITLE, BLACK, Across::Left);
        y += LINE + 1.0;
    }
    for line in
        font::wrap(&escape::plain(about), SMALL, room).into_iter().take(MOST).filter(|line| !line.is_empty())
    {
        scene.text((corner.0, y), &line, SMALL, GREY, Across::Left);
        y += LINE - 1.0;
    }
    // The row above a plot is empty for the most part.
    y - corner.1 - 3.5
}

/// A title in lines of some width; what is too much is cut.
pub(crate) fn lines(title: &str, width: f64) -> Vec<String> {
    let mut lines = font::wrap(&escape::plain(title), TITLE, width);
    if lines.len() > MOST {
        let rest = lines.split_off(MOST - 1).join(" ");
        lines.push(font::fit(&rest, TITLE, width));
    }
    lines
}

/// The room of a title of so many lines.
pub(super) fn room(lines: usize) -> f64 {
    TITLE_ROW + lines.saturating_sub(1) as f64 * LINE
}

/// The lines of a title above a plot, centred on it unless that would run out of the chart.
pub(crate) fn draw(scene: &mut Scene, lines: &[String], (left, right): (f64, f64), (centre, bottom): Spot) {
    for (line, above) in lines.iter().rev().zip(0..) {
        let half = font::width(line, TITLE) / 2.0;
        let x = centre.clamp(left + half, (right - half).max(left + half));
        let y = bottom - TITLE_ROW / 2.0 - 1.0 - f64::from(above) * LINE;
        scene.text((x, y), line, TITLE, BLACK, Across::Centre);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_never_are_wider_than_their_figure() {
        let long =
            "a-model-with-a-long-name \u{B7} a-data-set-with-a-long-name \u{B7} and one, two, three, four details";
        for room in [30.0, 90.0, 150.0, 600.0] {
            let lines = lines(long, room);
            assert!((1..=3).contains(&lines.len()), "{lines:?}");
            assert!(lines.iter().all(|line| font::width(line, TITLE) <= room), "{room}: {lines:?}");
        }
        assert_eq!(lines(long, 600.0), [long]);
    }
}

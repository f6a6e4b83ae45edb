//! The text after some steps, as a picture, and as an animation.

use anyhow::Result;

use super::{SHADES, Side, Unit, View, shown};
use crate::format::plain;
use crate::report::figure::{Across, BLACK, Color, GREY, Pen, Scene, font};

/// Widths and sizes are points.
const WIDTH: f64 = 520.0;
const MARGIN: f64 = 12.0;
const GAP: f64 = 16.0;
const TITLE: f64 = 10.0;
const HELD: Color = Color(12, 74, 128);
const NOW: Color = Color(255, 213, 74);
/// A line's height, as a multiple of its letters' size.
const LINE: f64 = 1.5;

/// The text after each of some numbers of tokens, as far as it is read: from the top to the bottom, with the caches side by side.
pub fn picture(view: &View, steps: &[usize]) -> Scene {
    drawing(view, steps, None)
}

/// A picture; the room is that of the text after `room_for` tokens, where that is given.
fn drawing(view: &View, steps: &[usize], room_for: Option<usize>) -> Scene {
    let columns = view.sides.len().max(steps.len().min(2));
    let room = (WIDTH - 2.0 * MARGIN - (columns - 1) as f64 * GAP) / columns as f64;
    let size = if columns > 1 { 7.0 } else { 8.5 };
    let mut scene = Scene::new(plain(&view.heading()), WIDTH);
    let lines = lines(&view.units, size, room);
    let mut top = MARGIN + TITLE / 2.0;
    for line in font::wrap(&scene.title.clone(), TITLE, WIDTH - 2.0 * MARGIN) {
        scene.text((MARGIN, top), &line, TITLE, BLACK, Across::Left);
        top += TITLE * LINE;
    }
    legend(&mut scene, top);
    top += 2.0 * TITLE;
    let firsts: Vec<usize> = view.units().map(|(first, _)| first).collect();
    let panels: Vec<_> = steps.iter().flat_map(|step| view.sides.iter().map(move |side| (*step, side))).collect();
    for row in panels.chunks(columns) {
        for ((step, side), column) in row.iter().zip(0..) {
            let left = MARGIN + f64::from(column) * (room + GAP);
            draw(&mut scene, view, side, *step, ((left, top), size), (&lines, &firsts));
        }
        let read = room_for.or(row.iter().map(|(step, _)| *step).max()).unwrap_or_default();
        let is_read = |line: &&Placed| line.first().is_some_and(|(at, _)| firsts[*at] < read);
        top += TITLE * 1.6 + lines.iter().take_while(is_read).count() as f64 * size * LINE + GAP;
    }
    scene.height = top;
    scene
}

/// Frames of an animation, from the first token to the last, each for an equal part of `seconds`; a PNG file that browsers play.
///
/// # Errors
/// Pictures that cannot be encoded.
pub fn animation(view: &View, frames: usize, seconds: f64) -> Result<Vec<u8>> {
    let step = |frame: usize| ((frame + 1) * view.tokens).div_ceil(frames);
    let scenes: Vec<Scene> = (0..frames).map(|frame| drawing(view, &[step(frame)], Some(view.tokens))).collect();
    Scene::animated_png(&scenes, seconds)
}

/// Units that a line has, and how far from its beginning each is.
type Placed = Vec<(usize, f64)>;

/// The units in lines of a width: broken between paragraphs, or before the last space.
fn lines(units: &[Unit], size: f64, room: f64) -> Vec<Placed> {
    let mut lines: Vec<Placed> = Vec::new();
    let mut line: Placed = Vec::new();
    let mut end = 0.0;
    let begins = |at: usize| units[at].text.starts_with(char::is_whitespace);
    // A line begins with its first letter: the space before it is left of the line, where nothing is drawn.
    let space = |at: usize| if units[at].text.starts_with(' ') { font::width(" ", size) } else { 0.0 };
    for (at, unit) in units.iter().enumerate() {
        let width = font::width(&drawn(&unit.text), size);
        if end + width > room && !line.is_empty() && !unit.text.trim().is_empty() {
            // What has no space before it goes to the next line with what it continues.
            let word = line.iter().rposition(|(at, _)| begins(*at)).filter(|word| *word > 0 && !begins(at));
            let moved = line.split_off(word.unwrap_or(line.len()));
            let shift = moved.first().map_or(end + space(at), |(first, start)| start + space(*first));
            lines.push(std::mem::take(&mut line));
            line.extend(moved.into_iter().map(|(at, start)| (at, start - shift)));
            end -= shift;
        }
        line.push((at, end));
        end += width;
        // Many texts have lines of their own, which are of another width; an empty one ends a paragraph.
        let newlines = unit.text.matches('\n').count();
        let follows = at > 0 && units[at - 1].text.trim_end_matches([' ', '\r']).ends_with('\n');
        let goes_on =
            units.get(at + 1).is_some_and(|next| next.text.trim_start_matches([' ', '\r']).starts_with('\n'));
        if newlines + usize::from(follows) > 1 && newlines > 0 && !goes_on {
            lines.push(std::mem::take(&mut line));
            end = 0.0;
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// A unit's text as it is drawn.
fn drawn(text: &str) -> String {
    shown(text).chars().map(|c| if c.is_ascii_control() { ' ' } else { c }).collect()
}

/// One cache after so many tokens.
fn draw(
    scene: &mut Scene,
    view: &View,
    side: &Side,
    read: usize,
    ((left, top), size): ((f64, f64), f64),
    (lines, firsts): (&[Placed], &[usize]),
) {
    let name = if view.sides.len() > 1 { format!("{}, ", side.name) } else { String::new() };
    let title = format!("{}after {read} of {} tokens", plain(&name), view.tokens);
    scene.text((left, top), &title, size, GREY, Across::Left);
    for (row, line) in lines.iter().enumerate() {
        let middle = top + TITLE * 1.6 + row as f64 * size * LINE;
        for (at, start) in line {
            let (unit, first) = (&view.units[*at], firsts[*at]);
            if first >= read {
                continue;
            }
            let (text, x) = (drawn(&unit.text), left + start);
            let end = x + font::width(&text, size);
            let shade = side.shade(first, unit.tokens, read);
            let is_newest = read <= first + unit.tokens && read < view.tokens;
            let (color, opacity) = if is_newest { (NOW, 1.0) } else { (HELD, opacity(shade)) };
            let x_of_ground = x.max(left);
            ground(scene, (x_of_ground, middle), (end - x_of_ground, size), color, opacity);
            let ink = if is_newest || shade > SHADES / 2 { BLACK } else { faded(shade) };
            // SVG leaves out spaces at the beginning of a text.
            let letters = text.trim_start();
            let start = x + font::width(&text[..text.len() - letters.len()], size);
            scene.text((start, middle), letters, size, ink, Across::Left);
            if first >= view.tokens - view.written {
                let line = middle + 0.62 * size;
                scene.stroke("axis", &[(x_of_ground, line), (end, line)], Pen::new(GREY, 0.6));
            }
        }
    }
}

/// Draws what shades mean.
fn legend(scene: &mut Scene, middle: f64) {
    let size = 7.0;
    let mut x = MARGIN;
    let mut add = |scene: &mut Scene, text: &str, ground_of: Option<(Color, f64)>| {
        if let Some((color, opacity)) = ground_of {
            ground(scene, (x, middle), (font::width(text, size), size), color, opacity);
        }
        let start = if text.starts_with(' ') { x + font::width(" ", size) } else { x };
        scene.text((start, middle), text.trim(), size, BLACK, Across::Left);
        x += font::width(text, size) + 3.0;
    };
    add(scene, "Held by the share of layers and heads:", None);
    for shade in (0..=SHADES).step_by(2) {
        add(scene, &format!(" {} % ", shade * 100 / SHADES), Some((HELD, opacity(shade))));
    }
    add(scene, " the newest token ", Some((NOW, 1.0)));
}

/// The ground of some text.
fn ground(scene: &mut Scene, (x, middle): (f64, f64), (width, size): (f64, f64), color: Color, opacity: f64) {
    if opacity > 0.0 {
        let [top, bottom] = [middle - 0.68 * size, middle + 0.68 * size];
        let end = x + width;
        scene.fill("band", &[(x, top), (end, top), (end, bottom), (x, bottom)], color, opacity);
    }
}

/// The opacity of a shade, as in the page's style sheet.
fn opacity(shade: usize) -> f64 {
    if shade == 0 { 0.0 } else { 0.04 * shade as f64 + 0.03 }
}

/// Letters of a token that most have dropped.
fn faded(shade: usize) -> Color {
    let grey = (168 - 16 * shade) as u8;
    Color(grey, grey, grey)
}

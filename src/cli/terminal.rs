//! The terminal that bars are drawn on, and its width.

use std::io;

use console::Term;
use indicatif::{ProgressDrawTarget, TermLike};

/// Drawings a second.
const RATE: u8 = 5;

/// stderr, or nothing if it is no terminal.
pub(super) fn stderr() -> ProgressDrawTarget {
    let term = Term::buffered_stderr();
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
    match term.is_term() && !is_dumb {
        true => ProgressDrawTarget::term_like_with_hz(Box::new(AtTheLeft(term)), RATE),
        false => ProgressDrawTarget::hidden(),
    }
}

/// Columns of stdout: those of its terminal up to `most`, which is also the answer where there is none.
pub(super) fn columns(most: usize) -> usize {
    Term::stdout().size_checked().map_or(most, |(_, columns)| usize::from(columns).min(most))
}

/// A terminal whose cursor rests at the left of the last line. indicatif leaves it at the right border, so that the `^C` that a
/// terminal shows would begin a new line, and the first line of the bar would never be cleared.
#[derive(Debug)]
struct AtTheLeft(Term);

impl TermLike for AtTheLeft {
    fn width(&self) -> u16 {
        self.0.size().1
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.0.move_cursor_up(lines)
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.0.move_cursor_down(lines)
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.0.move_cursor_right(columns)
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.0.move_cursor_left(columns)
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.0.write_line(line)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.write_str("\r")?;
        self.0.flush()
    }
}

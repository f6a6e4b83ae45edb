//! One figure before it is drawn: what is on it, the names of its files, and its scenes.

use crate::report::figure::{Chart, Page, Plain, Scene, SeriesStyles, SquareMaps};

/// The ends of the names of files that show excess over the full cache.
pub(crate) const EXCESS: &str = "excess";

/// One figure, not yet drawn.
pub struct Figure {
    /// The file name without `-linear.svg` and its like.
    pub(crate) stem: String,
    pub(crate) title: String,
    pub(crate) content: Content,
}

/// What is on a figure.
pub enum Content {
    /// Charts with each scale, or as excess over the full cache, after the end of their file's name.
    Charts(Vec<(&'static str, Vec<Chart>)>),
    /// Maps of numbered squares.
    Maps(SquareMaps),
    /// A picture that looks alike in files and on the page.
    Picture(Box<dyn Fn(Plain) -> Scene>),
}

impl Figure {
    /// Files of the figure without their endings, and what each shows.
    pub(crate) fn files(&self) -> Vec<(String, String)> {
        let Content::Charts(drawings) = &self.content else {
            return vec![(self.stem.clone(), self.title.clone())];
        };
        let of_scale = |(scale, _): &(&str, Vec<Chart>)| {
            let how = match *scale {
                EXCESS => ", excess over full".to_owned(),
                _ if drawings.len() > 1 => format!(", {scale} axis"),
                _ => String::new(),
            };
            (format!("{}-{scale}", self.stem), format!("{}{how}", self.title))
        };
        drawings.iter().map(of_scale).collect()
    }

    /// Looks of the lines of its charts, which are the same in all of its files.
    pub(crate) fn styles(&self, styles: &SeriesStyles) -> SeriesStyles {
        let Content::Charts(drawings) = &self.content else { return styles.among(&[]) };
        let lines = drawings.iter().flat_map(|(_, charts)| charts).flat_map(|chart| &chart.lines);
        styles.among(&lines.map(|line| line.policy.as_str()).collect::<Vec<_>>())
    }

    /// What is drawn in those files, in the same order.
    pub(crate) fn scenes(&self, styles: &SeriesStyles, plain: Plain) -> Vec<Scene> {
        let drawings = match &self.content {
            Content::Charts(drawings) => drawings,
            Content::Maps(maps) => return vec![maps.scene(&self.title, plain)],
            Content::Picture(draw) => return vec![draw(plain)],
        };
        let styles = self.styles(styles);
        let titles = self.files().into_iter().map(|(_, title)| title);
        // Above the charts it is said what they are of, unless that is left out.
        let caption = if plain.title { &self.title } else { "" };
        let scene = |((_, charts), title): (&(&str, Vec<Chart>), String)| {
            Page::usual(charts.len(), plain).curves((&title, &self.title), charts, &styles, caption)
        };
        drawings.iter().zip(titles).map(scene).collect()
    }
}

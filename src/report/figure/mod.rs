//! Figures: one description of each, drawn by one writer of SVG. Knows series; nothing of texts around a figure.

pub(crate) mod axis;
pub(crate) mod by_schedule;
pub(crate) mod by_size;
pub(crate) mod chart;
pub(crate) mod drawing;
pub(crate) mod export;
pub(crate) mod font;
pub(crate) mod head_map;
pub(crate) mod heatmap;
pub(crate) mod kept_by_position;
pub(crate) mod needle_map;
pub(crate) mod page;
pub(crate) mod plain;
pub(crate) mod scene;
pub(crate) mod series_style;
pub(crate) mod slices;
pub(crate) mod square_map;
#[cfg(test)]
mod tests;

pub(crate) use axis::{Axis, Horizontal, Scale, Tick, values_to_show};
pub(crate) use chart::{Chart, LABEL, Line, MARGIN, Printed, Reference, SMALL, Stroke, TITLE, TITLE_ROW, excess};
pub(crate) use drawing::{Content, EXCESS, Figure};
pub(crate) use kept_by_position::KeptByPosition;
pub(crate) use page::{Page, TOP};
pub(crate) use plain::Plain;
pub(crate) use plotters::style::RGBColor as Color;
#[cfg(test)]
pub(crate) use scene::texts;
pub(crate) use scene::{Across, Pen, Scene, Spot};
pub(crate) use series_style::{BLACK, GREY, Marker, PALE, SeriesStyle, SeriesStyles, WHITE};
pub(crate) use square_map::{SquareMap, SquareMaps};

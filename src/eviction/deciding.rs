//! Which layers say what leaves, where all layers of a model decide together.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Deserializer};

use super::budget::interned;
use crate::yaml::from_text;

/// A layer of the model: its number among those that own a cache, from 0, or the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecidingLayer {
    Number(u32),
    Last,
}

/// The layers whose scores decide; each counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecidingLayers(&'static Vec<DecidingLayer>);

impl DecidingLayers {
    /// # Errors
    /// No layer.
    pub fn new(mut layers: Vec<DecidingLayer>) -> Result<DecidingLayers> {
        static LISTS: Mutex<Vec<&'static Vec<DecidingLayer>>> = Mutex::new(Vec::new());
        ensure!(!layers.is_empty(), "no layer decides; name at least one, such as first, last or 5");
        layers.sort_unstable();
        layers.dedup();
        Ok(DecidingLayers(interned(&LISTS, layers)))
    }

    /// The numbers of the layers in a model with so many.
    pub(super) fn of(self, layers: usize) -> impl Iterator<Item = usize> {
        self.0.iter().map(move |layer| match layer {
            DecidingLayer::Number(number) => *number as usize,
            DecidingLayer::Last => layers.saturating_sub(1),
        })
    }

    /// Whether the first layer decides alone, so that what leaves is known before other layers are read.
    pub(super) fn is_first_alone(self) -> bool {
        *self.0 == [DecidingLayer::Number(0)]
    }
}

impl fmt::Display for DecidingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecidingLayer::Number(0) => write!(f, "first"),
            DecidingLayer::Number(number) => write!(f, "{number}"),
            DecidingLayer::Last => write!(f, "last"),
        }
    }
}

impl FromStr for DecidingLayer {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<DecidingLayer> {
        match text {
            "first" => Ok(DecidingLayer::Number(0)),
            "last" => Ok(DecidingLayer::Last),
            number => {
                let number = number.parse().ok().filter(|number| *number < u32::MAX);
                let wrong = || format!("`{text}` is not a layer; write first, last, or a number from 0");
                Ok(DecidingLayer::Number(number.with_context(wrong)?))
            }
        }
    }
}

impl<'de> Deserialize<'de> for DecidingLayer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a layer: first, last, or its number from 0")
    }
}

impl fmt::Display for DecidingLayers {
    /// Writes the layers as in rows and cell ids: `first,5,last`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for DecidingLayers {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<DecidingLayers> {
        DecidingLayers::new(text.split(',').map(str::parse).collect::<Result<_>>()?)
    }
}

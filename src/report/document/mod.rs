//! A report as one tree of blocks, which every format renders: sections with headings, facts, tables, figures, notes and folds.
//!
//! All texts are plain and not escaped; formats escape them.

pub(crate) mod table;

use std::rc::Rc;

use crate::metric::Metric;
use crate::report::figure::Figure;
pub use table::{Column, Entry, Grid, Line, Table};

/// A whole report, comparison or exhibit.
pub struct Document {
    pub title: String,
    pub blocks: Vec<Block>,
}

/// A part of a document.
pub enum Block {
    Section(Section),
    Group(Group),
    Facts(Vec<Fact>),
    Table(Table),
    Figure(Rc<Figure>),
    Paragraph(String),
    /// Notes, one sentence each.
    List(Vec<String>),
    /// Other pages: what each is, and where, as seen from the report.
    Links(Vec<(String, String)>),
    /// Where a page shows single samples.
    Samples,
}

/// Blocks under a heading.
pub struct Section {
    pub title: String,
    /// The setting it is about, by its place among those of the report.
    pub setting: Option<usize>,
    pub blocks: Vec<Block>,
}

/// Blocks that belong together inside a section; those with a title can be folded.
pub struct Group {
    pub title: Option<String>,
    /// Whether a reader sees it unasked.
    pub is_open: bool,
    /// The metric it is about, by its name in rows.
    pub metric: Option<String>,
    pub blocks: Vec<Block>,
}

/// A name and its values.
pub struct Fact {
    pub name: String,
    pub items: Vec<Item>,
}

/// A value of a fact: a name, words about it, or both.
#[derive(Default)]
pub struct Item {
    pub name: String,
    pub words: String,
    /// The setting whose results are to be linked.
    pub setting: Option<usize>,
}

impl Fact {
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = String>) -> Self {
        let items = values.into_iter().filter(|value| !value.is_empty());
        Self { name: name.into(), items: items.map(|words| Item { words, ..Item::default() }).collect() }
    }
}

impl Section {
    /// A section that is about no single setting; `None` without blocks.
    pub fn of(title: impl Into<String>, blocks: Vec<Block>) -> Option<Block> {
        (!blocks.is_empty()).then(|| Block::Section(Self { title: title.into(), setting: None, blocks }))
    }
}

impl Group {
    /// What a reader opens.
    pub fn folded(title: impl Into<String>, blocks: Vec<Block>) -> Self {
        Self { title: Some(title.into()), is_open: false, metric: None, blocks }
    }

    /// What is in full view, under a title.
    pub fn open(title: impl Into<String>, blocks: Vec<Block>) -> Self {
        Self { is_open: true, ..Self::folded(title, blocks) }
    }

    /// Says which metric the group is about.
    #[must_use]
    pub fn of_metric(self, metric: &Metric) -> Self {
        Self { metric: Some(metric.id.to_string()), ..self }
    }
}

impl Block {
    /// A table that a reader opens.
    pub fn folded(table: Table) -> Self {
        Self::Group(Group::folded(table.title.clone(), vec![Self::Table(table)]))
    }

    /// The blocks inside.
    fn inside(&self) -> &[Block] {
        match self {
            Self::Section(section) => &section.blocks,
            Self::Group(group) => &group.blocks,
            _ => &[],
        }
    }
}

impl Document {
    /// Every block, in order, with the title of the setting that it is about.
    fn all(&self) -> Vec<(Option<&str>, &Block)> {
        fn add<'a>(blocks: &'a [Block], setting: Option<&'a str>, all: &mut Vec<(Option<&'a str>, &'a Block)>) {
            for block in blocks {
                all.push((setting, block));
                let inside = match block {
                    Block::Section(section) if section.setting.is_some() => Some(section.title.as_str()),
                    _ => setting,
                };
                add(block.inside(), inside, all);
            }
        }
        let mut all = Vec::new();
        add(&self.blocks, None, &mut all);
        all
    }

    /// All tables, each with the title of the setting that it is about.
    pub fn tables(&self) -> Vec<(Option<&str>, &Table)> {
        let tables = self.all().into_iter().filter_map(|(setting, block)| match block {
            Block::Table(table) => Some((setting, table)),
            _ => None,
        });
        tables.collect()
    }

    /// All figures, in order.
    pub(crate) fn figures(&self) -> Vec<&Rc<Figure>> {
        let figures = self.all().into_iter().filter_map(|(_, block)| match block {
            Block::Figure(figure) => Some(figure),
            _ => None,
        });
        figures.collect()
    }
}

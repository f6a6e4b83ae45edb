//! The report on disk: which files, where, in which formats.
//!
//! This is the only part of the report that touches files. What it writes is derived, so it may be deleted and written
//! again at any time. Files are replaced atomically: several processes of one sweep may draw into the same folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::document::Document;
use super::figure::plain::Plain;
use super::figure::scene::Scene;
use super::format::terminal::{self, WIDTH};
use super::format::{FORMATS, Format, Sources};
use super::sections::{self, Added, Report};
use super::series::distance::Distance;
use super::series::results::Results;
use super::series::size::SizeAxis;
use crate::ledger::{Contrast, Row, Text, write_derived};

#[derive(Clone, Default)]
pub struct Options {
    /// The folder; made if it is missing.
    pub out: PathBuf,
    pub formats: Vec<&'static Format>,
    /// How far from the full cache a sufficient cache may be; empty: as far as in the paper's claims.
    pub distances: Vec<Distance>,
    /// Pages of single samples, as seen from the folder, by cell and sample.
    pub pages: BTreeMap<(Text, Text), String>,
    /// How many samples each cell that is not complete is to have, by id.
    pub unfinished: BTreeMap<Text, usize>,
    /// Cells that failed, with reasons.
    pub failed: Vec<String>,
    /// The policy that pairs are shown against; `None`: the first of the sweep.
    pub reference: Option<String>,
    /// What figures over cache sizes have across; `None`: memory where caches of one size hold unequal memory.
    pub axis: Option<SizeAxis>,
    /// The comparisons that were planned.
    pub contrasts: Vec<Contrast>,
    /// Whether the terminal has every table, and not only the short answer.
    pub all: bool,
    /// Columns of the terminal.
    pub width: usize,
    /// Whether the terminal shows faint text.
    pub is_dimmed: bool,
    /// What the files of figures are drawn without; the page has all of it.
    pub plain: Plain,
}

impl Options {
    /// The usual formats.
    pub fn everything(out: impl Into<PathBuf>) -> Self {
        Self { out: out.into(), formats: Format::usual(), width: WIDTH, ..Self::default() }
    }
}

/// What [`write()`] did.
#[derive(Clone, Debug)]
pub struct Written {
    /// The files, in the order they were written.
    pub files: Vec<PathBuf>,
    /// The short answer, or every table, for a terminal.
    pub terminal: String,
}

impl Written {
    /// The page, if it was asked for.
    pub fn page(&self) -> Option<&Path> {
        self.files.iter().find(|file| file.ends_with("report.html")).map(PathBuf::as_path)
    }
}

/// Writes the report of the rows; blocks that are `added` come after the settings.
pub fn write(rows: &[Row], options: &Options, added: &Added<'_>) -> Result<Written> {
    let mut results = Results::of_sweep(rows, &options.unfinished, &options.contrasts)?;
    results.failed.clone_from(&options.failed);
    if results.panels.is_empty() {
        bail!("there are no rows to report on");
    }
    let report = Report::of(
        &results,
        &options.distances,
        options.reference.as_deref(),
        options.axis,
        added,
        &options.pages,
    );
    let (document, summary) = (sections::document(&report), sections::summary(&report));
    let is_asked = |format: &&Format| options.formats.iter().any(|asked| asked.name == format.name);
    let formats: Vec<&Format> = FORMATS.iter().filter(is_asked).collect();
    let mut folder = Folder { out: &options.out, formats: &formats, files: Vec::new() };
    for figure in document.figures() {
        for ((stem, _), scene) in figure.files().iter().zip(figure.scenes(&report.styles, options.plain)) {
            folder.write_scene(&format!("figures/{stem}"), &scene)?;
        }
    }
    let mut linkable = formats.iter().filter(|format| format.figure.is_some() && !format.is_for_print);
    let linked = linkable.next().map(|format| format.name);
    let sources = Sources { document: &document, summary: &summary, report: &report, linked };
    for files in formats.iter().filter_map(|format| format.report) {
        for (name, content) in files(&sources)? {
            folder.write_file(name, content)?;
        }
    }
    let terminal = match options.all {
        true => terminal::everything(&document, options.width, options.is_dimmed),
        false => terminal::summary(&summary, options.width, options.is_dimmed),
    };
    Ok(Written { files: folder.files, terminal })
}

/// Where files are written, in the formats asked for.
pub(crate) struct Folder<'a> {
    pub(crate) out: &'a Path,
    pub(crate) formats: &'a [&'static Format],
    /// Files written so far.
    pub(crate) files: Vec<PathBuf>,
}

impl Folder<'_> {
    /// A figure; `stem` is its file without an ending.
    pub(crate) fn write_scene(&mut self, stem: &str, scene: &Scene) -> Result<()> {
        for format in self.formats {
            let Some(draw) = format.figure else { continue };
            let file = format!("{stem}.{}", format.name);
            let content = draw(scene).with_context(|| format!("drawing {file}"))?;
            self.write_file(&file, content)?;
        }
        Ok(())
    }

    /// The tables of a document.
    pub(crate) fn write_document(&mut self, stem: &str, document: &Document) -> Result<()> {
        for format in self.formats {
            let Some(render) = format.document else { continue };
            self.write_file(&format!("{stem}.{}", format.name), render(document))?;
        }
        Ok(())
    }

    fn write_file(&mut self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.out.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("making the folder {}", folder.display()))?;
        }
        write_derived(&path, content.as_ref())?;
        self.files.push(path);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{cell, changed, recall, table_3};

    fn write(rows: &[Row], options: &Options) -> Result<Written> {
        super::write(rows, options, &|_| Vec::new())
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_paper_s_table_becomes_a_report() {
        let folder = tempfile::tempdir().unwrap();
        // Set to look at the figures by eye.
        let kept = std::env::var_os("TOVA_BENCH_TEST_REPORT").map(PathBuf::from);
        let out = kept.as_deref().unwrap_or(folder.path());
        let models =
            [("meta-llama/Llama-2-7b-hf", 1.0), ("mistralai/Mistral-7B-v0.1", 0.97), ("01-ai/Yi-6B", 1.3)];
        let mut rows: Vec<Row> = models.iter().flat_map(|(model, scale)| table_3(model, *scale, 100)).collect();
        // Other metrics of one model, in likely sizes: what is lost, and its exponential as agreement.
        for row in table_3(models[0].0, 1.0 / 7.16, 100).into_iter().filter(|row| row.policy != "full") {
            let lost = (row.value / row.weight).max(0.0);
            rows.push(Row { metric: "kl_to_full".into(), value: lost * row.weight, ..row.clone() });
            rows.push(Row { metric: "top1_agreement".into(), value: (-lost).exp() * row.weight, ..row });
        }
        rows.extend(recall(models[0].0, 12));
        let written = write(&rows, &Options::everything(out)).unwrap();

        let names: Vec<String> =
            written.files.iter().map(|file| file.strip_prefix(out).unwrap().display().to_string()).collect();
        let by_distance = "recall-llama-2-7b-hf-embedded-by-distance";
        for stem in ["perplexity-llama-2-7b-hf-pg19", "perplexity-yi-6b-pg19", by_distance] {
            let has = |end: &str| names.contains(&format!("figures/{stem}-{end}"));
            assert!(has("linear.svg") && has("linear.png"), "{stem}: {names:?}");
            assert_eq!((has("log.svg"), has("log.png")), (stem != by_distance, stem != by_distance), "{stem}");
        }
        // A share has no logarithmic axis.
        let of_agreement: Vec<_> =
            names.iter().filter(|name| name.starts_with("figures/top1-agreement")).collect();
        assert!(!of_agreement.is_empty() && of_agreement.iter().all(|name| !name.contains("-log")), "{names:?}");
        let report = read(&out.join("report.md"));
        assert!(names.contains(&"figures/perplexity-yi-6b-pg19-excess.png".to_owned()), "{names:?}");
        for part in [
            "| tova | 9.5",
            "| window | <sub>",
            "(figures/perplexity-yi-6b-pg19-linear.svg)",
            "(figures/perplexity-yi-6b-pg19-excess.svg)",
            "<details><summary>Recall (%) by distance",
        ] {
            assert!(report.contains(part), "{part}: {report}");
        }
        // Chance is a line of charts and has no table.
        assert!(!report.contains("recall_chance"), "{report}");
        // A header, for each model one full line and 8 policies at 7 sizes, two metrics without a full line, and recall whole
        // and in eight octaves.
        let lines = 1 + 3 * (1 + 8 * 7) + 2 * 8 * 7 + 9 * (1 + 5 * 7);
        assert_eq!(read(&out.join("report.csv")).lines().count(), lines);
        let svg = read(&out.join(format!("figures/{by_distance}-linear.svg")));
        for word in ["64 entries", "2048 entries", "tokens between the fact and the answer", "chance", "embedded"]
        {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert!(!svg.contains("4096 entries"), "as large as a sample: {svg}");
        let svg = read(&out.join("figures/perplexity-llama-2-7b-hf-pg19-linear.svg"));
        for policy in ["truncate", "window", "window+1", "window+4", "h2o", "tova-head", "tova", "tova+4"] {
            assert!(
                svg.contains(&format!("\n{policy}")) || svg.contains(&format!(">{policy}")),
                "{policy}: {svg}"
            );
        }
        let png = fs::read(out.join("figures/perplexity-llama-2-7b-hf-pg19-log.png")).unwrap();
        assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    }

    #[test]
    fn names_of_models_and_policies_are_escaped_in_figures_and_in_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |policy, size, value| cell("nll", policy, size, &[("a", value, 1.0)]);
        let hostile = "<b>&\"mine\"";
        let all = [at("full", None, 1.0), at(hostile, Some(64), 1.5), at(hostile, Some(128), 1.0)].concat();
        let all = changed(all, |row| row.model = "../../x\u{1}<y>".into());
        let formats = vec![Format::named("svg").unwrap()];
        let written = write(&all, &Options { formats, ..Options::everything(folder.path()) }).unwrap();
        // On a linear and on a logarithmic axis, and the excess over the full cache.
        assert_eq!(written.files.len(), 3);
        let figures = folder.path().join("figures");
        assert!(written.files.iter().all(|file| file.parent() == Some(&figures)), "{:?}", written.files);
        let svg = read(&written.files[0]);
        assert!(svg.contains("&lt;b&gt;&amp;") && !svg.contains("<b>") && !svg.contains('\u{1}'), "{svg}");
        // Every tag closes.
        for tag in ["text", "svg"] {
            assert_eq!(svg.matches(&format!("<{tag}")).count(), svg.matches(&format!("</{tag}>")).count());
        }
        let full = svg.lines().find(|line| line.contains("class=\"reference full\"")).unwrap();
        assert!(full.contains("#000000") && full.contains("stroke-dasharray"), "{full}");
    }

    #[test]
    fn no_rows_are_an_error() {
        let error = write(&[], &Options::everything("nowhere")).unwrap_err();
        assert_eq!(error.to_string(), "there are no rows to report on");
        assert!(!Path::new("nowhere").exists());
    }

    #[test]
    fn only_the_full_cache_gives_tables_without_figures() {
        let folder = tempfile::tempdir().unwrap();
        let rows = cell("nll", "full", None, &[("a", 1.0, 1.0)]);
        let written = write(&rows, &Options::everything(folder.path())).unwrap();
        let names = ["report.md", "summary.md", "report.html", "report.csv", "pairs.csv", "report.tex"];
        assert_eq!(written.files, names.map(|file| folder.path().join(file)));
        assert!(written.terminal.contains("2.72"), "{}", written.terminal);
    }
}

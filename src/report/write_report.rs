//! The report on disk: which files, where, in which formats.
//!
//! This is the only part of the report that touches files. What it writes is derived, so it may be deleted and written
//! again at any time. Files are replaced atomically: several processes of one sweep may draw into the same folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::breakdown::{self, Breakdown};
use super::curve::{self, Figure};
use super::format::{FORMATS, Format};
use super::markdown::Link;
use super::points::Panel;
use super::published::Published;
use super::results::Results;
use super::retention::{self, Section};
use super::scene::Scene;
use super::series::AllSeries;
use super::series_key::SeriesKey;
use super::series_style::SeriesStyles;
use super::summary;
use super::table::Sheet;
use super::throughput::{self, Throughput};
use super::within::{self, Distance};
use crate::ledger::{Row, write_derived};

#[derive(Clone)]
pub struct Options {
    /// The folder; made if it is missing.
    pub out: PathBuf,
    pub formats: Vec<&'static Format>,
    /// How far from the full cache the smallest cache that is enough may be; empty: as far as in the paper's claims.
    pub within: Vec<Distance>,
}

impl Options {
    /// The usual formats.
    pub fn everything(out: impl Into<PathBuf>) -> Self {
        Self { out: out.into(), formats: Format::usual(), within: Vec::new() }
    }
}

/// What [`write()`] did.
#[derive(Clone, Debug)]
pub struct Written {
    /// The files, in the order they were written.
    pub files: Vec<PathBuf>,
    /// The short answer, for a terminal.
    pub terminal: String,
}

/// Everything a report is made of, whatever its format.
pub(super) struct Report<'a> {
    pub(super) rows: &'a [Row],
    pub(super) series: &'a AllSeries<'a>,
    /// Every panel, those of slices too.
    pub(super) all: &'a [Panel],
    /// Those of whole samples.
    pub(super) panels: &'a [Panel],
    pub(super) breakdowns: Vec<Breakdown<'a>>,
    pub(super) timings: Vec<Throughput>,
    pub(super) sections: Vec<Section<'a>>,
    pub(super) styles: &'a SeriesStyles,
    /// The smallest cache that is enough.
    pub(super) smallest: Option<Sheet>,
    /// Sheets of the caller, which come last.
    pub(super) extra: Vec<Sheet>,
    pub(super) links: Links,
}

/// The figures on disk that Markdown links.
#[derive(Default)]
pub(super) struct Links {
    /// Of several panels.
    pub(super) overview: Vec<Link>,
    /// Of each panel.
    pub(super) panels: Vec<Vec<Link>>,
    /// Of each section.
    pub(super) sections: Vec<Vec<Link>>,
}

impl<'a> Report<'a> {
    /// `whole` and `styles` are of the results' panels of whole samples.
    pub(super) fn of(
        results: &'a Results<'_>,
        whole: &'a [Panel],
        styles: &'a SeriesStyles,
        distances: &[Distance],
        published: &'a dyn Published,
    ) -> Self {
        Self {
            rows: results.rows,
            series: &results.series,
            all: &results.panels,
            panels: whole,
            breakdowns: breakdown::breakdowns(&results.panels),
            timings: throughput::tables(&results.series, published),
            sections: retention::sections(results, published),
            styles,
            smallest: within::sheet(whole, distances),
            extra: Vec::new(),
            links: Links::default(),
        }
    }

    /// The keys of all panels, for their titles.
    pub(super) fn keys(&self) -> Vec<SeriesKey> {
        let mut keys: Vec<SeriesKey> = self.panels.iter().map(|panel| panel.key.clone()).collect();
        keys.dedup();
        keys
    }

    pub(super) fn timing(&self, key: &SeriesKey) -> Option<&Throughput> {
        self.timings.iter().find(|timing| timing.key == *key)
    }

    pub(super) fn breakdowns_of(&self, panel: &Panel) -> impl Iterator<Item = &Breakdown<'a>> {
        self.breakdowns.iter().filter(|parts| parts.is_of(panel))
    }
}

/// Writes the report of the rows, with what is `published` beside them.
pub fn write(rows: &[Row], options: &Options, published: &dyn Published) -> Result<Written> {
    let results = Results::of(rows);
    if results.panels.is_empty() {
        bail!("there are no rows to report on");
    }
    let whole = results.whole();
    let styles = SeriesStyles::of(&whole);
    let extra = published.extra(&results);
    let mut report = Report::of(&results, &whole, &styles, &options.within, published);
    report.extra = extra.sheets;
    let is_asked = |format: &&Format| options.formats.iter().any(|asked| asked.name == format.name);
    let formats: Vec<&Format> = FORMATS.iter().filter(is_asked).collect();
    let mut folder = Folder { out: &options.out, formats: &formats, files: Vec::new() };
    report.links = folder.write_figures(&report)?;
    for files in formats.iter().filter_map(|format| format.report) {
        for (name, content) in files(&report)? {
            folder.write_file(name, content)?;
        }
    }
    let terminal = summary::text(&report) + &retention::terminal(&report.sections) + &extra.terminal;
    Ok(Written { files: folder.files, terminal })
}

struct Folder<'a> {
    out: &'a Path,
    /// Those asked for, in their own order.
    formats: &'a [&'static Format],
    files: Vec<PathBuf>,
}

impl Folder<'_> {
    /// Draws everything and returns what there is to link.
    fn write_figures(&mut self, report: &Report<'_>) -> Result<Links> {
        let mut links = Links::default();
        let figures = curve::figures(report.panels, report.styles);
        for figure in &figures.combined {
            links.overview.extend(self.write_figure(figure)?);
        }
        let keys = report.keys();
        for (panel, figure) in report.panels.iter().zip(&figures.single) {
            let mut own = Vec::new();
            if let Some(figure) = figure {
                own.extend(self.write_figure(figure)?);
                for parts in report.breakdowns_of(panel) {
                    if let Some(figure) = curve::of_parts(parts, figure, panel.key.title(&keys)) {
                        own.extend(self.write_figure(&figure)?);
                    }
                }
            }
            links.panels.push(own);
        }
        for section in &report.sections {
            let mut own = Vec::new();
            for (stem, scene) in section.figures() {
                let path = self.write_scene(&stem, &scene)?;
                own.extend(path.map(|path| Link { title: scene.title.clone(), path }));
            }
            links.sections.push(own);
        }
        Ok(links)
    }

    fn write_figure(&mut self, figure: &Figure) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        for (name, charts) in &figure.drawings {
            let path = self.write_scene(&format!("{}-{name}", figure.stem), &figure.scene(charts))?;
            links.extend(path.map(|path| Link { title: format!("{}, {name} axis", figure.title), path }));
        }
        Ok(links)
    }

    /// A figure in the formats asked for; the path to link.
    fn write_scene(&mut self, stem: &str, scene: &Scene) -> Result<Option<String>> {
        let mut link = None;
        for format in self.formats {
            let Some(draw) = format.figure else { continue };
            let file = format!("figures/{stem}.{}", format.name);
            let content = draw(scene).with_context(|| format!("drawing {file}"))?;
            self.write_file(&file, content)?;
            if format.name != "pdf" {
                link = link.or(Some(file));
            }
        }
        Ok(link)
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
    use super::super::fixture::{cell, changed, recall, table_3};
    use super::*;

    fn write(rows: &[Row], options: &Options) -> Result<Written> {
        super::write(rows, options, &())
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
        for stem in ["perplexity-all", "perplexity-llama-2-7b-hf-pg19", "perplexity-yi-6b-pg19", by_distance] {
            let has = |end: &str| names.contains(&format!("figures/{stem}-{end}"));
            assert!(has("linear.svg") && has("linear.png"), "{stem}: {names:?}");
            assert_eq!((has("log.svg"), has("log.png")), (stem != by_distance, stem != by_distance), "{stem}");
        }
        // A share has no logarithmic axis.
        let of_agreement: Vec<_> =
            names.iter().filter(|name| name.starts_with("figures/top1-agreement")).collect();
        assert!(!of_agreement.is_empty() && of_agreement.iter().all(|name| !name.contains("-log")), "{names:?}");
        let report = read(&out.join("report.md"));
        for part in ["| tova | **9.5", "(figures/perplexity-all-linear.svg)", "#### Recall (%) by distance"] {
            assert!(report.contains(part), "{part}: {report}");
        }
        // Chance is a line of charts and has no table.
        assert!(!report.contains("recall_chance"), "{report}");
        // A header, for each model one full line and 8 policies at 7 sizes, two metrics without a full line, and recall whole
        // and in eight octaves.
        let lines = 1 + 3 * (1 + 8 * 7) + 2 * 8 * 7 + 9 * (1 + 5 * 7);
        assert_eq!(read(&out.join("report.csv")).lines().count(), lines);
        let svg = read(&out.join(format!("figures/{by_distance}-linear.svg")));
        for word in
            ["cache size 64", "cache size 2048", "tokens between the fact and the answer", "chance", "embedded"]
        {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert!(!svg.contains("cache size 4096"), "as large as a sample: {svg}");
        let svg = read(&out.join("figures/perplexity-llama-2-7b-hf-pg19-linear.svg"));
        for policy in ["truncate", "window", "window+1", "window+4", "h2o", "tova-head", "tova", "tova+4"] {
            assert!(
                svg.contains(&format!("\n{policy}")) || svg.contains(&format!(">{policy}")),
                "{policy}: {svg}"
            );
        }
        assert!(svg.contains("window (partly off scale)"), "{svg}");
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
        assert_eq!(written.files.len(), 2);
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

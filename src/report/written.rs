//! The report on disk: which files, where, in which formats.
//!
//! It is the only part of the report that touches files. What it writes is derived, so it may be deleted and written
//! again at any time. Each file appears whole, whoever else draws into the same folder, as several processes of one sweep do.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::breakdown::{self, Breakdown};
use super::curve::{self, Figure};
use super::format::Format;
use super::markdown::{self, Link};
use super::points::{self, Panel};
use super::scene::Scene;
use super::series_style::SeriesStyles;
use super::setting::Setting;
use super::within::{self, Distance};
use super::{brief, csv, html, latex, paper, retention, sheets, summary};
use crate::ledger::{Row, write_derived};

#[derive(Clone, Debug)]
pub struct Options {
    /// The folder; made if it is missing.
    pub out: PathBuf,
    pub formats: Vec<Format>,
    /// How far from the full cache the smallest cache that is enough may be; empty: as far as in the paper's claims.
    pub within: Vec<Distance>,
}

impl Options {
    /// The usual formats.
    pub fn everything(out: impl Into<PathBuf>) -> Self {
        Self { out: out.into(), formats: Format::USUAL.to_vec(), within: Vec::new() }
    }
}

/// What [`write()`] did.
#[derive(Clone, Debug)]
pub struct Written {
    /// The files, in the order they were written.
    pub files: Vec<PathBuf>,
    /// What [`terminal`](super::terminal) says of the same rows.
    pub terminal: String,
}

/// Writes the report of the rows.
pub fn write(rows: &[Row], options: &Options) -> Result<Written> {
    let all = points::panels(rows);
    if all.is_empty() {
        bail!("there are no rows to report on");
    }
    let mut folder = Folder { out: &options.out, formats: &options.formats, files: Vec::new() };
    let breakdowns = breakdown::breakdowns(&all);
    let panels: Vec<Panel> = all.iter().filter(|panel| panel.group.is_none()).cloned().collect();
    let styles = SeriesStyles::of(&panels);
    let within = within::sheet(&panels, &options.within);
    let (links, overview) = folder.write_figures(&panels, &breakdowns, &styles)?;
    let sections = retention::sections(rows, &all);
    let kept = folder.write_retention(&sections)?;
    if options.formats.contains(&Format::Csv) {
        folder.write_file("report.csv", csv::file(&all))?;
        folder.write_file("pairs.csv", csv::pairs(&panels))?;
    }
    let claims = paper::claims(rows, &all);
    if options.formats.contains(&Format::Markdown) {
        let mut file = markdown::file(rows, &panels, &breakdowns, &links, &overview, within.as_ref()) + &kept;
        if let Some(claims) = &claims {
            markdown::push_sheet(&mut file, "##", claims);
        }
        folder.write_file("report.md", file)?;
        folder.write_file("summary.md", brief::file(&panels, &options.within))?;
    }
    if options.formats.contains(&Format::Latex) {
        let mut sheets = sheets::all(rows, &panels, &breakdowns, &options.within);
        sheets.extend(sections.iter().map(|section| (Some(section.heading()), section.sheets())));
        sheets.extend(claims.clone().map(|claims| (None, vec![claims])));
        folder.write_file("report.tex", latex::file(&sheets))?;
    }
    if options.formats.contains(&Format::Html) {
        let content = html::Content {
            rows,
            all: &all,
            panels: &panels,
            breakdowns: &breakdowns,
            sections: &sections,
            styles: &styles,
            further: &within.iter().chain(&claims).collect::<Vec<_>>(),
        };
        folder.write_file("report.html", html::file(&content)?)?;
    }
    let terminal =
        summary::text(rows, &panels, &options.within) + &retention::terminal(&all) + &paper::terminal(rows, &all);
    Ok(Written { files: folder.files, terminal })
}

struct Folder<'a> {
    out: &'a Path,
    formats: &'a [Format],
    files: Vec<PathBuf>,
}

impl Folder<'_> {
    /// The links of every panel, and of the figures that show several.
    fn write_figures(
        &mut self,
        panels: &[Panel],
        breakdowns: &[Breakdown<'_>],
        styles: &SeriesStyles,
    ) -> Result<(Vec<Vec<Link>>, Vec<Link>)> {
        let figures = curve::figures(panels, styles);
        let mut overview = Vec::new();
        for figure in &figures.combined {
            overview.extend(self.write_figure(figure)?);
        }
        let mut links = Vec::new();
        let settings: Vec<Setting> = panels.iter().map(|panel| panel.setting.clone()).collect();
        for (panel, figure) in panels.iter().zip(&figures.single) {
            let mut own = Vec::new();
            if let Some(figure) = figure {
                own.extend(self.write_figure(figure)?);
                for parts in breakdowns.iter().filter(|parts| parts.is_of(panel)) {
                    if let Some(figure) = curve::of_parts(parts, figure, panel.setting.title(&settings)) {
                        own.extend(self.write_figure(&figure)?);
                    }
                }
            }
            links.push(own);
        }
        Ok((links, overview))
    }

    fn write_figure(&mut self, figure: &Figure) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        for (name, charts) in &figure.drawings {
            let path = self.write_scene(&format!("{}-{name}", figure.stem), &figure.scene(charts))?;
            links.extend(path.map(|path| Link { title: format!("{}, {name} axis", figure.title), path }));
        }
        Ok(links)
    }

    /// The sections on what is kept, their figures drawn.
    fn write_retention(&mut self, sections: &[retention::Section<'_>]) -> Result<String> {
        let mut text = String::new();
        for section in sections {
            let mut links = Vec::new();
            for (stem, scene) in section.figures() {
                let path = self.write_scene(&stem, &scene)?;
                links.extend(path.map(|path| Link { title: scene.title.clone(), path }));
            }
            text.push_str(&section.markdown(&links));
        }
        Ok(text)
    }

    /// A figure in the formats asked for; the path to link.
    fn write_scene(&mut self, stem: &str, scene: &Scene) -> Result<Option<String>> {
        // The SVG is linked where both are written: it stays sharp.
        let mut link = None;
        let stem = format!("figures/{stem}");
        if self.formats.contains(&Format::Pdf) {
            self.write_file(&format!("{stem}.pdf"), scene.pdf()?)?;
        }
        if self.formats.contains(&Format::Png) {
            let file = format!("{stem}.png");
            let png = scene.png().with_context(|| format!("drawing {file}"))?;
            self.write_file(&file, png)?;
            link = Some(file);
        }
        if self.formats.contains(&Format::Svg) {
            let file = format!("{stem}.svg");
            let svg = scene.svg();
            self.write_file(&file, svg)?;
            link = Some(file);
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
    use super::super::fixture::{Sample, TABLE_3, recall, rows, table_3};
    use super::*;

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
        for stem in ["perplexity-all", "perplexity-llama-2-7b-hf-pg19", "perplexity-yi-6b-pg19"] {
            for end in ["linear.svg", "linear.png", "log.svg", "log.png"] {
                assert!(names.contains(&format!("figures/{stem}-{end}")), "{stem}-{end}: {names:?}");
            }
        }
        let report = read(&out.join("report.md"));
        assert!(
            report.contains("| tova | **9.5") && report.contains("(figures/perplexity-all-linear.svg)"),
            "{report}"
        );
        // Header, per model one full line and 8 policies at 7 sizes, two metrics without a full line, and recall whole and in
        // eight octaves.
        assert_eq!(
            read(&out.join("report.csv")).lines().count(),
            1 + 3 * (1 + 8 * 7) + 2 * 8 * 7 + 9 * (1 + 5 * 7)
        );
        // Recall by distance has a figure of its own, and chance a line but no table.
        let by_distance = "figures/recall-llama-2-7b-hf-embedded-by-distance-linear";
        for end in ["svg", "png"] {
            assert!(names.contains(&format!("{by_distance}.{end}")), "{names:?}");
        }
        let svg = read(&out.join(format!("{by_distance}.svg")));
        for word in ["cache size 64", "cache size 2048", "distance to the telling (tokens)", "chance", "embedded"]
        {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert!(!svg.contains("cache size 4096") && !report.contains("recall_chance"), "{svg}");
        assert!(report.contains("#### Recall (%) by distance"), "{report}");
        // A share has no logarithmic axis.
        assert!(
            names.iter().any(|name| name.starts_with("figures/top1-agreement") && name.ends_with("linear.svg"))
        );
        assert!(!names.iter().any(|name| name.starts_with("figures/top1-agreement") && name.contains("-log")));

        let svg = read(&out.join("figures/perplexity-llama-2-7b-hf-pg19-linear.svg"));
        for (policy, _) in TABLE_3 {
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
    fn the_full_cache_is_a_dashed_line_and_names_are_escaped() {
        let folder = tempfile::tempdir().unwrap();
        let sample = [Sample { sample: "a", cluster: "a", value: 1.0, weight: 1.0 }];
        let mut all = rows("full", None, &sample);
        let worse = [Sample { value: 1.5, ..sample[0] }];
        all.extend(rows("<b>&\"mine\"", Some(64), &worse));
        all.extend(rows("<b>&\"mine\"", Some(128), &sample));
        let all: Vec<Row> = all.into_iter().map(|row| Row { model: "../../x\u{1}<y>".into(), ..row }).collect();
        let written =
            write(&all, &Options { out: folder.path().into(), formats: vec![Format::Svg], within: vec![] })
                .unwrap();
        assert_eq!(written.files.len(), 2);
        for file in &written.files {
            assert_eq!(
                file.parent(),
                Some(folder.path().join("figures").as_path()),
                "nothing is written elsewhere"
            );
        }
        let svg = read(&written.files[0]);
        assert!(svg.contains("&lt;b&gt;&amp;") && !svg.contains("<b>") && !svg.contains('\u{1}'), "{svg}");
        // Every tag closes.
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        let full: Vec<&str> = svg.lines().filter(|line| line.contains("class=\"reference full\"")).collect();
        assert!(full[0].contains("#000000") && full[0].contains("stroke-dasharray"), "{full:?}");
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
        let sample = [Sample { sample: "a", cluster: "a", value: 1.0, weight: 1.0 }];
        let written = write(&rows("full", None, &sample), &Options::everything(folder.path())).unwrap();
        assert_eq!(
            written.files,
            ["report.csv", "pairs.csv", "report.md", "summary.md", "report.tex", "report.html"]
                .map(|file| folder.path().join(file))
        );
        assert!(written.terminal.contains("2.72"), "{}", written.terminal);
    }
}

//! `summary.md`: the short answer as Markdown, to be posted with a pull request, without figures and details.

use crate::format::capital;
use crate::report::document::table::Sheet;
use crate::report::escape;
use crate::report::format::markdown;
use crate::report::sections::sheets;
use crate::report::write_report::Report;

/// The whole file: what was asked, of each key's first metric the difference to the full cache, and how much cache is enough.
pub(crate) fn file(report: &Report<'_>) -> String {
    let mut file = format!("# {}\n\n", escape::markdown(&report.asked.title()));
    markdown::push_asked(&mut file, &report.asked);
    for of_key in report.panels.chunk_by(|a, b| a.key == b.key) {
        let [panel, ..] = of_key else { continue };
        let Some(shown) = sheets::headline(panel).into_iter().next() else { continue };
        let title = format!("{} \u{B7} {}", capital(&shown.title), panel.key.title(&report.keys));
        markdown::push_sheet(&mut file, "##", &Sheet { title, ..shown });
        markdown::push_outcomes(&mut file, panel, report.reference.as_deref());
    }
    let enough = report.enough.iter().chain(report.enough_of.iter().flatten().filter(|_| report.enough.is_none()));
    enough.for_each(|sheet| markdown::push_sheet(&mut file, "##", sheet));
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{cell, table_3, with_report};

    #[test]
    fn the_short_answer_has_no_figures_and_no_details() {
        let file = with_report(&table_3("meta-llama/Llama-2-7b-hf", 1.0, 100), file);
        for expected in [
            "| within | truncate |",
            "- **Cache sizes:** 64, 128, 256, 512, 1024, 2048, 4096",
            "| 0.0544 nats (0.40 PPL here) |",
            "**512 (1/8)**",
            "## Perplexity: excess over full (nats/token) · Llama-2-7b-hf · pg19",
            "100 samples from 100 clusters",
            "Full cache: perplexity 7.16.",
            // ln(9.53 / 7.16), the paper's TOVA with 64 entries.
            "**0.286**",
            "- window against truncate",
        ] {
            assert!(file.contains(expected), "{expected}: {file}");
        }
        assert!(!file.contains("![") && file.lines().count() < 60, "{file}");
    }

    #[test]
    fn without_a_full_cache_there_are_values() {
        let file = with_report(&cell("nll", "mine", Some(8), &[("a", 1.0, 1.0)]), file);
        for expected in ["## Perplexity · Llama-2-7b-hf", "| mine | 2.72 |", "- no intervals"] {
            assert!(file.contains(expected), "{expected}: {file}");
        }
    }
}

//! The report's tables for a paper: sheets as booktabs, in one file that another document inputs.
//!
//! Every name is escaped, and characters that pdfLaTeX lacks are shown by code point, so that the file compiles with
//! pdfLaTeX, LuaLaTeX and XeLaTeX (Tectonic) whatever names contain.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Files, Sources};
use crate::format::capital;
use crate::report::document::{Document, Entry, Table};
use crate::report::escape;

/// What stands before the tables: how to use the file, and its own few macros, which a document may define before.
const HEADER: &str = r##"% Tables of tova-bench, made from its rows; running `tova-bench report` again writes this file anew.
%
% This is not a document: \input it from one that has in its preamble
%   \usepackage[T1]{fontenc}  % pdfLaTeX only
%   \usepackage{booktabs,graphicx,xcolor}
% Every table has a \label to \ref to, named in the comment above it. Between groups of tables stands \tovabenchpause,
% which ends the page: so many floats in a row would be too many for LaTeX. Define it as empty to have none of that,
% \tovabenchspread to show intervals otherwise, or not at all,
% and \tovabenchworse for numbers that are shown to be worse than the best of their column.
\providecommand{\tovabenchpause}{\clearpage}
\providecommand{\tovabenchspread}[1]{{\scriptsize\color{gray}#1}}
\providecommand{\tovabenchworse}[1]{{\color{gray}#1}}
% A table wider than the text is made as narrow.
\providecommand{\tovabenchfit}[1]{\sbox0{#1}\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi}
"##;

/// Tables between two ends of a page.
const TOGETHER: usize = 6;

pub(super) fn files(sources: &Sources<'_>) -> Result<Files> {
    Ok(vec![("report.tex", render(sources.document))])
}

/// The tables of a document, those of a setting together.
pub(super) fn render(document: &Document) -> String {
    let mut file = HEADER.to_owned();
    let mut labels: BTreeMap<String, usize> = BTreeMap::new();
    for of_setting in document.tables().chunk_by(|(a, _), (b, _)| a == b) {
        for together in of_setting.chunks(TOGETHER) {
            for (setting, table) in together {
                // How many claims hold is no part of a name.
                let own = if table.has_sentences { table.title.split(':').next() } else { None };
                let own = own.unwrap_or(&table.title);
                let words = setting.iter().flat_map(|title| title.split(" \u{B7} ")).chain([own]);
                let slug = words.map(escape::slug).collect::<Vec<_>>().join("-");
                let seen = labels.entry(slug.clone()).or_default();
                *seen += 1;
                let label = if *seen == 1 { format!("tab:{slug}") } else { format!("tab:{slug}-{seen}") };
                file.push_str(&float(table, *setting, &label));
            }
            file.push_str("\n\\tovabenchpause\n");
        }
    }
    file
}

fn float(table: &Table, title: Option<&str>, label: &str) -> String {
    let own = escape::latex(&capital(&table.title));
    let short = title.map_or_else(|| own.clone(), |title| format!("{own} ({})", escape::latex(title)));
    let mut long = short.clone();
    if !table.about.is_empty() {
        long.push_str(&format!(". {}", escape::latex(&table.about)));
    }
    let mut float = format!(
        "\n% {label}\n\\begin{{table}}[htbp]\n  \\centering\\small\n  \\caption[{short}]{{{long}}}\n  \
         \\label{{{label}}}\n  \\par\\smallskip\n"
    );
    if !table.grid.lines.is_empty() {
        let columns = table.grid.columns.iter().map(|column| escape::latex(&column.name));
        let (first, others) = match table.has_sentences {
            true => ("p{.3\\linewidth}", "p{.2\\linewidth}"),
            false => ("l", "r"),
        };
        let head: Vec<String> = std::iter::once(escape::latex(table.corner)).chain(columns).collect();
        float.push_str(&format!(
            "  \\tovabenchfit{{%\n  \\begin{{tabular}}{{@{{}}{first}*{{{}}}{{{others}}}@{{}}}}\n    \\toprule\n    {} \\\\\n    \
             \\midrule\n",
            table.grid.columns.len(),
            head.join(" & ")
        ));
        for line in &table.grid.lines {
            let numbers: Vec<String> =
                line.cells.iter().map(|cell| cell.as_ref().map_or_else(|| "--".to_owned(), number)).collect();
            // Intervals are below the numbers: beside them, seven sizes would be wider than a page.
            let spread = |cell: &Option<Entry>| {
                let spread = cell.as_ref().and_then(|entry| entry.spread.as_deref()).map(escape::latex);
                spread.map_or_else(String::new, |spread| format!("\\tovabenchspread{{{spread}}}"))
            };
            let spreads: Vec<String> = line.cells.iter().map(spread).collect();
            let has_spreads = spreads.iter().any(|spread| !spread.is_empty());
            let closer = if has_spreads { "[-0.7ex]" } else { "" };
            let name = escape::latex(&line.name);
            float.push_str(&format!("    {name} & {} \\\\{closer}\n", numbers.join(" & ")));
            if has_spreads {
                float.push_str(&format!("     & {} \\\\\n", spreads.join(" & ")));
            }
        }
        float.push_str("    \\bottomrule\n  \\end{tabular}}\n");
    }
    for note in &table.notes {
        float.push_str(&format!("  \\par\\smallskip{{\\footnotesize {}\\par}}\n", escape::latex(note)));
    }
    float + "\\end{table}\n"
}

fn number(entry: &Entry) -> String {
    let shown = signed(&entry.number);
    let shown = if entry.worse { format!("\\tovabenchworse{{{shown}}}") } else { shown };
    if entry.partial { shown + &escape::latex("†") } else { shown }
}

/// LaTeX distinguishes a minus from a hyphen.
fn signed(number: &str) -> String {
    let digits = number.strip_prefix('-').filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()));
    digits.map_or_else(|| escape::latex(number), |digits| format!("\\ensuremath{{-}}{}", escape::latex(digits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::{cell, changed, documents, table_3};

    fn of(rows: &[Row]) -> String {
        render(&documents(rows)[0])
    }

    #[test]
    fn the_paper_s_table_as_booktabs() {
        let file = of(&table_3("meta-llama/Llama-2-7b-hf", 1.0, 20));
        assert!(file.contains("    tova & 9.53 & 8.32 & ") && file.contains("\\tovabenchworse{4812}"), "{file}");
        insta::assert_snapshot!(file);
        // It is to be input: it begins no document, and its environments are balanced.
        assert!(!file.contains("documentclass") && !file.contains("begin{document}"));
        for name in ["table", "tabular"] {
            let count = |what: &str| file.matches(&format!("\\{what}{{{name}}}")).count();
            assert!(count("begin") >= 3 && count("begin") == count("end"), "{file}");
        }
        // Every line of a table has as many cells as its head.
        for table in file.split("\\begin{tabular}").skip(1) {
            let (table, _) = table.split_once("\\end{tabular}").unwrap();
            let lines = table.lines().filter(|line| line.contains(" \\\\") && line.starts_with("    "));
            let cells: Vec<usize> = lines.map(|line| line.matches(" & ").count()).collect();
            assert!(cells.len() > 1 && cells.iter().all(|count| *count == cells[0] && *count > 0), "{table}");
        }
    }

    #[test]
    fn labels_are_unique_and_names_escaped() {
        let of_model = |model: &str| {
            changed(cell("nll", "[50%]_{x}", Some(64), &[("a", 1.0, 1.0)]), |row| row.model = model.into())
        };
        let file = of(&[of_model("m"), of_model("M")].concat());
        assert!(
            file.contains("\\label{tab:m-pg19-perplexity}") && file.contains("\\label{tab:m-pg19-perplexity-2}"),
            "{file}"
        );
        assert!(file.contains("    {[}50\\%{]}\\_\\{x\\} & 2.72 \\\\"), "{file}");
    }
}

//! The claims of the paper about its figures and tables, and how each is measured from rows.
//!
//! A statement says what the paper found and, in brackets, the limit that is checked where that is another number; docs/paper.md
//! says why. Claims about TOVA are measured of the policy `tova` alone, except that texts far longer than the model was trained
//! on are read as the paper does, with squeezed positions.

use super::claim::{Checked, Claim, Limit, claim, table};
use super::exhibit::{F1, LONG, PG19, QASPER, RETENTION, ROUGE, SPEED, SQUALITY, Sweeps};
use super::long_texts::{least_gain, of_long_texts, rise};
use super::measure::{
    baselines, first_token, is_llama_2, near_full, of_panels, preference, recent, speed, story_length,
};
use super::pairwise::{BASELINES, BASELINES_OF_QUESTIONS, BY_HEAD, better_than};
use super::{Evidence, TOVA};
use crate::report::Table;
use Limit::{Above, AtLeast, AtMost, Within};

const PERPLEXITY: (&str, &str) = ("perplexity", "nll");

const STORY: Sweeps = ("story", &["configs/paper/story.yaml"]);
const JUDGED: Sweeps = ("judge", &["configs/paper/story.yaml and `tova-bench judge`"]);

/// A distance from the perplexity of the paper's full cache, 7.16, in nats.
pub(super) fn nats(perplexity: f64) -> f64 {
    ((7.16 + perplexity) / 7.16).ln()
}

/// All claims, in the order of the paper.
pub(super) static CLAIMS: [Claim; 15] = [
    // The text on Figure 3, for all three models.
    claim(
        PG19,
        "With a cache of 1/8 of the text TOVA is within 0.4 perplexity of the full cache (limit: 0.054 nats, which is 0.4 at \
         the paper's 7.16).",
        |rows| of_panels(rows, PERPLEXITY, |panel| near_full(rows, panel, 8, AtMost(nats(0.4)))),
    ),
    claim(
        PG19,
        "At every cache size TOVA's perplexity is lower than that of the cut text, Window, Window+4 and H2O.",
        |rows| of_panels(rows, PERPLEXITY, |panel| better_than(panel, TOVA, &BASELINES)),
    ),
    claim(
        PG19,
        "With a cache of 1/8 of the text none of the cut text, Window, Window+4 and H2O is within 0.4 perplexity of the full \
         cache (limit: 0.054 nats; the paper's are 0.077 to 5.7 above it).",
        |rows| of_panels(rows, PERPLEXITY, |panel| baselines(panel, 8, Above(nats(0.4)))),
    ),
    claim(
        PG19,
        "TOVA with one decision per layer is better than with one per head at every cache size.",
        |rows| of_panels(rows, PERPLEXITY, |panel| better_than(panel, TOVA, &BY_HEAD)),
    ),
    // The text on Figure 4.
    claim(
        SQUALITY,
        "On SQuALITY TOVA's ROUGE is within 1 point of the full cache's (limit: 1.5 points below it) with 1/8 of the text for \
         LLaMA-2 and 1/4 for other models.",
        |rows| {
            let part = |panel: &_| if is_llama_2(panel) { 8 } else { 4 };
            of_panels(rows, ROUGE, |panel| near_full(rows, panel, part(panel), AtMost(1.5)))
        },
    ),
    claim(
        SQUALITY,
        "On SQuALITY TOVA's ROUGE is higher than that of the cut text and of Window+4 at every cache size.",
        |rows| of_panels(rows, ROUGE, |panel| better_than(panel, TOVA, &BASELINES_OF_QUESTIONS)),
    ),
    // The text on Figure 5.
    claim(
        QASPER,
        "On QASPER TOVA's F1 is within 1 point of the full cache's (limit: 2 points below it) with 1/2 of the text.",
        |rows| of_panels(rows, F1, |panel| near_full(rows, panel, 2, AtMost(2.0))),
    ),
    claim(
        QASPER,
        "On QASPER TOVA's F1 is higher than that of the cut text and of Window+4 at every cache size.",
        |rows| of_panels(rows, F1, |panel| better_than(panel, TOVA, &BASELINES_OF_QUESTIONS)),
    ),
    // Section 7.2 and Figure 7, up to 70,000 tokens.
    claim(
        LONG,
        "Over a text far longer than those of training TOVA's perplexity of all tokens read rises by less than 0.5 (limit: \
         0.0675 nats, which is 0.5 at the paper's 7.16).",
        |rows| of_long_texts(rows, |text| rise(text, AtMost(nats(0.5)))),
    ),
    claim(LONG, "Over such a text TOVA's perplexity of all tokens read stays below Window+4's.", |rows| {
        of_long_texts(rows, |text| least_gain(text, Above(0.0)))
    }),
    // Figure 6.
    claim(
        JUDGED,
        "With a cache of 1/4 of the length a judge prefers TOVA's stories about as often as the full cache's (5 % and 6 % in \
         the paper; limit: 5 points apart).",
        |rows| preference(rows, Within(-5.0, 5.0)),
    ),
    claim(
        STORY,
        "With a cache of 1/4 of the length TOVA's stories are as long as the full cache's (1,566 tokens in the paper; limit: \
         3 % apart).",
        |rows| story_length(rows, Within(-3.0, 3.0)),
    ),
    // Table 1.
    claim(
        SPEED,
        "With a cache of 1/8 of the length TOVA decodes 4.8 times as many tokens per second as the full cache, each in its \
         largest batch (limit: 4 times).",
        |rows| speed(rows, AtLeast(4.0)),
    ),
    // The text on Figure 8.
    claim(
        RETENTION,
        "Of the tokens that TOVA keeps, 73 to 76 % are recent: a window of the same size would keep them too (limit: 70 to \
         80 %).",
        |rows| recent(rows, Within(70.0, 80.0)),
    ),
    // Figure 9.
    claim(
        RETENTION,
        "TOVA keeps the first token to the end of the text at every cache size (limit: for 90 % of the steps).",
        |rows| first_token(rows, AtLeast(90.0)),
    ),
];

/// All claims, with what was measured of each.
pub(super) fn check(rows: &Evidence<'_>) -> Vec<Checked> {
    CLAIMS.iter().map(|claim| Checked { claim, findings: (claim.measure)(rows) }).collect()
}

/// The table of claims for a report; `None` where none was measured.
pub(super) fn measured(rows: &Evidence<'_>) -> Option<Table> {
    let claims = check(rows);
    let is_measured = claims.iter().any(|claim| !claim.findings.is_empty());
    is_measured.then(|| table(&claims))
}

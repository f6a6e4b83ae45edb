//! What the paper claims of its figures and tables, and how each claim is measured from rows.
//!
//! Where the paper states a claim without a number, the threshold is an interpretation; the table of claims shows what the
//! paper's own tables give.

use super::TOVA;
use super::claim::{Claim, Threshold, Unit, claim};
use super::exhibit::{F1, LONG, PG19, QASPER, RETENTION, ROUGE, SPEED, SQUALITY, Sweeps};
use super::measure::{
    BASELINES, BEST_BASELINE, best_baseline, first_token, gap, is_llama_2, least_lead, lifetimes,
    nearest_baseline, of_long_texts, of_panels, preference, recent, rise, smallest_lead, story_length, timed,
};
use super::numbers::RECENT_SHARE;
use Threshold::{Above, AtLeast, AtMost, Below, Within};

const PERPLEXITY: (&str, &str) = ("perplexity", "nll");
/// The baselines of SQuALITY and QASPER.
const OTHERS: [&str; 2] = ["truncate", BEST_BASELINE];

const DIFFERENCE: Unit = Unit { digits: 2, suffix: "", signed: true };
const NUMBER: Unit = Unit { digits: 2, suffix: "", signed: false };
const PERCENT: Unit = Unit { digits: 1, suffix: " %", signed: false };
const CHANGE: Unit = Unit { digits: 1, suffix: " %", signed: true };

const STORY: Sweeps = ("story", &["configs/story.yaml"]);
const JUDGED: Sweeps = ("judge", &["configs/story.yaml and `tova-bench judge`"]);

/// All claims, in the order of the paper.
pub(super) static CLAIMS: [Claim; 18] = [
    // The text on Figure 3, for all three models.
    claim(PG19, "TOVA is within 0.4 perplexity of full at 1/8 of the length", AtMost(0.4), DIFFERENCE, |rows| {
        of_panels(rows, PERPLEXITY, |panel| gap(panel, TOVA, 8))
    }),
    claim(PG19, "TOVA's perplexity is below every baseline's at every size", Above(0.0), DIFFERENCE, |rows| {
        of_panels(rows, PERPLEXITY, |panel| smallest_lead(panel, TOVA, &BASELINES))
    }),
    claim(
        PG19,
        "no baseline is within 0.4 perplexity of full below 1/2 of the length",
        Above(0.4),
        DIFFERENCE,
        |rows| of_panels(rows, PERPLEXITY, nearest_baseline),
    ),
    claim(PG19, "Window+4 is the best baseline at most sizes", Above(50.0), PERCENT, |rows| {
        of_panels(rows, PERPLEXITY, best_baseline)
    }),
    claim(PG19, "TOVA by layer is better than by head at every size", Above(0.0), DIFFERENCE, |rows| {
        of_panels(rows, PERPLEXITY, |panel| smallest_lead(panel, TOVA, &["tova-head"]))
    }),
    // The text on Figure 4.
    claim(
        SQUALITY,
        "TOVA is within 1 ROUGE of full at 1/8 (LLaMA-2) or 1/4 (others)",
        AtMost(1.0),
        DIFFERENCE,
        |rows| of_panels(rows, ROUGE, |panel| gap(panel, TOVA, if is_llama_2(&panel.key) { 8 } else { 4 })),
    ),
    claim(SQUALITY, "TOVA's ROUGE is above every baseline's at every size", Above(0.0), DIFFERENCE, |rows| {
        of_panels(rows, ROUGE, |panel| smallest_lead(panel, TOVA, &OTHERS))
    }),
    // The text on Figure 5.
    claim(QASPER, "TOVA is within 1 F1 of full at 1/2 of the length", AtMost(1.0), DIFFERENCE, |rows| {
        of_panels(rows, F1, |panel| gap(panel, TOVA, 2))
    }),
    claim(QASPER, "TOVA's F1 is above every baseline's at every size", Above(0.0), DIFFERENCE, |rows| {
        of_panels(rows, F1, |panel| smallest_lead(panel, TOVA, &OTHERS))
    }),
    // Section 7.2 and Figure 7, up to 70,000 tokens.
    claim(
        LONG,
        "TOVA's running perplexity rises by less than 0.5 over a long text",
        Below(0.5),
        DIFFERENCE,
        |rows| of_long_texts(rows, rise),
    ),
    claim(LONG, "TOVA's running perplexity is below Window+4's throughout", Above(0.0), DIFFERENCE, |rows| {
        of_long_texts(rows, least_lead)
    }),
    // Figure 6: 5 % wins and 6 % losses at 1,024.
    claim(
        JUDGED,
        "a judge prefers full's stories hardly more often than TOVA's at 1/4",
        AtLeast(-1.0),
        CHANGE,
        preference,
    ),
    claim(STORY, "stories at 1/4 are as long as full's, but for 1 %", AtLeast(-1.0), CHANGE, story_length),
    // Table 1.
    claim(SPEED, "TOVA at 1/8 decodes 4.8 times as many tokens per second", AtLeast(4.8), NUMBER, |rows| {
        timed(rows, |(speed, _)| speed)
    }),
    claim(
        SPEED,
        "a cache of 1/8 takes about 1/8 of the memory",
        // 0.28 of 2.18 GB.
        AtMost(100.0 * 0.28 / 2.18),
        PERCENT,
        |rows| timed(rows, |(_, memory)| memory.map(|share| 100.0 * share)),
    ),
    // Table 5's mean over all tokens.
    claim(
        RETENTION,
        "mean steps kept are the mean of min(t, k + 1), to half a step",
        AtMost(0.5),
        NUMBER,
        lifetimes,
    ),
    // The text on Figure 8.
    claim(
        RETENTION,
        "of the tokens TOVA keeps, 73 to 76 % are recent",
        Within(RECENT_SHARE.0, RECENT_SHARE.1),
        PERCENT,
        recent,
    ),
    claim(
        RETENTION,
        "TOVA keeps the first token for 95 % of the steps at every size",
        AtLeast(95.0),
        PERCENT,
        first_token,
    ),
];

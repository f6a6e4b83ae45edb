//! What the paper claims of its figures and tables, and how each claim is measured from rows.
//!
//! Where the paper states a claim without a number, the limit is an interpretation; the table of claims shows what the
//! paper's own tables give. Claims about TOVA are measured of the policy `tova` alone, except that texts far longer than the
//! model was trained on are read as the paper does, with squeezed positions.

use super::TOVA;
use super::claim::{Claim, Threshold, claim};
use super::exhibit::{F1, LONG, PG19, QASPER, RETENTION, ROUGE, SPEED, SQUALITY, Sweeps};
use super::measure::{
    BASELINES, BEST_BASELINE, best_baseline, first_token, gap, is_llama_2, least_lead, lifetimes, memory,
    nearest_baseline, of_long_texts, of_panels, preference, recent, rise, smallest_lead, speed, story_length,
};
use super::numbers::RECENT_SHARE;
use Threshold::{Above, AtLeast, AtMost, Below, Within};

const PERPLEXITY: (&str, &str) = ("perplexity", "nll");
/// The baselines of SQuALITY and QASPER.
const OTHERS: [&str; 2] = ["truncate", BEST_BASELINE];

const STORY: Sweeps = ("story", &["configs/story.yaml"]);
const JUDGED: Sweeps = ("judge", &["configs/story.yaml and `tova-bench judge`"]);

/// All claims, in the order of the paper.
pub(super) static CLAIMS: [Claim; 18] = [
    // The text on Figure 3, for all three models.
    claim(
        PG19,
        "With a cache of 1/8 of the text TOVA's perplexity is at most 0.4 above the full cache's.",
        AtMost(0.4),
        |rows| of_panels(rows, PERPLEXITY, |panel| gap(panel, TOVA, 8)),
    ),
    claim(
        PG19,
        "At every cache size TOVA's perplexity is lower than that of the cut text, of Window and of H2O.",
        Above(0.0),
        |rows| of_panels(rows, PERPLEXITY, |panel| smallest_lead(panel, TOVA, &BASELINES)),
    ),
    claim(
        PG19,
        "With less than 1/2 of the text neither the cut text nor Window nor H2O comes within 0.4 perplexity of full.",
        Above(0.4),
        |rows| of_panels(rows, PERPLEXITY, nearest_baseline),
    ),
    claim(
        PG19,
        "Apart from TOVA, a window that keeps the first 4 tokens (Window+4) is best at most cache sizes.",
        Above(50.0),
        |rows| of_panels(rows, PERPLEXITY, best_baseline),
    ),
    claim(
        PG19,
        "TOVA with one decision per layer is better than with one per head at every cache size.",
        Above(0.0),
        |rows| of_panels(rows, PERPLEXITY, |panel| smallest_lead(panel, TOVA, &["tova-head"])),
    ),
    // The text on Figure 4.
    claim(
        SQUALITY,
        "On SQuALITY TOVA's ROUGE is at most 1 below the full cache's with 1/8 of the text (LLaMA-2) or 1/4 (others).",
        AtMost(1.0),
        |rows| of_panels(rows, ROUGE, |panel| gap(panel, TOVA, if is_llama_2(&panel.key) { 8 } else { 4 })),
    ),
    claim(
        SQUALITY,
        "On SQuALITY TOVA's ROUGE is higher than that of the cut text and of Window+4 at every cache size.",
        Above(0.0),
        |rows| of_panels(rows, ROUGE, |panel| smallest_lead(panel, TOVA, &OTHERS)),
    ),
    // The text on Figure 5.
    claim(
        QASPER,
        "On QASPER TOVA's F1 is at most 1 below the full cache's with 1/2 of the text.",
        AtMost(1.0),
        |rows| of_panels(rows, F1, |panel| gap(panel, TOVA, 2)),
    ),
    claim(
        QASPER,
        "On QASPER TOVA's F1 is higher than that of the cut text and of Window+4 at every cache size.",
        Above(0.0),
        |rows| of_panels(rows, F1, |panel| smallest_lead(panel, TOVA, &OTHERS)),
    ),
    // Section 7.2 and Figure 7, up to 70,000 tokens.
    claim(
        LONG,
        "Over a text far longer than those of training TOVA's perplexity of all tokens read rises by less than 0.5.",
        Below(0.5),
        |rows| of_long_texts(rows, rise),
    ),
    claim(
        LONG,
        "Over such a text TOVA's perplexity of all tokens read stays below Window+4's.",
        Above(0.0),
        |rows| of_long_texts(rows, least_lead),
    ),
    // Figure 6: 5 % wins and 6 % losses at 1,024.
    claim(
        JUDGED,
        "With a cache of 1/4 of the length a judge prefers the full cache's story at most 1 % more often than TOVA's.",
        AtLeast(-1.0),
        preference,
    ),
    claim(
        STORY,
        "With a cache of 1/4 of the length TOVA's stories are at most 1 % shorter than the full cache's.",
        AtLeast(-1.0),
        story_length,
    ),
    // Table 1.
    claim(
        SPEED,
        "With a cache of 1/8 of the length TOVA decodes at least 4.8 times as many tokens per second as the full cache.",
        AtLeast(4.8),
        speed,
    ),
    claim(
        SPEED,
        "A cache of 1/8 of the length takes at most 12.8 % of the full cache's memory.",
        // 0.28 of 2.18 GB.
        AtMost(100.0 * 0.28 / 2.18),
        memory,
    ),
    // Table 5's mean over all tokens.
    claim(
        RETENTION,
        "With a cache of k entries a token is kept, in the mean, for as many steps as counting gives: the mean of \
         min(t, k + 1) over all steps t, to half a step.",
        AtMost(0.5),
        lifetimes,
    ),
    // The text on Figure 8.
    claim(
        RETENTION,
        "Of the tokens that TOVA keeps, 73 to 76 % are recent: a window of the same size would keep them too.",
        Within(RECENT_SHARE.0, RECENT_SHARE.1),
        recent,
    ),
    claim(
        RETENTION,
        "TOVA keeps the first token of the text for at least 95 % of the steps, at every cache size.",
        AtLeast(95.0),
        first_token,
    ),
];

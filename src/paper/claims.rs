//! What the paper claims of its figures and tables, and how each claim is measured from rows.
//!
//! Where the paper states a claim without a number, the threshold is an interpretation; the table of claims shows what the
//! paper's own tables give.

use super::claim::{Claim, Threshold, Unit};
use super::measure::{
    BASELINES, BEST_BASELINE, Observation, Table3, best_baseline, first_token, gap, identity, is_llama_2,
    least_lead, lifetimes, nearest_baseline, of_long_texts, of_panels, preference, recent, rise, smallest_lead,
    story_length, timed,
};
use super::{TOVA, numbers};
use Threshold::{Above, AtLeast, AtMost, Below, Within};

const BY_HEAD: &str = "tova-head";
/// The task and metric of a claim.
const PERPLEXITY: (&str, &str) = ("perplexity", "nll");
const ROUGE: (&str, &str) = ("squality", "rouge");
const F1: (&str, &str) = ("qasper", "f1");
const OTHERS: [&str; 2] = ["truncate", BEST_BASELINE];

const DIFFERENCE: Unit = Unit { digits: 2, suffix: "", signed: true };
const NUMBER: Unit = Unit { digits: 2, suffix: "", signed: false };
const PERCENT: Unit = Unit { digits: 1, suffix: " %", signed: false };
const CHANGE: Unit = Unit { digits: 1, suffix: " %", signed: true };

const PG19: &str = "configs/pg19-llama2.yaml";
const SQUALITY: &str = "configs/squality-instruct.yaml";
const QASPER: &str = "configs/qasper-instruct.yaml";
const LONG: &str = "configs/extrapolation.yaml";
const STORY: &str = "configs/story.yaml";
const JUDGED: &str = "configs/story.yaml and `tova-bench judge`";
const SPEED: &str = "configs/table1.yaml";
const RETENTION: &str = "configs/retention.yaml";

/// All claims, in the order of the paper.
pub(super) fn all() -> Vec<Claim> {
    [of_perplexity(), of_questions(), of_long_texts_and_stories(), of_speed_and_retention()]
        .into_iter()
        .flatten()
        .collect()
}

fn value(observed: Option<Observation>) -> Option<f64> {
    observed.map(|observed| observed.estimate.value)
}

fn of_perplexity() -> Vec<Claim> {
    let near = numbers::PERPLEXITY_GAP;
    vec![
        Claim::new(
            PG19,
            format!("TOVA is within {near} perplexity of full at 1/8 of the length"),
            (AtMost(near), DIFFERENCE),
            |rows| of_panels(rows, PERPLEXITY, |panel| gap(panel, TOVA, 8)),
        )
        .printed(value(gap(&Table3, TOVA, 8))),
        Claim::new(
            PG19,
            "TOVA's perplexity is below every baseline's at every size",
            (Above(0.0), DIFFERENCE),
            |rows| of_panels(rows, PERPLEXITY, |panel| smallest_lead(panel, TOVA, &BASELINES)),
        )
        .printed(value(smallest_lead(&Table3, TOVA, &BASELINES))),
        Claim::new(
            PG19,
            format!("no baseline is within {near} perplexity of full below 1/2 of the length"),
            (Above(near), DIFFERENCE),
            |rows| of_panels(rows, PERPLEXITY, |panel| nearest_baseline(panel)),
        )
        .printed(value(nearest_baseline(&Table3))),
        Claim::new(PG19, "Window+4 is the best baseline at most sizes", (Above(50.0), PERCENT), |rows| {
            of_panels(rows, PERPLEXITY, |panel| best_baseline(panel))
        })
        .printed(value(best_baseline(&Table3))),
        Claim::new(PG19, "TOVA by layer is better than by head at every size", (Above(0.0), DIFFERENCE), |rows| {
            of_panels(rows, PERPLEXITY, |panel| smallest_lead(panel, TOVA, &[BY_HEAD]))
        })
        .printed(value(smallest_lead(&Table3, TOVA, &[BY_HEAD]))),
    ]
}

fn of_questions() -> Vec<Claim> {
    let (rouge, f1) = (numbers::ROUGE_GAP, numbers::F1_GAP);
    vec![
        Claim::new(
            SQUALITY,
            format!("TOVA is within {rouge} ROUGE of full at 1/8 (LLaMA-2) or 1/4 (others)"),
            (AtMost(rouge), DIFFERENCE),
            |rows| of_panels(rows, ROUGE, |panel| gap(panel, TOVA, if is_llama_2(&panel.key) { 8 } else { 4 })),
        ),
        Claim::new(
            SQUALITY,
            "TOVA's ROUGE is above every baseline's at every size",
            (Above(0.0), DIFFERENCE),
            |rows| of_panels(rows, ROUGE, |panel| smallest_lead(panel, TOVA, &OTHERS)),
        ),
        Claim::new(
            QASPER,
            format!("TOVA is within {f1} F1 of full at 1/2 of the length"),
            (AtMost(f1), DIFFERENCE),
            |rows| of_panels(rows, F1, |panel| gap(panel, TOVA, 2)),
        ),
        Claim::new(
            QASPER,
            "TOVA's F1 is above every baseline's at every size",
            (Above(0.0), DIFFERENCE),
            |rows| of_panels(rows, F1, |panel| smallest_lead(panel, TOVA, &OTHERS)),
        ),
    ]
}

fn of_long_texts_and_stories() -> Vec<Claim> {
    let most = numbers::EXTRAPOLATION_RISE;
    let quarter = numbers::LENGTH / 4;
    let judged = numbers::FIGURE_6.iter().find(|(size, _)| *size == quarter);
    let judged = judged.map(|(_, [win, _, loss])| win - loss);
    let tokens = |size| numbers::STORY_LENGTH.iter().find(|(known, _)| *known == size).map(|(_, tokens)| tokens);
    let shortened = tokens(Some(quarter)).zip(tokens(None)).map(|(own, full)| 100.0 * (own / full - 1.0));
    vec![
        Claim::new(
            LONG,
            format!("TOVA's running perplexity rises by less than {most} over a long text"),
            (Below(most), DIFFERENCE),
            |rows| of_long_texts(rows, rise),
        ),
        Claim::new(
            LONG,
            "TOVA's running perplexity is below Window+4's throughout",
            (Above(0.0), DIFFERENCE),
            |rows| of_long_texts(rows, least_lead),
        ),
        Claim::new(
            JUDGED,
            "a judge prefers full's stories hardly more often than TOVA's at 1/4",
            (AtLeast(judged.unwrap_or(0.0)), CHANGE),
            preference,
        )
        .printed(judged),
        Claim::new(
            STORY,
            "stories at 1/4 are as long as full's, but for 1 %",
            (AtLeast(-1.0), CHANGE),
            story_length,
        )
        .printed(shortened),
    ]
}

fn of_speed_and_retention() -> Vec<Claim> {
    let [.., full] = &numbers::TABLE_1;
    let eighth = numbers::TABLE_1.iter().find(|speed| speed.size == numbers::LENGTH / 8).unwrap_or(full);
    let memory = 100.0 * eighth.memory / full.memory;
    let deviation = numbers::TABLE_5_SIZES.into_iter().zip(numbers::TABLE_5[0].1);
    let deviation = deviation.map(|(size, steps)| (f64::from(steps) - identity(numbers::LENGTH, size)).abs());
    let (least, most) = numbers::RECENT_SHARE;
    vec![
        Claim::new(
            SPEED,
            format!("TOVA at 1/8 decodes {} times as many tokens per second", eighth.throughput),
            (AtLeast(eighth.throughput), NUMBER),
            |rows| timed(rows, |(speed, _)| speed),
        )
        .printed(Some(eighth.throughput)),
        Claim::new(SPEED, "a cache of 1/8 takes about 1/8 of the memory", (AtMost(memory), PERCENT), |rows| {
            timed(rows, |(_, memory)| memory.map(|share| 100.0 * share))
        })
        .printed(Some(memory)),
        Claim::new(
            RETENTION,
            "mean steps kept are the mean of min(t, k + 1), to half a step",
            (AtMost(0.5), NUMBER),
            lifetimes,
        )
        .printed(deviation.max_by(f64::total_cmp)),
        Claim::new(
            RETENTION,
            format!("of the tokens TOVA keeps, {least} to {most} % are recent"),
            (Within(least, most), PERCENT),
            recent,
        ),
        Claim::new(
            RETENTION,
            "TOVA keeps the first token for 95 % of the steps at every size",
            (AtLeast(95.0), PERCENT),
            first_token,
        ),
    ]
}

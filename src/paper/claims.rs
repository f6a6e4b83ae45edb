//! What the paper claims of its figures and tables, and how each claim is measured from rows.
//!
//! Where the paper states a claim without a number, the threshold is an interpretation; the table of claims shows what the
//! paper's own tables give.

use super::claim::{Claim, Finding, Observation, Threshold, Unit};
use super::measure::{
    BASELINES, BEST_BASELINE, best_baseline, first_token, gap, identity, is_llama_2, least_lead, lifetimes,
    nearest_baseline, of_long_texts, of_panels, preference, recent, rise, smallest_lead, story_length, table_3,
    timed,
};
use super::{Evidence, TOVA, numbers};
use crate::report::Panel;
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

/// All claims, in the order of the paper, measured.
pub(super) fn all(rows: &Evidence<'_>) -> Vec<Claim> {
    [of_perplexity(rows), of_questions(rows), of_long_texts_and_stories(rows), of_speed_and_retention(rows)]
        .concat()
}

/// A claim that the paper's tables give no number for.
fn claim(
    sweep: &'static str,
    statement: impl Into<String>,
    (threshold, unit): (Threshold, Unit),
    findings: Vec<Finding>,
) -> Claim {
    Claim { statement: statement.into(), threshold, unit, printed: None, sweep, findings }
}

fn of_perplexity(rows: &Evidence<'_>) -> Vec<Claim> {
    type Measure<'m> = &'m dyn Fn(&Panel) -> Option<Observation>;
    let near = numbers::PERPLEXITY_GAP;
    let table_3 = table_3();
    let measured = |statement: &str, threshold: (Threshold, Unit), measure: Measure<'_>| Claim {
        printed: measure(&table_3).map(|observed| observed.estimate.value),
        ..claim(PG19, statement, threshold, of_panels(rows, PERPLEXITY, measure))
    };
    vec![
        measured(
            &format!("TOVA is within {near} perplexity of full at 1/8 of the length"),
            (AtMost(near), DIFFERENCE),
            &|panel| gap(panel, TOVA, 8),
        ),
        measured(
            "TOVA's perplexity is below every baseline's at every size",
            (Above(0.0), DIFFERENCE),
            &|panel| smallest_lead(panel, TOVA, &BASELINES),
        ),
        measured(
            &format!("no baseline is within {near} perplexity of full below 1/2 of the length"),
            (Above(near), DIFFERENCE),
            &nearest_baseline,
        ),
        measured("Window+4 is the best baseline at most sizes", (Above(50.0), PERCENT), &best_baseline),
        measured("TOVA by layer is better than by head at every size", (Above(0.0), DIFFERENCE), &|panel| {
            smallest_lead(panel, TOVA, &[BY_HEAD])
        }),
    ]
}

fn of_questions(rows: &Evidence<'_>) -> Vec<Claim> {
    let (rouge, f1) = (numbers::ROUGE_GAP, numbers::F1_GAP);
    let rouge_gap = |panel: &Panel| gap(panel, TOVA, if is_llama_2(&panel.key) { 8 } else { 4 });
    let lead = |panel: &Panel| smallest_lead(panel, TOVA, &OTHERS);
    vec![
        claim(
            SQUALITY,
            format!("TOVA is within {rouge} ROUGE of full at 1/8 (LLaMA-2) or 1/4 (others)"),
            (AtMost(rouge), DIFFERENCE),
            of_panels(rows, ROUGE, rouge_gap),
        ),
        claim(
            SQUALITY,
            "TOVA's ROUGE is above every baseline's at every size",
            (Above(0.0), DIFFERENCE),
            of_panels(rows, ROUGE, lead),
        ),
        claim(
            QASPER,
            format!("TOVA is within {f1} F1 of full at 1/2 of the length"),
            (AtMost(f1), DIFFERENCE),
            of_panels(rows, F1, |panel| gap(panel, TOVA, 2)),
        ),
        claim(
            QASPER,
            "TOVA's F1 is above every baseline's at every size",
            (Above(0.0), DIFFERENCE),
            of_panels(rows, F1, lead),
        ),
    ]
}

fn of_long_texts_and_stories(rows: &Evidence<'_>) -> Vec<Claim> {
    let most = numbers::EXTRAPOLATION_RISE;
    let quarter = numbers::LENGTH / 4;
    let judged = numbers::FIGURE_6.iter().find(|(size, _)| *size == quarter);
    let judged = judged.map(|(_, [win, _, loss])| win - loss);
    let tokens = |size| numbers::STORY_LENGTH.iter().find(|(known, _)| *known == size).map(|(_, tokens)| tokens);
    let shortened = tokens(Some(quarter)).zip(tokens(None)).map(|(own, full)| 100.0 * (own / full - 1.0));
    let preferred = "a judge prefers full's stories hardly more often than TOVA's at 1/4";
    let as_long = "stories at 1/4 are as long as full's, but for 1 %";
    vec![
        claim(
            LONG,
            format!("TOVA's running perplexity rises by less than {most} over a long text"),
            (Below(most), DIFFERENCE),
            of_long_texts(rows, rise),
        ),
        claim(
            LONG,
            "TOVA's running perplexity is below Window+4's throughout",
            (Above(0.0), DIFFERENCE),
            of_long_texts(rows, least_lead),
        ),
        Claim {
            printed: judged,
            ..claim(JUDGED, preferred, (AtLeast(judged.unwrap_or(0.0)), CHANGE), preference(rows))
        },
        Claim { printed: shortened, ..claim(STORY, as_long, (AtLeast(-1.0), CHANGE), story_length(rows)) },
    ]
}

fn of_speed_and_retention(rows: &Evidence<'_>) -> Vec<Claim> {
    let [.., full] = &numbers::TABLE_1;
    let eighth = numbers::TABLE_1.iter().find(|speed| speed.size == numbers::LENGTH / 8).unwrap_or(full);
    let speed = eighth.throughput;
    let memory = 100.0 * eighth.memory / full.memory;
    let deviation = numbers::TABLE_5_SIZES.into_iter().zip(numbers::TABLE_5[0].1);
    let deviation = deviation.map(|(size, steps)| (f64::from(steps) - identity(numbers::LENGTH, size)).abs());
    let (least, most) = numbers::RECENT_SHARE;
    let faster = format!("TOVA at 1/8 decodes {speed} times as many tokens per second");
    let smaller = "a cache of 1/8 takes about 1/8 of the memory";
    let steps = "mean steps kept are the mean of min(t, k + 1), to half a step";
    let percent = |share: f64| 100.0 * share;
    vec![
        Claim {
            printed: Some(speed),
            ..claim(SPEED, faster, (AtLeast(speed), NUMBER), timed(rows, |(speed, _)| speed))
        },
        Claim {
            printed: Some(memory),
            ..claim(SPEED, smaller, (AtMost(memory), PERCENT), timed(rows, |(_, memory)| memory.map(percent)))
        },
        Claim {
            printed: deviation.max_by(f64::total_cmp),
            ..claim(RETENTION, steps, (AtMost(0.5), NUMBER), lifetimes(rows))
        },
        claim(
            RETENTION,
            format!("of the tokens TOVA keeps, {least} to {most} % are recent"),
            (Within(least, most), PERCENT),
            recent(rows),
        ),
        claim(
            RETENTION,
            "TOVA keeps the first token for 95 % of the steps at every size",
            (AtLeast(95.0), PERCENT),
            first_token(rows),
        ),
    ]
}

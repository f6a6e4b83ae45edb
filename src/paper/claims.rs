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

const BY_HEAD: &str = "tova-head";

const DIFFERENCE: Unit = Unit { digits: 2, suffix: "", signed: true };
const PERCENT: Unit = Unit { digits: 1, suffix: " %", signed: false };
const PG19: &str = "configs/pg19-llama2.yaml";

/// All claims, in the order of the paper.
pub(super) fn all() -> Vec<Claim> {
    let table_3 = Table3;
    let [.., full] = &numbers::TABLE_1;
    let eighth = numbers::TABLE_1.iter().find(|speed| speed.size == numbers::LENGTH / 8).unwrap_or(full);
    let quarter = numbers::LENGTH / 4;
    let judged = numbers::FIGURE_6.iter().find(|(size, _)| *size == quarter);
    let judged = judged.map(|(_, [win, _, loss])| win - loss);
    let tokens = |size| numbers::STORY_LENGTH.iter().find(|(known, _)| *known == size).map(|(_, tokens)| tokens);
    let shortened = tokens(Some(quarter)).zip(tokens(None)).map(|(own, full)| 100.0 * (own / full - 1.0));
    let memory = 100.0 * eighth.memory / full.memory;
    let deviation = numbers::TABLE_5_SIZES.into_iter().zip(numbers::TABLE_5[0].1);
    let deviation = deviation.map(|(size, steps)| (f64::from(steps) - identity(numbers::LENGTH, size)).abs());
    let (least, most) = numbers::RECENT_SHARE;
    let value = |measured: Option<Observation>| measured.map(|measured| measured.estimate.value);
    let claim = |statement, threshold, unit, printed, sweep, measure| Claim {
        statement,
        threshold,
        unit,
        printed,
        sweep,
        measure,
    };
    vec![
        claim(
            format!("TOVA is within {} perplexity of full at 1/8 of the length", numbers::PERPLEXITY_GAP),
            Threshold::AtMost(numbers::PERPLEXITY_GAP),
            DIFFERENCE,
            value(gap(&table_3, TOVA, 8)),
            PG19,
            |evidence| of_panels(evidence, ("perplexity", "nll"), |panel| gap(panel, TOVA, 8)),
        ),
        claim(
            "TOVA's perplexity is below every baseline's at every size".to_owned(),
            Threshold::Above(0.0),
            DIFFERENCE,
            value(smallest_lead(&table_3, TOVA, &BASELINES)),
            PG19,
            |evidence| of_panels(evidence, ("perplexity", "nll"), |panel| smallest_lead(panel, TOVA, &BASELINES)),
        ),
        claim(
            format!(
                "no baseline is within {} perplexity of full below 1/2 of the length",
                numbers::PERPLEXITY_GAP
            ),
            Threshold::Above(numbers::PERPLEXITY_GAP),
            DIFFERENCE,
            value(nearest_baseline(&table_3)),
            PG19,
            |evidence| of_panels(evidence, ("perplexity", "nll"), |panel| nearest_baseline(panel)),
        ),
        claim(
            "Window+4 is the best baseline at most sizes".to_owned(),
            Threshold::Above(50.0),
            PERCENT,
            value(best_baseline(&table_3)),
            PG19,
            |evidence| of_panels(evidence, ("perplexity", "nll"), |panel| best_baseline(panel)),
        ),
        claim(
            "TOVA by layer is better than by head at every size".to_owned(),
            Threshold::Above(0.0),
            DIFFERENCE,
            value(smallest_lead(&table_3, TOVA, &[BY_HEAD])),
            PG19,
            |evidence| of_panels(evidence, ("perplexity", "nll"), |panel| smallest_lead(panel, TOVA, &[BY_HEAD])),
        ),
        claim(
            format!("TOVA is within {} ROUGE of full at 1/8 (LLaMA-2) or 1/4 (others)", numbers::ROUGE_GAP),
            Threshold::AtMost(numbers::ROUGE_GAP),
            DIFFERENCE,
            None,
            "configs/squality-instruct.yaml",
            |evidence| {
                of_panels(evidence, ("squality", "rouge"), |panel| {
                    gap(panel, TOVA, if is_llama_2(&panel.key) { 8 } else { 4 })
                })
            },
        ),
        claim(
            "TOVA's ROUGE is above every baseline's at every size".to_owned(),
            Threshold::Above(0.0),
            DIFFERENCE,
            None,
            "configs/squality-instruct.yaml",
            |evidence| {
                of_panels(evidence, ("squality", "rouge"), |panel| {
                    smallest_lead(panel, TOVA, &["truncate", BEST_BASELINE])
                })
            },
        ),
        claim(
            format!("TOVA is within {} F1 of full at 1/2 of the length", numbers::F1_GAP),
            Threshold::AtMost(numbers::F1_GAP),
            DIFFERENCE,
            None,
            "configs/qasper-instruct.yaml",
            |evidence| of_panels(evidence, ("qasper", "f1"), |panel| gap(panel, TOVA, 2)),
        ),
        claim(
            "TOVA's F1 is above every baseline's at every size".to_owned(),
            Threshold::Above(0.0),
            DIFFERENCE,
            None,
            "configs/qasper-instruct.yaml",
            |evidence| {
                of_panels(evidence, ("qasper", "f1"), |panel| {
                    smallest_lead(panel, TOVA, &["truncate", BEST_BASELINE])
                })
            },
        ),
        claim(
            format!(
                "TOVA's running perplexity rises by less than {} over a long text",
                numbers::EXTRAPOLATION_RISE
            ),
            Threshold::Below(numbers::EXTRAPOLATION_RISE),
            DIFFERENCE,
            None,
            "configs/extrapolation.yaml",
            |evidence| of_long_texts(evidence, rise),
        ),
        claim(
            "TOVA's running perplexity is below Window+4's throughout".to_owned(),
            Threshold::Above(0.0),
            DIFFERENCE,
            None,
            "configs/extrapolation.yaml",
            |evidence| of_long_texts(evidence, least_lead),
        ),
        claim(
            "a judge prefers full's stories hardly more often than TOVA's at 1/4".to_owned(),
            Threshold::AtLeast(judged.unwrap_or(0.0)),
            Unit { digits: 1, suffix: " %", signed: true },
            judged,
            "configs/story.yaml and `tova-bench judge`",
            preference,
        ),
        claim(
            "stories at 1/4 are as long as full's, but for 1 %".to_owned(),
            Threshold::AtLeast(-1.0),
            Unit { digits: 1, suffix: " %", signed: true },
            shortened,
            "configs/story.yaml",
            story_length,
        ),
        claim(
            format!("TOVA at 1/8 decodes {} times as many tokens per second", eighth.throughput),
            Threshold::AtLeast(eighth.throughput),
            Unit { digits: 2, suffix: "", signed: false },
            Some(eighth.throughput),
            "configs/table1.yaml",
            |evidence| timed(evidence, |(speed, _)| speed),
        ),
        claim(
            "a cache of 1/8 takes about 1/8 of the memory".to_owned(),
            Threshold::AtMost(memory),
            PERCENT,
            Some(memory),
            "configs/table1.yaml",
            |evidence| timed(evidence, |(_, memory)| memory.map(|share| 100.0 * share)),
        ),
        claim(
            "mean steps kept are the mean of min(t, k + 1), to half a step".to_owned(),
            Threshold::AtMost(0.5),
            Unit { digits: 2, suffix: "", signed: false },
            deviation.max_by(f64::total_cmp),
            "configs/retention.yaml",
            lifetimes,
        ),
        claim(
            format!("of the tokens TOVA keeps, {least} to {most} % are recent"),
            Threshold::Within(least, most),
            PERCENT,
            None,
            "configs/retention.yaml",
            recent,
        ),
        claim(
            "TOVA keeps the first token for 95 % of the steps at every size".to_owned(),
            Threshold::AtLeast(95.0),
            PERCENT,
            None,
            "configs/retention.yaml",
            first_token,
        ),
    ]
}

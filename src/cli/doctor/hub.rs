//! The hub and its token, and the judge's key. None of them is shown.

use std::time::{Duration, Instant};

use serde_json::json;

use super::finding::{Finding, one_line};
use crate::lm::source::{HubSettings, whoami};

const TIMEOUT: Duration = Duration::from_secs(4);

pub(super) fn findings(settings: &HubSettings, offline: bool) -> [Finding; 2] {
    let started = Instant::now();
    let answer = (!offline).then(|| whoami(settings, TIMEOUT));
    let seconds = started.elapsed().as_secs_f64();
    let endpoint = &settings.endpoint;
    let value = |words: &str| format!("{endpoint} {words} ({seconds:.1} s)");
    let hub = match &answer {
        None => Finding::ok("hub", format!("{endpoint}, not asked: offline, only the cache is used")),
        // 401 without a login, 404 from mirrors that do not know the question.
        Some(Ok(200 | 401 | 404)) => Finding::ok("hub", value("answers")),
        Some(Ok(status)) => Finding::ok("hub", value(&format!("answers with status {status}")))
            .note("407 means that a proxy wants a password, 5xx that the hub has trouble; cached models work"),
        Some(Err(error)) => Finding::ok("hub", format!("{}: {}", value("does not answer"), one_line(error)))
            .note("built-in and cached models work without it; on machines without a network set HF_HUB_OFFLINE=1")
            .note("behind a proxy set HTTPS_PROXY; for a mirror of the hub set HF_ENDPOINT"),
    };
    let reachable = answer.as_ref().map(Result::is_ok);
    let hub = hub.figures(json!({ "endpoint": endpoint, "offline": offline, "reachable": reachable }));
    [hub, token(settings, answer.and_then(Result::ok))]
}

/// The token, and what the hub's answer to `whoami` says of it. Mirrors may not know the request.
fn token(settings: &HubSettings, status: Option<u16>) -> Finding {
    let figures = json!({ "present": settings.token_place.is_some() });
    if let Some(fault) = &settings.token_fault {
        let advice = "correct the variable or file; until then nothing is downloaded from the hub";
        return Finding::ok("hub token", fault.as_str()).figures(figures).problem(advice);
    }
    let Some(place) = &settings.token_place else {
        let value = "none; only gated and private models need one (HF_TOKEN)";
        return Finding::ok("hub token", value).figures(figures);
    };
    let state = match status {
        Some(200) => ", accepted by the hub",
        Some(401) => ", REFUSED by the hub",
        _ => "",
    };
    Finding::ok("hub token", format!("present, from {place}{state}")).figures(figures).problem_if(
        status == Some(401),
        "with an invalid token even public models may be refused: make a new one \
         (https://huggingface.co/settings/tokens), or remove this one",
    )
}

pub(super) fn judge_key(variable: impl Fn(&str) -> Option<String>) -> Finding {
    let present = variable("OPENAI_API_KEY").is_some();
    let value = if present {
        "present, from OPENAI_API_KEY"
    } else {
        "none (OPENAI_API_KEY); only `judge` needs one, and not for a local server"
    };
    Finding::ok("judge key", value).figures(json!({ "present": present }))
}

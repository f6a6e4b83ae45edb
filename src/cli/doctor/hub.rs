//! The hub, the tokens and what is in the way to them. Tokens and passwords of proxies are never shown.

use std::time::{Duration, Instant};

use super::finding::{Finding, Verdict, one_line};
use crate::lm::source::{HubAnswer, HubSettings, TokenPlace, TokenState, whoami};

/// How long the hub may take to answer.
const PATIENCE: Duration = Duration::from_secs(4);

const PROXIES: [&str; 4] = ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"];

pub(super) fn findings(
    settings: &HubSettings,
    offline: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<Finding> {
    let started = Instant::now();
    let answer = (!offline).then(|| whoami(settings, PATIENCE));
    let seconds = started.elapsed().as_secs_f64();
    let endpoint = &settings.endpoint;
    let proxies = proxies(&variable);
    let hub = match &answer {
        None => Finding::ok("hub", format!("{endpoint}, not asked: offline, only the cache is used")),
        // 401 where nobody is logged in, 404 from mirrors that do not know the question.
        Some(Ok(HubAnswer { status: 200 | 401 | 404, .. })) => {
            Finding::ok("hub", format!("{endpoint} answers ({seconds:.1} s)"))
        }
        Some(Ok(HubAnswer { status, .. })) => Finding::note(
            "hub",
            format!("{endpoint} answers with status {status} ({seconds:.1} s)"),
            "something stands between, or the hub is in trouble: 407 comes from a proxy that wants a password, 5xx \
             passes; what is in the cache works",
        ),
        Some(Err(error)) => {
            let finding = Finding::note(
                "hub",
                format!("{endpoint} does not answer ({seconds:.1} s): {}", one_line(&format!("{error:#}"))),
                "built-in models, folders and what is in the cache work without it; where there is no network, as on \
                 many compute nodes, fetch on a node that has one and set HF_HUB_OFFLINE=1, so that nothing waits",
            );
            match &proxies {
                Some(_) => finding,
                None => finding
                    .but(Verdict::Note, "behind a proxy set HTTPS_PROXY; for a mirror of the hub set HF_ENDPOINT"),
            }
        }
    };
    let hub = hub
        .figure("endpoint", endpoint.as_str())
        .figure("offline", offline)
        .figure("reachable", answer.as_ref().map(Result::is_ok));
    let proxies = proxies.map(|set| Finding::ok("proxy", set));
    [hub]
        .into_iter()
        .chain(proxies)
        .chain([token(settings, answer.and_then(Result::ok).map(|answer| answer.token))])
        .collect()
}

/// The proxies that are set, without whatever stands before an `@`.
fn proxies(variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut set = Vec::new();
    for name in PROXIES.into_iter().flat_map(|name| [name.to_string(), name.to_lowercase()]) {
        if let Some(value) = variable(&name) {
            let (scheme, rest) = value.split_once("://").map_or(("", value.as_str()), |(s, rest)| (s, rest));
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
            set.push(format!("{name}={scheme}{host}"));
        }
    }
    (!set.is_empty()).then(|| set.join(", "))
}

fn token(settings: &HubSettings, state: Option<TokenState>) -> Finding {
    let Some(place) = &settings.token_place else {
        let finding = Finding::ok("hub token", "none; only gated and private models need one (HF_TOKEN)");
        return finding.figure("present", false);
    };
    let from = match place {
        TokenPlace::Variable(name) => format!("from {name}"),
        TokenPlace::File(file) => format!("from the file {}", file.display()),
    };
    let said = match state {
        Some(TokenState::Accepted) => ", accepted by the hub",
        Some(TokenState::Refused) => ", REFUSED by the hub",
        _ => "",
    };
    let mut finding = Finding::ok("hub token", format!("present, {from}{said}")).figure("present", true);
    if state == Some(TokenState::Refused) {
        finding = finding.but(
            Verdict::Problem,
            "with a token that is not valid even public models may be refused: make a new one \
             (https://huggingface.co/settings/tokens), or remove this one",
        );
    }
    if let TokenPlace::File(file) = place
        && others_may_read(file)
    {
        finding = finding.but(
            Verdict::Note,
            format!("others on this machine can read that file: chmod 600 {}", file.display()),
        );
    }
    finding
}

#[cfg(unix)]
fn others_may_read(file: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|meta| meta.permissions().mode() & 0o044 != 0)
}

#[cfg(not(unix))]
fn others_may_read(_file: &std::path::Path) -> bool {
    false
}

/// The key of `judge`, which nothing else needs.
pub(super) fn judge_key(variable: impl Fn(&str) -> Option<String>) -> Finding {
    let present = variable("OPENAI_API_KEY").is_some();
    let value = if present {
        "present, from OPENAI_API_KEY"
    } else {
        "none; only `judge` needs one (OPENAI_API_KEY), and not from a server of your own"
    };
    Finding::ok("judge key", value).figure("present", present)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxys_password_is_not_shown() {
        let set = |name: &str| match name {
            "HTTPS_PROXY" => Some("http://me:s3cr@t@proxy.example:3128".to_string()),
            "no_proxy" => Some("localhost,.example".to_string()),
            _ => None,
        };
        let shown = proxies(&set).unwrap();
        assert_eq!(shown, "HTTPS_PROXY=http://proxy.example:3128, no_proxy=localhost,.example");
        assert_eq!(proxies(&|_: &str| None), None);
    }

    #[test]
    fn a_token_that_is_refused_is_a_problem() {
        let mut settings = HubSettings::with_cache_dir("/c");
        assert_eq!(token(&settings, Some(TokenState::Unknown)).verdict, Verdict::Ok);
        settings.token_place = Some(TokenPlace::Variable("HF_TOKEN"));
        assert_eq!(token(&settings, Some(TokenState::Accepted)).verdict, Verdict::Ok);
        assert_eq!(token(&settings, Some(TokenState::Unknown)).verdict, Verdict::Ok);
        assert_eq!(token(&settings, None).verdict, Verdict::Ok);
        let refused = token(&settings, Some(TokenState::Refused));
        assert!(refused.verdict == Verdict::Problem && refused.value.contains("HF_TOKEN"), "{refused:?}");
    }
}

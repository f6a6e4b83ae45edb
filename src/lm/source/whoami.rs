//! Whether the hub answers, and what it says of the token: one short request, for `doctor`.
//!
//! It asks who the token belongs to, which every hub answers without looking anything up; whose it is, is not kept.
//! Nothing is fetched, and nothing is written.

use std::time::Duration;

use anyhow::{Result, anyhow};
use ureq::Agent;
use ureq::http::HeaderValue;

use super::HubSettings;

/// What the hub answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubAnswer {
    /// The status of HTTP.
    pub status: u16,
    pub token: TokenState,
}

/// What a hub that answers says of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// None was sent, or the answer says nothing about it; mirrors may not know the question.
    Unknown,
    Accepted,
    /// Nobody's, or no longer valid.
    Refused,
}

/// Asks the hub, and waits for `patience` at most.
///
/// # Errors
/// No answer, with the reason; the token is not in it.
pub fn whoami(settings: &HubSettings, patience: Duration) -> Result<HubAnswer> {
    settings.check()?;
    let agent = Agent::config_builder()
        .http_status_as_error(false)
        // A redirect is an answer, and the token goes nowhere else.
        .max_redirects(0)
        .timeout_global(Some(patience))
        .user_agent(concat!("tova-bench/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent();
    let mut request = agent.get(format!("{}/api/whoami-v2", settings.endpoint));
    if let Some(token) = &settings.token {
        let mut header = HeaderValue::from_str(&format!("Bearer {}", token.secret()))
            .expect("a token is printable ASCII, which can stand in a header");
        header.set_sensitive(true);
        request = request.header("authorization", header);
    }
    let response = request.call().map_err(|error| anyhow!("{error}"))?;
    let status = response.status().as_u16();
    let token = match status {
        _ if settings.token.is_none() => TokenState::Unknown,
        200 => TokenState::Accepted,
        401 => TokenState::Refused,
        _ => TokenState::Unknown,
    };
    Ok(HubAnswer { status, token })
}

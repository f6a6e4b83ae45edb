//! Asking again: how often, and how long to wait in between.
//!
//! Waits double from half a second, each shortened at random by up to half, so that workers who failed together do
//! not come back together. What a server says with `Retry-After` is kept, and a little added for the same reason.

use std::time::{Duration, Instant};

use super::client::{Answer, CallError, Client};

/// The wait after the first failure, before it is shortened.
const FIRST: Duration = Duration::from_millis(500);
/// No wait of our own is longer.
const LONGEST: Duration = Duration::from_secs(60);
/// A server that wants to be left alone for longer is not waited for.
const LONGEST_ASKED_FOR: Duration = Duration::from_secs(600);

/// Asks until there is an answer, at most `retries` times more after failures that pass.
///
/// `ended` says that the run ends: a wait then ends too. `waits` is told of every wait before it begins.
pub(super) fn ask(
    client: &Client,
    question: &str,
    retries: u32,
    ended: &dyn Fn() -> bool,
    waits: &dyn Fn(&str, Duration),
) -> Result<Answer, CallError> {
    let mut failures = 0;
    loop {
        if ended() {
            return Err(CallError::Interrupted);
        }
        let (cause, after) = match client.ask(question) {
            Err(CallError::Passing { cause, after }) => (cause, after),
            end => return end,
        };
        if failures == retries {
            let times = if retries == 0 { String::new() } else { format!(" (asked {} times)", retries + 1) };
            return Err(CallError::Passing { cause: cause + &times, after });
        }
        let Some(wait) = wait(failures, after, fastrand::f64()) else {
            let cause = format!("{cause}; it wants to be left alone for longer than is waited here");
            return Err(CallError::Passing { cause, after });
        };
        failures += 1;
        waits(&cause, wait);
        sleep(wait, ended);
    }
}

/// The wait after so many failures before this one; `None` where the server wants one that is too long. `random`
/// is from 0 to 1.
fn wait(failures: u32, after: Option<Duration>, random: f64) -> Option<Duration> {
    let longest = FIRST.saturating_mul(1 << failures.min(16)).min(LONGEST);
    let own = longest.mul_f64(1.0 - random / 2.0);
    match after {
        Some(after) if after > LONGEST_ASKED_FOR => None,
        Some(after) => Some(own.max(after + FIRST.mul_f64(random))),
        None => Some(own),
    }
}

/// Sleeps, but not longer than the run goes on.
fn sleep(wait: Duration, ended: &dyn Fn() -> bool) {
    let until = Instant::now() + wait;
    while !ended() {
        match until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => std::thread::sleep(left.min(Duration::from_millis(20))),
            _ => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_have_an_end() {
        let seconds = |failures, random| wait(failures, None, random).unwrap().as_secs_f64();
        assert_eq!([0, 1, 2, 3].map(|failures| seconds(failures, 0.0)), [0.5, 1.0, 2.0, 4.0]);
        assert_eq!([0, 1, 2, 3].map(|failures| seconds(failures, 1.0)), [0.25, 0.5, 1.0, 2.0]);
        assert_eq!([7, 40, u32::MAX].map(|failures| seconds(failures, 0.0)), [60.0, 60.0, 60.0]);
    }

    #[test]
    fn a_server_is_not_asked_before_it_wants_to_be() {
        let after = |seconds| Some(Duration::from_secs(seconds));
        for random in [0.0, 0.5, 1.0] {
            let wait = wait(0, after(3), random).unwrap().as_secs_f64();
            assert!((3.0..=3.5).contains(&wait), "{wait}");
        }
        assert_eq!(wait(3, after(0), 0.0), after(4), "our own patience is the longer one");
        assert_eq!(wait(0, after(3600), 0.0), None);
    }

    #[test]
    fn a_wait_ends_with_the_run() {
        let started = Instant::now();
        sleep(Duration::from_secs(60), &|| started.elapsed() > Duration::from_millis(50));
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}

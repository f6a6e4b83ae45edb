//! Retries with exponential backoff.
//!
//! Waits double from half a second; each is shortened at random by up to half, so that threads that failed together do not
//! come back together. A server's `Retry-After` is honoured, with a random addition for the same reason.

use std::time::{Duration, Instant};

use super::client::{Answer, CallError, Client};

/// The wait after the first failure, before it is shortened at random.
const FIRST: Duration = Duration::from_millis(500);
/// The longest wait, unless the server asks for a longer one.
const LONGEST: Duration = Duration::from_secs(60);
/// A request of the server to wait longer than this counts as a failure.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Asks until there is an answer; transient failures are retried `retries` times at most.
///
/// When `is_ending` becomes true, waits end too. `waiting` is called before every wait.
pub(super) fn ask(
    client: &Client<'_>,
    question: &str,
    retries: u32,
    is_ending: &dyn Fn() -> bool,
    waiting: &dyn Fn(&str, Duration),
) -> Result<Answer, CallError> {
    let mut failures = 0;
    loop {
        if is_ending() {
            return Err(CallError::Interrupted);
        }
        let (cause, after) = match client.ask(question) {
            Err(CallError::Transient { cause, after }) => (cause, after),
            end => return end,
        };
        if failures == retries {
            let times = if retries == 0 { String::new() } else { format!(" (asked {} times)", retries + 1) };
            return Err(CallError::Transient { cause: cause + &times, after });
        }
        let Some(wait) = wait(failures, after, fastrand::f64()) else {
            let cause = format!("{cause}; it asks to wait longer than {} s", LONGEST_RETRY_AFTER.as_secs());
            return Err(CallError::Transient { cause, after });
        };
        failures += 1;
        waiting(&cause, wait);
        sleep(wait, is_ending);
    }
}

/// The wait after a failure that `failures` came before; `None` if the server asks for too long a wait. `random` is from 0
/// to 1.
fn wait(failures: u32, after: Option<Duration>, random: f64) -> Option<Duration> {
    let longest = FIRST.saturating_mul(1 << failures.min(16)).min(LONGEST);
    let own = longest.mul_f64(1.0 - random / 2.0);
    match after {
        Some(after) if after > LONGEST_RETRY_AFTER => None,
        Some(after) => Some(own.max(after + FIRST.mul_f64(random))),
        None => Some(own),
    }
}

/// Sleeps, but not beyond the end of the run.
fn sleep(wait: Duration, is_ending: &dyn Fn() -> bool) {
    let until = Instant::now() + wait;
    while !is_ending() {
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
    fn waits_grow_up_to_a_limit() {
        let seconds = |failures, random| wait(failures, None, random).unwrap().as_secs_f64();
        assert_eq!([0, 1, 2, 3].map(|failures| seconds(failures, 0.0)), [0.5, 1.0, 2.0, 4.0]);
        assert_eq!([0, 1, 2, 3].map(|failures| seconds(failures, 1.0)), [0.25, 0.5, 1.0, 2.0]);
        assert_eq!([7, 40, u32::MAX].map(|failures| seconds(failures, 0.0)), [60.0, 60.0, 60.0]);
    }

    #[test]
    fn retry_after_is_honoured() {
        let after = |seconds| Some(Duration::from_secs(seconds));
        for random in [0.0, 0.5, 1.0] {
            let wait = wait(0, after(3), random).unwrap().as_secs_f64();
            assert!((3.0..=3.5).contains(&wait), "{wait}");
        }
        assert_eq!(wait(3, after(0), 0.0), after(4), "the own wait is the longer one");
        assert_eq!(wait(0, after(3600), 0.0), None);
    }
}

//! How a policy is written: a name, and after `@` what it has of its own. Sweeps, the command line and Python read it here.

use super::amount::FirstTokens;
use super::cache_format::CacheFormat;
use super::cache_rule::CacheRule;
use super::options::{CacheOptions, Positions};
use super::policy::Policy;
use super::presets::{self, PRESETS};
use super::schedule::{MOST_AT_ONCE, Schedule};
use crate::format::did_you_mean;

/// A policy as it is written, such as `tova`, `h2o@128` or `window+4@slot@exempt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenPolicy<'a> {
    pub name: &'a str,
    pub schedule: Option<Schedule>,
    pub options: CacheOptions,
    /// Whether the format among the options is written here.
    pub says_format: bool,
}

/// A policy under a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinedPolicy {
    pub name: String,
    pub policy: Policy,
    /// Its format where none is written after the name.
    pub format: Option<CacheFormat>,
}

/// The policies that a name can mean.
#[derive(Clone, Copy, Default)]
pub struct KnownPolicies<'a> {
    /// Policies under names of their own, which go before presets.
    pub defined: &'a [DefinedPolicy],
    /// The schedule of presets, in place of their own.
    pub schedule: Option<Schedule>,
}

/// A policy that a name means, before it has a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPolicy {
    /// `full`, `truncate`, a preset or a defined policy, without what follows an `@`.
    pub name: String,
    pub rule: CacheRule<()>,
    pub options: CacheOptions,
}

/// What is wrong with a policy as it is written, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    pub message: String,
    pub hint: String,
}

impl DefinedPolicy {
    /// The options of its cache, where those of the other policies are `usual`.
    pub fn options(&self, usual: CacheOptions) -> CacheOptions {
        CacheOptions { format: self.format.unwrap_or(usual.format), ..usual }
    }
}

impl<'a> WrittenPolicy<'a> {
    /// Reads a policy. It has these `options` where it does not say others; one that never evicts has only a format that it says itself.
    ///
    /// # Errors
    /// What follows `@` is not a setting of a policy, or the policy never evicts and it is not a format.
    pub fn parse(written: &'a str, options: CacheOptions) -> Result<WrittenPolicy<'a>, PolicyError> {
        let mut parts = written.split('@');
        let name = parts.next().unwrap_or_default();
        let mut policy = WrittenPolicy { name, schedule: None, options, says_format: false };
        if policy.never_evicts() {
            policy.options = CacheOptions::default();
        }
        for setting in parts {
            let format: Option<CacheFormat> = setting.parse().ok();
            match setting.parse() {
                _ if let Some(format) = format => {
                    policy.options.format = format;
                    policy.says_format = true;
                }
                Ok(_) if policy.never_evicts() => return Err(has_no_evictions(name)),
                Ok(schedule) => policy.schedule = Some(schedule),
                Err(_) if !policy.options.set(setting) => return Err(unknown_setting(setting, name)),
                Err(_) if policy.never_evicts() => return Err(has_no_evictions(name)),
                Err(_) => {}
            }
        }
        Ok(policy)
    }

    /// Whether nothing is ever evicted, so that it has no settings.
    pub fn never_evicts(self) -> bool {
        matches!(self.name, "full" | "truncate")
    }

    /// The policy that it means.
    ///
    /// # Errors
    /// A name that no policy has, a preset whose file is not there, or a schedule for a policy that never evicts.
    pub fn resolve(self, known: KnownPolicies<'_>) -> Result<NamedPolicy, PolicyError> {
        let WrittenPolicy { name, schedule, mut options, says_format } = self;
        let rule = match name {
            _ if self.never_evicts() && schedule.is_some() => {
                let message = format!("a schedule has no meaning for the policy {name}");
                let hint = "leave it out, or choose another policy, such as tova".to_owned();
                return Err(PolicyError { message, hint });
            }
            "full" => CacheRule::Unbounded,
            "truncate" => CacheRule::Truncate { size: () },
            _ => {
                let policy = known.find(name).ok_or_else(|| known.unknown(name))?.map_err(|error| {
                    let message = format!("`{name}` cannot be used: {error:#}");
                    PolicyError { message, hint: presets::hint_of(&error) }
                })?;
                let schedule = schedule.unwrap_or(policy.schedule);
                if let Some(own) = known.defined(name).filter(|_| !says_format) {
                    options = own.options(options);
                }
                if policy.selects() {
                    // Nothing leaves, so no key moves.
                    options.positions = Positions::Absolute;
                }
                CacheRule::Evict { policy: Policy { schedule, ..policy }, size: () }
            }
        };
        Ok(NamedPolicy { name: name.to_owned(), rule, options })
    }
}

fn unknown_setting(setting: &str, policy: &str) -> PolicyError {
    let names: Vec<_> = CacheOptions::known_words().chain(["cut"]).collect();
    let near = did_you_mean(setting, names.iter().copied());
    let hint = format!("{near}after @ write {}, cut+16, or a number from 1 to {MOST_AT_ONCE}", names.join(", "));
    let message = format!("`{setting}` of `{policy}` is not a schedule, a kind of positions or a format");
    PolicyError { message, hint }
}

fn has_no_evictions(name: &str) -> PolicyError {
    let message = format!("`{name}` never evicts, so nothing leaves and its keys never move");
    PolicyError { message, hint: format!("write `{name}`, or `{name}` with a format such as {name}@q8_0") }
}

impl<'a> KnownPolicies<'a> {
    fn defined(self, name: &str) -> Option<&'a DefinedPolicy> {
        self.defined.iter().find(|own| own.name == name)
    }

    /// The policy of a name without `@`: one that is defined, such a one with other first tokens (`mine+4`), or a preset. `None` if
    /// there is none; an error of a preset whose file is not there.
    fn find(self, name: &str) -> Option<anyhow::Result<Policy>> {
        let defined = |name: &str| Some(self.defined(name)?.policy);
        let with_first = || {
            let (base, keep_first) = presets::split_keep_first(name)?;
            Some(Policy { keep_first: FirstTokens::tokens(keep_first), ..defined(base)? })
        };
        let preset = || {
            let with_schedule =
                |policy: Policy| Policy { schedule: self.schedule.unwrap_or(policy.schedule), ..policy };
            presets::find(name).map(|found| found.map(with_schedule))
        };
        defined(name).or_else(with_first).map(Ok).or_else(preset)
    }

    fn unknown(self, name: &str) -> PolicyError {
        let names: Vec<&str> =
            ["full", "truncate"].into_iter().chain(PRESETS.iter().map(|preset| preset.name)).collect();
        let known: Vec<&str> = names.into_iter().chain(self.defined.iter().map(|own| own.name.as_str())).collect();
        let near = match presets::known_elsewhere(name) {
            Some(preset) => format!("did you mean `{preset}`? "),
            None => did_you_mean(name, known.iter().copied()),
        };
        let names = known.join(", ");
        let hint = format!(
            "{near}known are {names} (name+I protects the first I tokens); a new one is made under `define:`"
        );
        PolicyError { message: format!("unknown policy `{name}`"), hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::LocalLayers;

    #[test]
    fn what_follows_a_policy_is_read_in_any_order() {
        let usual = CacheOptions { positions: Positions::Squeezed, ..CacheOptions::default() };
        let read = |written| {
            let WrittenPolicy { name, schedule, options, .. } = WrittenPolicy::parse(written, usual).unwrap();
            (name, schedule.map(|own| own.to_string()), options)
        };
        assert_eq!(read("tova"), ("tova", None, usual));
        assert_eq!(read("tova@cut"), ("tova", Some("cut".to_owned()), usual));
        let options = CacheOptions {
            positions: Positions::Slot,
            local_layers: LocalLayers::Exempt,
            ..CacheOptions::default()
        };
        let all = ("window+4", Some("128".to_owned()), options);
        assert_eq!(read("window+4@slot@exempt@128"), all);
        assert_eq!(read("window+4@128@slot@exempt"), all);
        assert_eq!(read("window+4@absolute").2, CacheOptions::default());
        for (wrong, words) in [
            ("full@cut", "`full` never evicts"),
            ("truncate@slot", "`truncate` never evicts"),
            ("tova@", "`` of `tova`"),
            ("tova@sloth", "did you mean `slot`?"),
            ("tova@0", "a number from 1 to 65536"),
        ] {
            let PolicyError { message, hint } = WrittenPolicy::parse(wrong, usual).unwrap_err();
            assert!(message.contains(words) || hint.contains(words), "{message} {hint}");
        }
    }

    #[test]
    fn what_is_defined_goes_before_presets() {
        fn read(written: &str) -> WrittenPolicy<'_> {
            WrittenPolicy::parse(written, CacheOptions::default()).unwrap()
        }
        let mine = Policy { keep_first: FirstTokens::tokens(1), ..presets::by_name("h2o").unwrap() };
        let defined =
            ["mine", "tova"].map(|name| DefinedPolicy { name: name.to_owned(), policy: mine, format: None });
        let known = KnownPolicies { defined: &defined, schedule: Some(Schedule::Cut) };
        let found = |written: &str| read(written).resolve(known).ok()?.rule.policy();
        assert_eq!((found("mine"), found("tova")), (Some(mine), Some(mine)));
        assert_eq!(found("mine+4"), Some(Policy { keep_first: FirstTokens::tokens(4), ..mine }));
        assert_eq!(found("window").unwrap().schedule, Schedule::Cut);
        assert_eq!(found("window@16").unwrap().schedule, Schedule::Every(16));
        assert!(found("nobody").is_none() && found("full").is_none());
        let error = read("windw").resolve(known).unwrap_err();
        assert!(error.message == "unknown policy `windw`" && error.hint.contains("did you mean `window`?"));
    }
}

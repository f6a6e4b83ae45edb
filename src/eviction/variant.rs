//! How a policy is written: a name, and after `@` what it has of its own. Sweeps, the command line and Python read it here.

use super::amount::Amount;
use super::policy::Policy;
use super::presets;
use super::schedule::{MOST_AT_ONCE, Schedule};
use super::settings::{LOCAL_LAYERS, LocalLayers, POSITIONS, Positions};
use crate::format::did_you_mean;

/// A policy as it is written, such as `tova`, `h2o@128` or `window+4@slot@exempt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant<'a> {
    pub name: &'a str,
    pub schedule: Option<Schedule>,
    pub positions: Option<Positions>,
    pub local_layers: Option<LocalLayers>,
}

/// What is wrong with a policy as it is written, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantError {
    pub message: String,
    pub hint: String,
}

impl<'a> Variant<'a> {
    /// # Errors
    /// What follows `@` is no setting of a policy, or the policy never evicts and has none.
    pub fn parse(written: &'a str) -> Result<Variant<'a>, VariantError> {
        let mut parts = written.split('@');
        let name = parts.next().unwrap_or_default();
        let mut variant = Variant { name, schedule: None, positions: None, local_layers: None };
        for own in parts {
            if matches!(name, "full" | "truncate") {
                let message = format!("`{name}` never evicts, so nothing leaves and its keys never move");
                return Err(VariantError { message, hint: format!("write `{name}`") });
            }
            match (own.parse(), own.parse(), own.parse()) {
                (Ok(layers), ..) => variant.local_layers = Some(layers),
                (_, Ok(schedule), _) => variant.schedule = Some(schedule),
                (.., Ok(positions)) => variant.positions = Some(positions),
                _ => return Err(unknown(own, name)),
            }
        }
        Ok(variant)
    }
}

fn unknown(own: &str, policy: &str) -> VariantError {
    let names = POSITIONS.iter().map(|own| own.name).chain(LOCAL_LAYERS.iter().map(|own| own.name));
    let names: Vec<_> = names.chain(["cut"]).collect();
    let near = did_you_mean(own, names.iter().copied());
    let hint = format!("{near}after @ write {}, cut+16, or a number from 1 to {MOST_AT_ONCE}", names.join(", "));
    VariantError { message: format!("`{own}` of `{policy}` is no schedule and no kind of positions"), hint }
}

/// The policy of a name without `@`: one that is `defined`, one of those with other first tokens (`mine+4`), or a preset, whose schedule is
/// `of_presets` where that is given. `None`: there is no such policy.
pub fn named(
    name: &str,
    defined: &[(String, Policy)],
    of_presets: Option<Schedule>,
) -> Option<anyhow::Result<Policy>> {
    let own = |name: &str| defined.iter().find(|(own, _)| own == name).map(|(_, policy)| *policy);
    let with_first = || {
        let (base, keep_first) = presets::split_keep_first(name)?;
        Some(Policy { keep_first: Amount::Tokens(keep_first), ..own(base)? })
    };
    let preset = || {
        let with_schedule = |policy: Policy| Policy { schedule: of_presets.unwrap_or(policy.schedule), ..policy };
        presets::find(name).map(|found| found.map(with_schedule))
    };
    own(name).or_else(with_first).map(Ok).or_else(preset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_policy_is_read_in_any_order() {
        let read = |written| {
            let Variant { name, schedule, positions, local_layers } = Variant::parse(written).unwrap();
            (name, schedule.map(|own| own.to_string()), positions, local_layers)
        };
        assert_eq!(read("tova"), ("tova", None, None, None));
        assert_eq!(read("tova@cut"), ("tova", Some("cut".to_owned()), None, None));
        let all = ("window+4", Some("128".to_owned()), Some(Positions::Slot), Some(LocalLayers::Exempt));
        assert_eq!(read("window+4@slot@exempt@128"), all);
        assert_eq!(read("window+4@128@slot@exempt"), all);
        for (wrong, words) in [
            ("full@cut", "`full` never evicts"),
            ("truncate@slot", "`truncate` never evicts"),
            ("tova@", "`` of `tova`"),
            ("tova@sloth", "did you mean `slot`?"),
            ("tova@0", "a number from 1 to 65536"),
        ] {
            let VariantError { message, hint } = Variant::parse(wrong).unwrap_err();
            assert!(message.contains(words) || hint.contains(words), "{message} {hint}");
        }
    }

    #[test]
    fn what_is_defined_goes_before_presets() {
        let mine = Policy { keep_first: Amount::Tokens(1), ..presets::by_name("h2o").unwrap() };
        let own = [("mine".to_owned(), mine), ("tova".to_owned(), mine)];
        let found = |name: &str| named(name, &own, Some(Schedule::CUT)).map(|found| found.unwrap());
        assert_eq!((found("mine"), found("tova")), (Some(mine), Some(mine)));
        assert_eq!(found("mine+4"), Some(Policy { keep_first: Amount::Tokens(4), ..mine }));
        assert_eq!(found("window").unwrap().schedule, Schedule::CUT);
        assert!(found("nobody").is_none() && found("full").is_none());
    }
}

//! The order of policies in tables and legends: the paper's, then whatever a user defined. Only names are known here.

/// Baselines first, each family together, sinks ascending, keys that move last: compares as (family, variant, sinks,
/// name).
pub fn of(policy: &str) -> (usize, bool, u32, &str) {
    const FAMILIES: [&str; 7] = ["full", "truncate", "random", "window", "knorm", "h2o", "tova"];
    let whole = policy.split_once('@').map_or(policy, |(whole, _)| whole);
    let (base, sinks) = whole.split_once('+').unwrap_or((whole, "0"));
    let (family, variant) = base.split_once('-').map_or((base, false), |(family, _)| (family, true));
    let rank = FAMILIES.iter().position(|known| *known == family).unwrap_or(FAMILIES.len());
    (rank, variant, sinks.parse().unwrap_or(u32::MAX), policy)
}

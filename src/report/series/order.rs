//! The order of policies in tables and legends: the paper's, then whatever a user defined; and of slices of
//! samples. Only names are known here.

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

/// Slices of one kind together, by their first number where they have one: compares as (kind, number, name).
pub fn of_slice(slice: &str) -> (&str, u64, &str) {
    let (kind, name) = slice.split_once(':').unwrap_or((slice, ""));
    let digits = name.find(|c: char| !c.is_ascii_digit()).map_or(name, |end| &name[..end]);
    (kind, digits.parse().unwrap_or(u64::MAX), name)
}

//! Axes: from a value to a share of the axis, and readable ticks.
//!
//! Pure numbers, no drawing. Ticks of a linear axis are those of plotters. Ticks of a logarithmic axis are round numbers (5, 10, 20, 50),
//! of which plotters has only powers of ten, and ticks of cache sizes are the sizes that were measured.

use plotters::coord::ranged1d::Ranged as _;
use plotters::coord::types::RangedCoordf64;

use crate::report::series::Size;

/// How values spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

impl Scale {
    /// Whether a value has a place on it.
    fn has(self, value: f64) -> bool {
        value.is_finite() && (self == Self::Linear || value > 0.0)
    }

    fn along(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            // What has no logarithm is below every value.
            Self::Log if value <= 0.0 => f64::NEG_INFINITY,
            Self::Log => value.ln(),
        }
    }

    fn back(self, along: f64) -> f64 {
        if self == Self::Log { along.exp() } else { along }
    }
}

/// A place on an axis with its label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// What a horizontal axis shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Horizontal {
    CacheSize,
    /// Cache sizes in percent of the prompt or text.
    CacheShare,
    /// Memory of keys and values, in percent of the full cache's or in bytes.
    Memory,
    /// Bytes that caches of some sizes hold.
    Held(&'static str),
    /// Octaves of a number, whose points are in the middle between two ticks.
    Octaves(&'static str),
    Number(&'static str),
    /// Places with a name each.
    Named(&'static str),
}

impl Horizontal {
    /// Axis of cache sizes, which are all entries or all shares.
    pub(crate) fn of_sizes(sizes: &[Size]) -> Self {
        match sizes {
            sizes if sizes.iter().any(|size| size.is_memory()) => Self::Memory,
            sizes if sizes.iter().any(|size| size.is_share()) => Self::CacheShare,
            _ => Self::CacheSize,
        }
    }

    pub(crate) fn is_of_sizes(self) -> bool {
        matches!(self, Self::CacheSize | Self::CacheShare | Self::Memory | Self::Held(_))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Horizontal::CacheSize => "cache size (entries)",
            Horizontal::CacheShare => "cache size (share)",
            Horizontal::Memory => "mean memory of keys and values",
            Horizontal::Held(name)
            | Horizontal::Octaves(name)
            | Horizontal::Number(name)
            | Horizontal::Named(name) => name,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Axis {
    scale: Scale,
    /// Ends, in the scale's own terms.
    low: f64,
    high: f64,
    pub(crate) ticks: Vec<Tick>,
}

impl Axis {
    /// Cache sizes, or other numbers of tokens, on a logarithmic axis, with a tick at each.
    pub(crate) fn of_sizes<S: Copy + Into<Size>>(sizes: &[S]) -> Self {
        let sizes = sizes.iter().map(|size| (*size).into());
        let ticks: Vec<Tick> = sizes.map(tick).collect();
        let values: Vec<f64> = ticks.iter().map(|tick| tick.value).collect();
        let (low, high) = ends(&values, Scale::Log);
        // Half a doubling where there is one size only; otherwise just enough that markers clear the frame.
        let margin = if high > low { 0.05 * (high - low) } else { 0.5 };
        Self { scale: Scale::Log, low: low - margin, high: high + margin, ticks }
    }

    /// Named places, the first at 0 and one after another.
    pub(crate) fn of_names(names: &[String]) -> Self {
        let tick = |(at, label): (usize, &String)| Tick { value: at as f64, label: label.clone() };
        let ticks: Vec<Tick> = names.iter().enumerate().map(tick).collect();
        Self { scale: Scale::Linear, low: -0.3, high: names.len() as f64 - 0.7, ticks }
    }

    /// The axis of values that spans what is given.
    pub(crate) fn of_values(values: &[f64], scale: Scale) -> Self {
        let values: Vec<f64> = values.iter().copied().filter(|value| scale.has(*value)).collect();
        let (low, high) = ends(&values, scale);
        let margin = if high > low { 0.06 * (high - low) } else { 0.05 * high.abs().max(1.0) };
        let (mut low, high) = (low - margin, high + margin);
        // A margin must not suggest negative values where there are none.
        if scale == Scale::Linear && values.iter().all(|&value| value >= 0.0) {
            low = low.max(0.0);
        }
        let ticks = ticks(scale.back(low), scale.back(high), scale);
        Self { scale, low, high, ticks }
    }

    /// A logarithmic axis that begins at `edge` and has room for what is above it.
    pub(crate) fn above(edge: f64, values: &[f64]) -> Self {
        let values = values.iter().copied().filter(|value| value.is_finite() && *value > edge);
        let (low, high) = ends(&values.chain([edge]).collect::<Vec<_>>(), Scale::Log);
        let high = high + 0.06 * (high - low);
        Self { scale: Scale::Log, low, high, ticks: ticks(edge, high.exp(), Scale::Log) }
    }

    /// 0 at the low end, 1 at the high end, and beyond for what is outside.
    pub(crate) fn share(&self, value: f64) -> f64 {
        (self.scale.along(value) - self.low) / (self.high - self.low)
    }

    /// The value at the low end.
    pub(crate) fn lowest(&self) -> f64 {
        self.scale.back(self.low)
    }

    pub(crate) fn contains(&self, value: f64) -> bool {
        (0.0..=1.0).contains(&self.share(value))
    }
}

/// Shares are at their percent.
fn tick(size: Size) -> Tick {
    match size {
        Size::Entries(entries) => {
            let value = f64::from(entries.max(1));
            Tick { value, label: number(value) }
        }
        Size::Share(_) | Size::MemoryShare(_) | Size::Memory(_) => {
            Tick { value: size.number(), label: size.to_string() }
        }
    }
}

fn ends(values: &[f64], scale: Scale) -> (f64, f64) {
    let along = values.iter().map(|&value| scale.along(value));
    let (low, high) =
        along.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)));
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

/// The most ticks an axis of a column's height has room for.
const MOST_TICKS: usize = 8;

fn ticks(low: f64, high: f64, scale: Scale) -> Vec<Tick> {
    // Numbers at the very ends of floating point have no neighbours to put ticks between.
    if !(low.abs().max(high.abs()) < 1e300 && (scale == Scale::Linear || low > 1e-300)) {
        return Vec::new();
    }
    let values = match scale {
        Scale::Linear => even_ticks(low, high),
        Scale::Log => log_ticks(low, high),
    };
    values.into_iter().map(|value| Tick { value, label: number(value) }).collect()
}

/// Steps of 1, 2 or 5 times a power of ten, at most six ticks.
fn even_ticks(low: f64, high: f64) -> Vec<f64> {
    RangedCoordf64::from(low..high).key_points(6)
}

/// Round numbers of every decade, as many as there is room for.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    const DIGITS: [&[f64]; 4] = [&[1.0, 2.0, 3.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
    let decades = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let of = |digits: &[f64]| -> Vec<f64> {
        let all = (decades.0..=decades.1).flat_map(|decade| digits.iter().map(move |d| d * 10f64.powi(decade)));
        all.filter(|value| (low..=high).contains(value)).collect()
    };
    let finest = DIGITS.iter().map(|digits| of(digits)).find(|ticks| ticks.len() <= MOST_TICKS);
    match finest {
        Some(ticks) if ticks.len() >= 4 => ticks,
        // Less than about a decade: even steps crowd a little at the top, but say more than two ticks do.
        Some(_) => even_ticks(low, high),
        // More decades than ticks: every second, third, ... power of ten.
        None => {
            let powers = of(DIGITS[3]);
            let every = powers.len().div_ceil(MOST_TICKS);
            powers.into_iter().step_by(every).collect()
        }
    }
}

/// A tick's label: the shortest that is exact for round numbers; 2e7 where there would be too many zeros to count.
pub(crate) fn number(value: f64) -> String {
    // Steps such as 0.1 add up to 0.30000000000000004.
    let rounded: f64 = format!("{value:.9e}").parse().unwrap_or(value);
    match rounded.abs() {
        0.0 | 1e-4..1e7 => rounded.to_string(),
        _ => format!("{rounded:e}"),
    }
}

/// The values a linear axis has to show: all but those that would squash the rest.
///
/// Values beyond three times `full` are left out (the paper's Window is 600 times worse than the full cache), unless most
/// policies have such values; then the limit is three times the lower median of the policies' worst values.
pub(crate) fn values_to_show(series: &[Vec<f64>], full: Option<f64>) -> Vec<f64> {
    let finite = |values: &[f64]| values.iter().copied().filter(|value| value.is_finite()).collect::<Vec<_>>();
    let series: Vec<Vec<f64>> = series.iter().map(|values| finite(values)).collect();
    let mut worst: Vec<f64> =
        series.iter().filter_map(|values| values.iter().copied().max_by(f64::total_cmp)).collect();
    worst.sort_by(f64::total_cmp);
    let median = worst.get(worst.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    let limit = 3.0 * median.max(full.unwrap_or(0.0));
    series.into_iter().flatten().chain(full).filter(|&value| value <= limit || limit <= 0.0).collect()
}

/// Values, and the ends of the bands around them as far as the values keep half of the axis. Bands of values that are not
/// shown do not count.
pub(crate) fn with_bands(
    mut values: Vec<f64>,
    bands: impl Iterator<Item = (f64, (f64, f64))>,
    scale: Scale,
) -> Vec<f64> {
    values.retain(|value| scale.has(*value));
    let (low, high) = ends(&values, scale);
    // A value alone needs no room.
    let most = if high > low { 0.5 * (high - low) } else { f64::INFINITY };
    let is_shown = |value: f64| scale.has(value) && (low..=high).contains(&scale.along(value));
    for (_, (from, to)) in bands.filter(|(value, _)| is_shown(*value)) {
        values.push(scale.back(scale.along(from).max(low - most)));
        values.push(scale.back(scale.along(to).min(high + most)));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let check = |values: &[f64], scale, expected: &[&str]| {
            assert_eq!(labels(&Axis::of_values(values, scale)), expected, "{values:?} {scale:?}");
        };
        check(&[7.16, 17.65], Scale::Linear, &["8", "10", "12", "14", "16", "18"]);
        check(&[7.16, 17.65], Scale::Log, &["8", "10", "12", "14", "16", "18"]);
        check(&[7.16, 4812.0], Scale::Log, &["10", "30", "100", "300", "1000", "3000"]);
        check(&[4.0, 1200.0], Scale::Log, &["5", "10", "20", "50", "100", "200", "500", "1000"]);
        check(&[0.001, 0.8], Scale::Log, &["0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1"]);
        check(&[0.0, 1.0], Scale::Linear, &["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        check(&[1e7, 6e7], Scale::Linear, &["1e7", "2e7", "3e7", "4e7", "5e7", "6e7"]);
        check(&[5.0, 5.0], Scale::Linear, &["4.8", "4.9", "5", "5.1", "5.2"]);
    }

    #[test]
    fn sizes_double_evenly_and_have_the_ticks() {
        let axis = Axis::of_sizes(&[64, 128, 256]);
        assert_eq!(labels(&axis), ["64", "128", "256"]);
        let at = [64.0, 128.0, 256.0].map(|size| axis.share(size));
        assert!((at[1] - 0.5).abs() < 1e-12 && (at[0] + at[2] - 1.0).abs() < 1e-12);
        assert!(Axis::of_sizes(&[100]).contains(100.0));
        // 12.5 %, 25 % and 50 %, of which each is twice the last.
        let axis = Axis::of_sizes(&[1250, 2500, 5000].map(Size::Share));
        assert_eq!(labels(&axis), ["12.5%", "25%", "50%"]);
        assert!((axis.share(25.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn an_axis_that_begins_at_a_value_ends_above_the_largest() {
        let axis = Axis::above(0.005, &[0.01, 2.0, 0.001, -1.0, 0.0, f64::INFINITY]);
        assert!((axis.lowest() - 0.005).abs() < 1e-12 && axis.share(0.005).abs() < 1e-12);
        assert_eq!(labels(&axis), ["0.01", "0.03", "0.1", "0.3", "1"]);
        assert!(axis.contains(2.0) && !axis.contains(3.0) && !axis.contains(0.0049));
        // Zero and what is less are below everything.
        assert_eq!([0.0, -1.0].map(|value| axis.share(value)), [f64::NEG_INFINITY; 2]);
        let least = Axis::above(0.0001, &[0.00011]);
        assert!(least.low < least.high && least.contains(0.00011));
    }

    #[test]
    fn bands_have_room_on_the_axis_but_not_most_of_it() {
        let bands = [(10.0, (9.0, 13.0)), (20.0, (5.0, 90.0)), (99.0, (98.0, 100.0))];
        // Values from 10 to 20 leave 5 on either side; 99 is not shown, and neither is its band.
        let shown = with_bands(vec![10.0, 20.0], bands.into_iter(), Scale::Linear);
        assert_eq!(shown, [10.0, 20.0, 9.0, 13.0, 5.0, 25.0]);
        // Half of two doublings is one.
        let shown = with_bands(vec![10.0, 40.0], [(10.0, (-1.0, 200.0))].into_iter(), Scale::Log);
        assert!((shown[2] - 5.0).abs() < 1e-9 && (shown[3] - 80.0).abs() < 1e-9, "{shown:?}");
        assert_eq!(with_bands(vec![10.0], [(10.0, (2.0, 50.0))].into_iter(), Scale::Linear), [10.0, 2.0, 50.0]);
    }

    #[test]
    fn axes_of_extreme_values_are_valid() {
        for values in [&[][..], &[f64::NAN], &[f64::INFINITY], &[0.0], &[-1.0, 3.0], &[1e300, 1e-300]] {
            for scale in [Scale::Linear, Scale::Log] {
                let axis = Axis::of_values(values, scale);
                assert!(axis.low < axis.high && axis.ticks.len() <= 12, "{values:?} {axis:?}");
            }
        }
    }

    #[test]
    fn one_policy_far_off_is_left_out_but_not_all_of_them() {
        let table = [vec![4812.0, 7.16], vec![10.28, 7.16], vec![9.53, 7.16]];
        assert_eq!(values_to_show(&table, Some(7.16)), [7.16, 10.28, 7.16, 9.53, 7.16, 7.16]);
        // Nothing to squash when all are bad.
        assert_eq!(values_to_show(&[vec![50.0, 20.0], vec![60.0, 10.0]], Some(5.0)).len(), 5);
        // A metric without a full cache's value.
        assert_eq!(values_to_show(&[vec![8.0], vec![0.5], vec![0.4]], None), [0.5, 0.4]);
        assert_eq!(values_to_show(&[vec![0.0]], None), [0.0]);
    }
}

//! Loops over the columns of a row.

use std::ops::Range;

use super::words::Function;
use crate::vector;

/// The values of an argument.
#[derive(Clone, Copy)]
pub(super) enum Column<'a> {
    Own(&'a [f32]),
    /// One value for all entries.
    Same(f32),
}

/// The entries of a group at a row, by column.
#[derive(Clone)]
pub(in crate::eviction) struct Entries<'a> {
    pub positions: &'a [u32],
    /// 0 for those in the cache, -inf for others: for every column up to that of the row's token.
    pub mask: &'a [f32],
    pub unprotected: Range<usize>,
}

/// `out[j] <- f(a[j], b[j])`, with the best instruction set.
struct Zip<'a, F>([Column<'a>; 2], &'a mut [f32], F);

impl<F: Fn(f32, f32) -> f32> vector::PlainLoop for Zip<'_, F> {
    #[inline(always)]
    fn run(self) {
        let Zip(arguments, out, f) = self;
        match arguments {
            [Column::Own(a), Column::Own(b)] => {
                for ((y, a), b) in out.iter_mut().zip(a).zip(b) {
                    *y = f(*a, *b);
                }
            }
            [Column::Own(a), Column::Same(b)] => {
                for (y, a) in out.iter_mut().zip(a) {
                    *y = f(*a, b);
                }
            }
            [Column::Same(a), Column::Own(b)] => {
                for (y, b) in out.iter_mut().zip(b) {
                    *y = f(a, *b);
                }
            }
            [Column::Same(a), Column::Same(b)] => out.fill(f(a, b)),
        }
    }
}

/// What is computed for each entry alone.
pub(super) fn elementwise(function: Function, [a, b, c]: [Column<'_>; 3], out: &mut [f32]) {
    let truth = |truth: bool| if truth { 1.0 } else { 0.0 };
    match function {
        Function::Add => vector::best(Zip([a, b], out, |a, b| a + b)),
        Function::Multiply => vector::best(Zip([a, b], out, |a, b| a * b)),
        Function::Divide => vector::best(Zip([a, b], out, |a, b| a / b)),
        Function::Less => vector::best(Zip([a, b], out, |a, b| truth(a < b))),
        Function::AtMost => vector::best(Zip([a, b], out, |a, b| truth(a <= b))),
        Function::Equal => vector::best(Zip([a, b], out, |a, b| truth(a == b))),
        Function::Unequal => vector::best(Zip([a, b], out, |a, b| truth(a != b))),
        Function::Min => vector::best(Zip([a, b], out, f32::min)),
        Function::Max => vector::best(Zip([a, b], out, f32::max)),
        Function::Abs => vector::best(Zip([a, b], out, |a: f32, _| a.abs())),
        Function::Sqrt => vector::best(Zip([a, b], out, |a: f32, _| a.sqrt())),
        Function::Log => vector::best(Zip([a, b], out, |a: f32, _| a.ln())),
        Function::Exp => vector::best(Zip([a, b], out, |a: f32, _| a.exp())),
        Function::If => {
            for (index, y) in out.iter_mut().enumerate() {
                *y = if a.at(index) == 0.0 { c } else { b }.at(index);
            }
        }
        // Computed elsewhere.
        _ => {}
    }
}

/// What is not a number counts as the highest value.
pub(super) fn highest_if_nan(number: f32) -> f32 {
    if number.is_nan() { f32::INFINITY } else { number }
}

/// Bits in the order of numbers; zeros of both signs are one.
fn ordered(number: f32) -> u32 {
    let bits = (highest_if_nan(number) + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

impl Column<'_> {
    fn at(self, index: usize) -> f32 {
        match self {
            Column::Own(values) => values[index],
            Column::Same(value) => value,
        }
    }
}

/// The mean or the maximum of heads' columns; a maximum is of those that are numbers.
pub(super) fn pool<'a>(columns: impl ExactSizeIterator<Item = Column<'a>>, is_mean: bool, out: &mut [f32]) {
    let scale = 1.0 / columns.len() as f32;
    out.fill(if is_mean { 0.0 } else { f32::NAN });
    for column in columns {
        let Column::Own(values) = column else { continue };
        if is_mean {
            vector::add_scaled(out, values, 1.0);
        } else {
            for (y, x) in out.iter_mut().zip(values) {
                *y = y.max(*x);
            }
        }
    }
    if is_mean {
        // After the sum, so that equal sums of whole numbers stay equal.
        out.iter_mut().for_each(|y| *y *= scale);
    }
}

/// What is computed over the entries in the cache.
pub(super) fn over_entries(function: Function, x: Column<'_>, entries: &Entries<'_>, out: &mut [f32]) {
    let mask = &entries.mask[..out.len()];
    match function {
        Function::Softmax => {
            let living = |index: &usize| mask[*index] == 0.0;
            let max = (0..out.len()).filter(living).map(|index| x.at(index)).fold(f32::NEG_INFINITY, f32::max);
            vector::best(Zip(
                [x, Column::Own(mask)],
                out,
                |x: f32, mask| if mask == 0.0 { (x - max).exp() } else { 0.0 },
            ));
            let sum: f64 = out.iter().map(|e| f64::from(*e)).sum();
            out.iter_mut().for_each(|e| *e = (f64::from(*e) / sum) as f32);
        }
        Function::Share => {
            let living = |index: &usize| mask[*index] == 0.0;
            let sum: f64 = (0..out.len()).filter(living).map(|index| f64::from(x.at(index))).sum();
            for (index, y) in out.iter_mut().enumerate() {
                *y = (f64::from(x.at(index)) / sum) as f32;
            }
        }
        _ => {
            // Columns are in the order of positions, so of equal ones the older has the lower key.
            let key = |index: usize| u64::from(ordered(x.at(index))) << 32 | index as u64;
            let candidates = entries.unprotected.clone().filter(|index| mask[*index] == 0.0);
            let mut sorted: Vec<u64> = candidates.map(key).collect();
            sorted.sort_unstable();
            for (index, y) in out.iter_mut().enumerate().filter(|(index, _)| !entries.unprotected.contains(index))
            {
                *y = sorted.partition_point(|other| *other < key(index)) as f32;
            }
            for (rank, key) in sorted.iter().enumerate() {
                out[(key & u64::from(u32::MAX)) as usize] = rank as f32;
            }
        }
    }
}

/// What is computed over `n` entries beside each of those in the cache, or over the entries of its block of `n` tokens.
pub(super) fn near_entries(function: Function, n: usize, x: Column<'_>, entries: &Entries<'_>, out: &mut [f32]) {
    let living: Vec<usize> = (0..out.len()).filter(|column| entries.mask[*column] == 0.0).collect();
    if function == Function::Block {
        for block in
            living.chunk_by(|a, b| entries.positions[*a] as usize / n == entries.positions[*b] as usize / n)
        {
            let sum: f64 = block.iter().map(|column| f64::from(x.at(*column))).sum();
            let mean = (sum / block.len() as f64) as f32;
            block.iter().for_each(|column| out[*column] = mean);
        }
        return;
    }
    let may_leave = |column: &usize| entries.unprotected.contains(column);
    for (place, column) in living.iter().enumerate() {
        let near = &living[place.saturating_sub(n / 2)..(place + n / 2 + 1).min(living.len())];
        let near = near.iter().filter(|column| may_leave(column)).map(|column| x.at(*column));
        out[*column] = match function {
            // Of nothing the sum is 0, and that of an iterator -0.
            Function::Smooth => (near.map(f64::from).fold(0.0, |sum, x| sum + x) / n as f64) as f32,
            _ => near.fold(
                f32::NEG_INFINITY,
                |most, x| if x.is_nan() || most.is_nan() { f32::NAN } else { most.max(x) },
            ),
        };
    }
}

/// When something is remembered, and for which of a group's heads.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub step: usize,
    pub positions: &'a [u32],
    pub member: usize,
}

/// Columns with a number for every entry that stay from row to row.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub columns: Vec<Vec<f32>>,
    /// Sums of the last steps, which would drift in f32.
    pub totals: Vec<Vec<f64>>,
    /// What an entry starts with.
    pub start: f32,
}

impl Kept {
    /// Adds a step's values. Writes what is remembered to `out`, unless it is a kept column itself.
    pub(super) fn remember(
        &mut self,
        function: Function,
        number: f32,
        at: Step<'_>,
        x: Column<'_>,
        out: &mut [f32],
    ) {
        let Step { step, positions, member } = at;
        let n = out.len();
        let age = |index: usize| (step - positions[index] as usize + 1) as f32;
        match function {
            Function::Sum | Function::Mean => {
                let sum = &mut self.columns[member][..n];
                match x {
                    Column::Own(x) => vector::add_scaled(sum, x, 1.0),
                    Column::Same(x) => sum.iter_mut().for_each(|sum| *sum += x),
                }
                if function == Function::Mean {
                    for (index, (y, sum)) in out.iter_mut().zip(sum).enumerate() {
                        *y = *sum / age(index);
                    }
                }
            }
            Function::Ema => {
                out.copy_from_slice(&self.columns[member][..n]);
                let kept = &mut self.columns[member][..n];
                vector::best(Zip([x, Column::Own(out)], kept, |x, before| number * before + x));
            }
            // Welford's sums, in which nothing cancels.
            Function::Std => {
                let (means, squares) = self.columns.split_at_mut(member * 2 + 1);
                let (means, squares) = (&mut means[member * 2], &mut squares[0]);
                for (index, y) in out.iter_mut().enumerate() {
                    let (x, steps) = (x.at(index), age(index));
                    let difference = x - means[index];
                    means[index] += difference / steps;
                    squares[index] += difference * (x - means[index]);
                    *y = (squares[index] / steps).sqrt();
                }
            }
            Function::Peak if number == 0.0 => {
                out.copy_from_slice(&self.columns[member][..n]);
                let kept = &mut self.columns[member][..n];
                vector::best(Zip([x, Column::Own(out)], kept, f32::max));
            }
            // The last steps' values, of which the oldest is replaced.
            _ => {
                let steps = number as usize;
                let last = &mut self.columns[member * steps..][..steps];
                let replaced = &mut last[step % steps];
                if function == Function::Window {
                    let totals = &mut self.totals[member];
                    for (index, y) in out.iter_mut().enumerate() {
                        totals[index] += f64::from(x.at(index)) - f64::from(replaced[index]);
                        *y = totals[index] as f32;
                    }
                }
                vector::best(Zip([x, x], &mut replaced[..n], |x, _| x));
                if function == Function::Window {
                    // What was infinite cannot be subtracted again.
                    let totals = &mut self.totals[member];
                    for (index, y) in out.iter_mut().enumerate().filter(|(_, y)| !y.is_finite()) {
                        totals[index] = last.iter().map(|values| f64::from(values[index])).sum();
                        *y = totals[index] as f32;
                    }
                }
                if function == Function::Peak {
                    out.fill(f32::NAN);
                    for values in last.iter() {
                        out.iter_mut().zip(values).for_each(|(y, x)| *y = y.max(*x));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_in_the_order_of_numbers() {
        let numbers = [f32::NEG_INFINITY, -2.0, -1e-40, 0.0, 1e-40, 0.5, 3.0, f32::INFINITY];
        assert!(numbers.map(ordered).is_sorted_by(|a, b| a < b));
        assert_eq!(ordered(-0.0), ordered(0.0));
    }
}

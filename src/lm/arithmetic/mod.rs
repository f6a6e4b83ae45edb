//! Numbers: matrices as they are stored, products with them in floats or in integers, norms and activations.

pub(super) mod blocks;
pub(super) mod integers;
pub(super) mod layers;
pub(super) mod matrix;
pub(super) mod packing;
pub(super) mod product;
pub(super) mod rows;
pub(super) mod stored_type;
pub(super) mod types;

/// Sets a value that only rounding can make negative to 0. (`max(0.0)` would turn NaN into 0, which reads as perfect.)
pub(in crate::lm) fn not_negative<T: PartialOrd + Default>(value: T) -> T {
    if value < T::default() { T::default() } else { value }
}

//! Scaling of rotary positions for texts longer than the model was trained on: the two ways that only change the
//! angles.
//!
//! A sweep can set them for a checkpoint that has no scaling of its own.

use std::fmt;

use anyhow::{Result, bail, ensure};

use super::config::ModelShape;
use super::rope_shape::RopeScaling;

/// A real number in settings; equal if the bits are.
#[derive(Clone, Copy, Debug)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl std::hash::Hash for Real {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// Way of scaling positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RopeOverrideKind {
    /// Division of positions by the factor (position interpolation, arXiv 2306.15595).
    Linear,
    /// Growth of the base, so that the slowest frequency is divided by the factor and the fastest is unchanged (NTK-aware, as in
    /// Code Llama, arXiv 2308.12950).
    Ntk,
}

/// The `rope_scaling` that a sweep sets for a checkpoint without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeOverride {
    pub kind: RopeOverrideKind,
    /// Factor by which texts get longer, at least 1.
    pub factor: Real,
}

impl fmt::Display for RopeOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            RopeOverrideKind::Linear => "linear",
            RopeOverrideKind::Ntk => "ntk",
        };
        write!(f, "{kind} {}", self.factor.0)
    }
}

impl ModelShape {
    /// Scales the positions for texts longer by the factor.
    ///
    /// # Errors
    ///
    /// A checkpoint with a scaling of its own.
    pub fn apply_rope_override(&mut self, rope_override: RopeOverride) -> Result<()> {
        let [rope] = &mut self.ropes[..] else {
            bail!("layers of this model have different positions; leave out the sweep's rope_scaling");
        };
        ensure!(
            matches!(rope.scaling, RopeScaling::None),
            "the checkpoint has a rope_scaling of its own; leave out the sweep's"
        );
        let RopeOverride { kind, factor: Real(factor) } = rope_override;
        match kind {
            RopeOverrideKind::Linear => rope.scaling = RopeScaling::Linear(factor),
            RopeOverrideKind::Ntk => {
                let dim = rope.dims as f64;
                // With two dimensions there is one frequency, which is the fastest.
                let power = if rope.dims > 2 { dim / (dim - 2.0) } else { 0.0 };
                rope.theta *= factor.powf(power);
            }
        }
        self.max_positions = (self.max_positions as f64 * factor) as usize;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lm::cache::rope::Rope;
    use crate::lm::network::random::tiny_shape;

    #[test]
    fn angles_of_scaled_positions() {
        let [linear, ntk] =
            [RopeOverrideKind::Linear, RopeOverrideKind::Ntk].map(|kind| RopeOverride { kind, factor: Real(4.0) });
        let angle = |overrides: &[RopeOverride], pair: usize| {
            let mut shape = tiny_shape();
            overrides.iter().for_each(|by| shape.apply_rope_override(*by).unwrap());
            let angles = Rope::new(&shape.ropes[0]).frequencies(false).angles([1.0].into_iter());
            f64::from(angles.row(0).1[pair]).asin()
        };
        for pair in 0..4 {
            assert!((angle(&[linear], pair) - angle(&[], pair) / 4.0).abs() < 1e-6);
        }
        assert!((angle(&[ntk], 0) - angle(&[], 0)).abs() < 1e-6);
        assert!((angle(&[ntk], 3) - angle(&[], 3) / 4.0).abs() < 1e-9);
        let mut shape = tiny_shape();
        shape.apply_rope_override(ntk).unwrap();
        assert_eq!(shape.max_positions, 4 * tiny_shape().max_positions);
        shape.apply_rope_override(linear).unwrap();
        assert!(shape.apply_rope_override(ntk).unwrap_err().to_string().contains("of its own"));
    }
}

//! Rotary positions. Angles are computed in f64, so that they are exact to f32 for texts of any length.

use std::f64::consts::TAU;

use crate::eviction::formula::MeanRotation;
use crate::lm::shape::rope_shape::{RopeScaling, RopeShape};

/// Angular frequencies of the rotated pairs of a head, and the factor on rotated vectors.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::lm) struct Frequencies {
    /// (dims / 2)
    pub pairs: Vec<f64>,
    pub factor: f64,
}

/// The frequencies of a rotation, which may be others for long texts.
#[derive(Clone, Debug)]
pub(in crate::lm) struct Rope {
    usual: Frequencies,
    long: Option<Frequencies>,
}

/// Cosines and sines of some positions: (positions, dims / 2).
#[derive(Clone, Debug, Default)]
pub(in crate::lm) struct Angles {
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
    pairs: usize,
}

impl Angles {
    /// Cosines and sines of the `row`-th position.
    pub fn row(&self, row: usize) -> (&[f32], &[f32]) {
        let range = row * self.pairs..(row + 1) * self.pairs;
        (&self.cos[range.clone()], &self.sin[range])
    }

    /// Adds a position.
    pub fn push(&mut self, frequencies: &Frequencies, position: f64) {
        self.pairs = frequencies.pairs.len();
        for frequency in &frequencies.pairs {
            let (sin, cos) = (position * frequency).sin_cos();
            self.cos.push((cos * frequencies.factor) as f32);
            self.sin.push((sin * frequencies.factor) as f32);
        }
    }
}

impl Rope {
    pub fn new(shape: &RopeShape) -> Rope {
        let long = matches!(shape.scaling, RopeScaling::LongRope { .. }).then(|| Frequencies::new(shape, true));
        Rope { usual: Frequencies::new(shape, false), long }
    }

    /// The frequencies for a text that is `long`, that is, beyond the original length of a model.
    pub fn frequencies(&self, long: bool) -> &Frequencies {
        self.long.as_ref().filter(|_| long).unwrap_or(&self.usual)
    }
}

impl Frequencies {
    fn new(rope: &RopeShape, long: bool) -> Frequencies {
        let frequency = |pair: usize| rope.theta.powf(-(2.0 * pair as f64) / rope.dims as f64);
        let pairs = rope.dims / 2;
        let divided = |factors: &[f64]| (0..pairs).map(|pair| frequency(pair) / factors[pair]).collect();
        let (pairs, factor) = match &rope.scaling {
            RopeScaling::None => ((0..pairs).map(frequency).collect(), 1.0),
            RopeScaling::Linear(factor) => ((0..pairs).map(|pair| frequency(pair) / factor).collect(), 1.0),
            RopeScaling::Factors(factors) => (divided(factors), 1.0),
            RopeScaling::LongRope { short, long: factors, attention_factor, .. } => {
                (divided(if long { factors } else { short }), *attention_factor)
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, truncate, original, attention_factor } => {
                // The share of each pair's frequency that is kept (transformers, `_compute_yarn_parameters`).
                let dims = rope.dims as f64;
                let pair_with =
                    |rotations: f64| dims * (*original as f64 / (rotations * TAU)).ln() / (2.0 * rope.theta.ln());
                let (low, high) = (pair_with(*beta_fast), pair_with(*beta_slow));
                let (low, high) = if *truncate { (low.floor(), high.ceil()) } else { (low, high) };
                let (low, high) = (low.max(0.0), high.min(dims - 1.0));
                let high = if low == high { high + 0.001 } else { high };
                let kept = |pair: usize| 1.0 - ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                let blended = |pair: usize| frequency(pair) * (kept(pair) + (1.0 - kept(pair)) / factor);
                ((0..pairs).map(blended).collect(), *attention_factor)
            }
            RopeScaling::Llama3(llama3) => {
                let factor = f64::from(llama3.factor);
                let (low, high) = (f64::from(llama3.low_freq_factor), f64::from(llama3.high_freq_factor));
                let trained = llama3.original_max_position_embeddings as f64;
                let blended = |pair: usize| {
                    let frequency = frequency(pair);
                    let wavelength = TAU / frequency;
                    if wavelength < trained / high {
                        frequency
                    } else if wavelength > trained / low {
                        frequency / factor
                    } else {
                        let smooth = (trained / wavelength - low) / (high - low);
                        (1.0 - smooth) * frequency / factor + smooth * frequency
                    }
                };
                ((0..pairs).map(blended).collect(), 1.0)
            }
        };
        Frequencies { pairs, factor }
    }

    pub fn angles(&self, positions: impl Iterator<Item = f64>) -> Angles {
        let mut angles = Angles { pairs: self.pairs.len(), ..Angles::default() };
        positions.for_each(|position| angles.push(self, position));
        angles
    }

    /// The mean of the rotations by the next `positions` after one: a geometric series of e^(i frequency).
    pub fn mean_rotation(&self, position: f64, positions: usize) -> MeanRotation {
        let n = positions as f64;
        let mean = self.pairs.iter().map(|frequency| {
            let half = frequency / 2.0;
            let length = if half.sin() == 0.0 { 1.0 } else { (n * half).sin() / (n * half.sin()) };
            let (sin, cos) = ((position + (n + 1.0) / 2.0) * frequency).sin_cos();
            (self.factor * length * cos, self.factor * length * sin)
        });
        let (cos, sin) = mean.unzip();
        MeanRotation { cos, sin }
    }

    /// The angles by which a vector is rotated when it moves by a distance.
    pub fn rotation(&self, distance: f64) -> Angles {
        Frequencies { pairs: self.pairs.clone(), factor: 1.0 }.angles(std::iter::once(distance))
    }
}

/// Rotates the first dimensions of one head: the half-split pairing (j, j + dims / 2) of Hugging Face's models. The others are
/// copied. All are multiplied by `scale`.
pub(in crate::lm) fn rotate_head(from: &[f32], (cos, sin): (&[f32], &[f32]), scale: f32, to: &mut [f32]) {
    let pairs = cos.len();
    let (rotated, rest) = from.split_at(2 * pairs);
    let (to_rotated, to_rest) = to.split_at_mut(2 * pairs);
    let (a, b) = rotated.split_at(pairs);
    let (to_a, to_b) = to_rotated.split_at_mut(pairs);
    for j in 0..pairs {
        to_a[j] = (a[j] * cos[j] - b[j] * sin[j]) * scale;
        to_b[j] = (b[j] * cos[j] + a[j] * sin[j]) * scale;
    }
    for (to, from) in to_rest.iter_mut().zip(rest) {
        *to = from * scale;
    }
}

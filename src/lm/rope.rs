//! Rotary positions. Angles are computed in f64, so that they are exact to f32 for texts of any length.

use super::config::{RopeScaling, RopeShape};

/// Angular frequencies of the pairs of a head: (head_dim / 2).
#[derive(Clone, Debug)]
pub(super) struct Frequencies(Vec<f64>);

/// Cosines and sines of some positions: (positions, head_dim / 2).
#[derive(Clone, Debug, Default)]
pub(super) struct Angles {
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
}

impl Frequencies {
    pub fn new(rope: &RopeShape, head_dim: usize) -> Frequencies {
        let frequency = |pair: usize| rope.theta.powf(-(2.0 * pair as f64) / head_dim as f64);
        let scaled = |pair: usize, frequency: f64| match &rope.scaling {
            RopeScaling::None => frequency,
            RopeScaling::Linear(factor) => frequency / factor,
            RopeScaling::Factors(factors) => frequency / factors[pair],
            RopeScaling::Llama3(llama3) => {
                let factor = f64::from(llama3.factor);
                let (low, high) = (f64::from(llama3.low_freq_factor), f64::from(llama3.high_freq_factor));
                let trained = llama3.original_max_position_embeddings as f64;
                let wavelength = 2.0 * std::f64::consts::PI / frequency;
                if wavelength < trained / high {
                    frequency
                } else if wavelength > trained / low {
                    frequency / factor
                } else {
                    let smooth = (trained / wavelength - low) / (high - low);
                    (1.0 - smooth) * frequency / factor + smooth * frequency
                }
            }
        };
        Frequencies((0..head_dim / 2).map(|pair| scaled(pair, frequency(pair))).collect())
    }

    pub fn angles(&self, positions: impl Iterator<Item = f64>) -> Angles {
        let mut angles = Angles { pairs: self.0.len(), ..Angles::default() };
        for position in positions {
            for frequency in &self.0 {
                let (sin, cos) = (position * frequency).sin_cos();
                angles.cos.push(cos as f32);
                angles.sin.push(sin as f32);
            }
        }
        angles
    }
}

/// Rotates one head: the half-split pairing (j, j + dim / 2) of Hugging Face's Llama.
pub(super) fn rotate_head(from: &[f32], (cos, sin): (&[f32], &[f32]), scale: f32, to: &mut [f32]) {
    let pairs = from.len() / 2;
    let (a, b) = from.split_at(pairs);
    let (to_a, to_b) = to.split_at_mut(pairs);
    for j in 0..pairs {
        to_a[j] = (a[j] * cos[j] - b[j] * sin[j]) * scale;
        to_b[j] = (b[j] * cos[j] + a[j] * sin[j]) * scale;
    }
}

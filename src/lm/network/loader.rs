//! Takes the tensors of a model's parts, by their names in it.

use std::sync::Arc;

use anyhow::{Result, ensure};
use candle_core::{DType, Tensor, WithDType};

use crate::lm::arithmetic::layers::{Linear, Weight, bytes_of, compute_type};
use crate::lm::arithmetic::matrix::Matrix;
use crate::lm::arithmetic::types::Arithmetic;
use crate::lm::device::Device;
use crate::lm::files::weights::Weights;
use crate::lm::shape::config::ModelShape;

/// Loader of the tensors of a part of a model, rounded to a type.
pub(super) struct Loader<'a> {
    weights: &'a mut Weights,
    pub shape: &'a ModelShape,
    pub dtype: DType,
    pub device: &'a candle_core::Device,
    arithmetic: Arithmetic,
    /// Beginning of the names of the part's tensors.
    part: String,
}

impl<'a> Loader<'a> {
    pub fn new(weights: &'a mut Weights, shape: &'a ModelShape, dtype: DType, device: &'a Device) -> Loader<'a> {
        let (device, arithmetic, part) = (&device.products, device.arithmetic, "model".to_owned());
        Loader { weights, shape, dtype, device, arithmetic, part }
    }

    /// Loader of a part of this part.
    pub fn of(&mut self, part: &str) -> Loader<'_> {
        Loader { part: self.name(part), weights: &mut *self.weights, ..*self }
    }

    fn name(&self, name: &str) -> String {
        format!("{}.{name}", self.part)
    }

    /// Whether llama.cpp's converter wrote the tensors.
    pub fn is_gguf(&self) -> bool {
        self.weights.is_gguf()
    }

    pub fn has(&self, name: &str) -> bool {
        self.weights.has(&self.name(name))
    }

    /// Undoes an order of rows, see [`Weights::permute`].
    pub fn permute(&mut self, name: &str, heads: usize) {
        self.weights.permute(&self.name(name), heads);
    }

    /// Marks matrices as transposed, see [`Weights::transpose`].
    pub fn transpose(&mut self, name: &str, by_turns: bool) {
        self.weights.transpose(&self.name(name), by_turns);
    }

    /// Splits a tensor, see [`Weights::unstack`].
    pub fn unstack(&mut self, name: &str, count: usize, of: impl Fn(usize) -> String) -> Result<()> {
        let part = &self.part;
        self.weights.unstack(&format!("{part}.{name}"), count, |index| format!("{part}.{}", of(index)))
    }

    /// Takes a tensor to the host.
    pub fn tensor(&mut self, name: &str, sides: &[usize], dtype: DType) -> Result<Tensor> {
        self.weights.take(&self.name(name), sides, dtype, &candle_core::Device::Cpu)
    }

    /// Takes the numbers of a tensor.
    pub fn numbers<T: WithDType>(&mut self, name: &str, sides: &[usize]) -> Result<Vec<T>> {
        Ok(self.tensor(name, sides, T::DTYPE)?.flatten_all()?.to_vec1()?)
    }

    /// Adds to the number of bytes that the weights take in memory.
    pub fn count(&mut self, bytes: impl IntoIterator<Item = usize>) {
        self.weights.held += bytes.into_iter().sum::<usize>();
    }

    /// Takes a vector that rows are multiplied by, in the type of products.
    pub fn vector(&mut self, name: &str, length: usize) -> Result<Tensor> {
        let vector = self.weights.take(&self.name(name), &[length], self.dtype, self.device)?;
        let vector = vector.to_dtype(compute_type(self.device, self.dtype, false))?;
        self.count([bytes_of(&vector)]);
        Ok(vector)
    }

    /// Makes the weight of a norm that has none: ones.
    pub fn ones(&mut self, length: usize) -> Result<Tensor> {
        let ones = Tensor::ones(length, compute_type(self.device, self.dtype, false), self.device)?;
        self.count([bytes_of(&ones)]);
        Ok(ones)
    }

    /// Takes the weight of a norm. A GGUF file has 1 + w where a checkpoint has w.
    pub fn norm(&mut self, name: &str, length: usize) -> Result<Tensor> {
        let weight = self.vector(&format!("{name}.weight"), length)?;
        Ok(if self.shape.norm_adds_one && !self.is_gguf() { (weight + 1.0)? } else { weight })
    }

    /// Takes the matrix `name.weight` (out, in).
    pub fn matrix(&mut self, name: &str, sides: (usize, usize)) -> Result<Weight> {
        let matrix =
            self.weights.take_matrix(&self.name(&format!("{name}.weight")), sides, self.dtype, self.device)?;
        self.count([matrix.bytes()]);
        Ok(matrix)
    }

    /// Takes the matrix `name.weight` (out, in), and `name.bias` (out) if the model has one.
    ///
    /// # Errors
    ///
    /// Tensors that are missing or of another shape, or a bias that transformers would ignore.
    pub fn linear(&mut self, name: &str, (out, input): (usize, usize)) -> Result<Linear> {
        let bias = format!("{name}.bias");
        let kind = name.rsplit('.').next().unwrap_or(name);
        let is_biased = if self.is_gguf() { self.has(&bias) } else { self.shape.biased.contains(&kind) };
        ensure!(
            is_biased || !self.has(&bias),
            "the checkpoint has {}, which a model of model_type {:?} with this config.json does not use: if the model was trained \
             with biases, say so there (\"attention_bias\": true or \"mlp_bias\": true, where the family has them); if not, remove them",
            self.name(&bias),
            self.shape.family
        );
        let weight = self.matrix(name, (out, input))?;
        let bias = match is_biased {
            true => Some(self.weights.take(&self.name(&bias), &[out], self.dtype, self.device)?),
            false => None,
        };
        self.count(bias.as_ref().map(bytes_of));
        Ok(Linear { weight, bias })
    }

    /// Takes the matrix `name.weight` (out, in) and its bias, for products in integers if these are asked for and keep what the
    /// weights are stored as.
    pub fn product(&mut self, name: &str, sides: (usize, usize)) -> Result<Linear> {
        let linear = self.linear(name, sides)?;
        Ok(self.converted(linear))
    }

    pub fn converted(&mut self, mut linear: Linear) -> Linear {
        if self.arithmetic == Arithmetic::Fast {
            self.weights.held -= linear.bytes();
            self.weights.has_integers |= linear.use_integers();
            self.weights.held += linear.bytes();
        }
        linear
    }

    /// Takes several matrices as they are stored, by their names and sides (out, in).
    pub fn linears(&mut self, matrices: Vec<(&str, usize, usize)>) -> Result<Vec<Linear>> {
        matrices.into_iter().map(|(name, out, input)| self.linear(name, (out, input))).collect()
    }

    /// Takes `count` matrices of the same sides: `0.part`, `1.part` and so on, or stacked in one tensor `part`.
    pub fn stacked(&mut self, part: &str, count: usize, sides: (usize, usize)) -> Result<Vec<Linear>> {
        // Some checkpoints give the stack itself no ending.
        self.unstack(part, count, |index| format!("{index}.{part}.weight"))?;
        for kind in ["weight", "bias"] {
            self.unstack(&format!("{part}.{kind}"), count, |index| format!("{index}.{part}.{kind}"))?;
        }
        (0..count).map(|index| self.linear(&format!("{index}.{part}"), sides)).collect()
    }

    /// Makes a layer of a matrix (out, in) and a bias (out) that were taken to the host.
    pub fn linear_of(&mut self, matrix: &Tensor, bias: Option<&Tensor>) -> Result<Linear> {
        let matrix = matrix.contiguous()?;
        let weight = match self.device.is_cpu() {
            true => Weight::Host(Arc::new(Matrix::new(&matrix)?)),
            false => Weight::Device(matrix.to_device(self.device)?),
        };
        let bias = bias.map(|bias| bias.to_device(self.device)).transpose()?;
        let linear = Linear { weight, bias };
        self.count([linear.bytes()]);
        Ok(linear)
    }
}

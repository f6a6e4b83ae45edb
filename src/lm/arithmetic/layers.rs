//! Linear layers: on the CPU over whole rows of f32, elsewhere candle's.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, bail};
use candle_core::{DType, Device, Tensor, WithDType};

use super::integers::{self, IntegerMatrix, IntegerRows};
use super::matrix::{Matrix, Number, multiply_few};
use super::rows::{add, on_host};

/// Linear layer, y = x W^T + b.
#[derive(Debug)]
pub(in crate::lm) struct Linear {
    pub weight: Weight,
    /// Bias (out), if there is one.
    pub bias: Option<Tensor>,
}

/// Matrix (out, in). Clones share its memory.
#[derive(Clone, Debug)]
pub(in crate::lm) enum Weight {
    Host(Arc<Matrix>),
    /// Matrix on the host, for products in integers.
    Integers(Arc<IntegerMatrix>),
    Device(Tensor),
}

/// Function that multiplies with a range of outputs on up to a number of threads.
type PartialProducts<'a> = Box<dyn Fn(Range<usize>, usize) -> Result<Tensor> + Sync + 'a>;

/// How products with weights are computed on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lm) enum Products {
    /// Products for any number of rows, on up to `threads` threads.
    Many { threads: usize },
    /// Products for a few rows in f32; every weight is read once.
    Few,
}

impl Weight {
    /// Sides of the matrix: (out, in)
    pub fn sides(&self) -> Result<(usize, usize)> {
        Ok(match self {
            Weight::Host(matrix) => (matrix.rows, matrix.columns),
            Weight::Integers(matrix) => (matrix.rows, matrix.columns),
            Weight::Device(tensor) => tensor.dims2()?,
        })
    }

    /// Bytes of the matrix in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Weight::Host(matrix) => matrix.bytes(),
            Weight::Integers(matrix) => matrix.bytes(),
            Weight::Device(tensor) => bytes_of(tensor),
        }
    }

    /// Rows of the matrix for some tokens, converted to `compute`: (tokens, in)
    pub fn embed(&self, tokens: &[u32], compute: DType) -> Result<Tensor> {
        let rows = match self {
            Weight::Device(tensor) => tensor.index_select(&Tensor::new(tokens, tensor.device())?, 0)?,
            Weight::Host(_) | Weight::Integers(_) => {
                let row = |token: &u32| self.rows(*token as usize..*token as usize + 1);
                let rows = tokens.iter().map(row).collect::<Result<Vec<_>>>()?;
                Tensor::from_vec(rows.concat(), (tokens.len(), ()), &Device::Cpu)?
            }
        };
        Ok(rows.to_dtype(compute)?)
    }

    /// Range of rows of the matrix in f32: (rows, in)
    pub fn rows(&self, rows: Range<usize>) -> Result<Vec<f32>> {
        match self {
            Weight::Host(matrix) => Ok(matrix.floats(rows, &mut Vec::new()).to_vec()),
            Weight::Integers(matrix) => Ok(matrix.floats(rows)),
            Weight::Device(tensor) => {
                let part = tensor.narrow(0, rows.start, rows.len())?.to_dtype(DType::F32)?;
                Ok(part.to_device(&Device::Cpu)?.flatten_all()?.to_vec1()?)
            }
        }
    }

    /// Prepares products of x (rows, in) with a range of outputs at a time: (rows, outputs).
    pub fn products<'a>(&'a self, x: &'a Tensor) -> Result<PartialProducts<'a>> {
        fn here<'a, T: Number + WithDType>(x: &'a Tensor, matrix: &'a Matrix) -> PartialProducts<'a> {
            Box::new(move |outputs, threads| {
                let width = outputs.len();
                let y = on_host([x], |[x]: [&[T]; 1]| matrix.multiply(x, outputs, threads))?;
                Ok(Tensor::from_vec(y, ((), width), &Device::Cpu)?)
            })
        }
        Ok(match self {
            Weight::Host(matrix) if x.dtype() == DType::F64 => here::<f64>(x, matrix),
            Weight::Host(matrix) => here::<f32>(x, matrix),
            Weight::Integers(matrix) => {
                let x = on_host([x], |[x]| IntegerRows::new(x, matrix))?;
                Box::new(move |outputs, _| {
                    let width = outputs.len();
                    let y = integers::multiply_part(&x, matrix, outputs);
                    Ok(Tensor::from_vec(y, ((), width), &Device::Cpu)?)
                })
            }
            Weight::Device(tensor) => Box::new(move |outputs, _| {
                let part = tensor.narrow(0, outputs.start, outputs.len())?;
                Ok(x.matmul(&part.to_dtype(x.dtype())?.t()?)?)
            }),
        })
    }
}

impl Linear {
    /// Splits a fused matrix into parts of `rows` rows each, from the first row on.
    pub fn split<const N: usize>(&self, rows: [usize; N]) -> Result<[Linear; N]> {
        let mut start = 0;
        let parts = rows.map(|rows| {
            let weight = match &self.weight {
                Weight::Host(matrix) => Weight::Host(Arc::new(matrix.part(start..start + rows))),
                Weight::Integers(_) => bail!("matrices are split as they are stored"),
                Weight::Device(tensor) => Weight::Device(tensor.narrow(0, start, rows)?.contiguous()?),
            };
            let bias = self.bias.as_ref().map(|bias| bias.narrow(0, start, rows)).transpose()?;
            start += rows;
            Ok(Linear { weight, bias })
        });
        Ok(parts.into_iter().collect::<Result<Vec<_>>>()?.try_into().expect("as many parts as asked for"))
    }

    /// Bytes of the weights in memory.
    pub fn bytes(&self) -> usize {
        self.weight.bytes() + self.bias.as_ref().map_or(0, bytes_of)
    }

    /// Applies the layer: (rows, in) -> (rows, out)
    pub fn forward(&self, x: &Tensor, products: Products) -> Result<Tensor> {
        let [y] = Linear::forward_all([self], x, products)?;
        Ok(y)
    }

    /// Applies several layers to the same rows: (rows, in) -> (rows, out) each.
    pub fn forward_all<const N: usize>(
        layers: [&Linear; N],
        x: &Tensor,
        products: Products,
    ) -> Result<[Tensor; N]> {
        let threads =
            if let Products::Many { threads } = products { threads } else { rayon::current_num_threads() };
        let (mut stored, mut integers) = (Vec::new(), Vec::new());
        for layer in layers {
            match &layer.weight {
                Weight::Host(matrix) => stored.push(&**matrix),
                Weight::Integers(matrix) => integers.push(&**matrix),
                Weight::Device(_) => {}
            }
        }
        let tensor = |y: Vec<f32>| Ok(Tensor::from_vec(y, (x.dim(0)?, ()), &Device::Cpu)?);
        let products: Vec<Tensor> = if integers.len() == N {
            let products = on_host([x], |[x]| integers::multiply(x, &integers, threads))?;
            products.into_iter().map(tensor).collect::<Result<_>>()?
        } else if stored.len() == N && products == Products::Few && x.dtype() == DType::F32 {
            let products = on_host([x], |[x]| multiply_few(x, &stored))?;
            products.into_iter().map(tensor).collect::<Result<_>>()?
        } else {
            let product = |layer: &Linear| {
                let outputs = layer.weight.sides()?.0;
                let product = |x: &Tensor| layer.weight.products(x)?(0..outputs, threads);
                if let Weight::Device(_) = layer.weight { in_pieces(x, products, product) } else { product(x) }
            };
            layers.into_iter().map(product).collect::<Result<_>>()?
        };
        let biased = products.into_iter().zip(layers).map(|(y, layer)| match &layer.bias {
            Some(bias) => {
                let bias = bias.to_dtype(y.dtype())?;
                add(y, &bias)
            }
            None => Ok(y),
        });
        Ok(biased.collect::<Result<Vec<_>>>()?.try_into().expect("as many products as layers"))
    }

    /// Switches to products in integers if these keep what the layer's weights are stored as, and returns whether it did. Does
    /// nothing on a device.
    pub fn use_integers(&mut self) -> bool {
        if let Weight::Host(matrix) = &self.weight
            && let Some(integers) = IntegerMatrix::new(matrix)
        {
            self.weight = Weight::Integers(Arc::new(integers));
        }
        matches!(self.weight, Weight::Integers(_))
    }
}

/// Number of rows that a product of a few rows always has on a device.
pub(in crate::lm) const FEW_ROWS: usize = 64;

/// Multiplies x (rows, in) on a device. Its library chooses how to compute by the number of rows, and the bits of a text must not
/// depend on how many others are written beside it, so a few rows are filled up to [`FEW_ROWS`].
pub(in crate::lm) fn in_pieces(
    x: &Tensor,
    products: Products,
    multiply: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let rows = x.dim(0)?;
    if products != Products::Few {
        return multiply(x);
    }
    let padded = x.pad_with_zeros(0, 0, rows.next_multiple_of(FEW_ROWS) - rows)?;
    let piece = |first: usize| multiply(&padded.narrow(0, first, FEW_ROWS)?);
    let pieces = (0..rows).step_by(FEW_ROWS).map(piece).collect::<Result<Vec<_>>>()?;
    Ok(Tensor::cat(&pieces, 0)?.narrow(0, 0, rows)?)
}

/// Bytes of a tensor's numbers.
pub(in crate::lm) fn bytes_of(tensor: &Tensor) -> usize {
    tensor.elem_count() * tensor.dtype().size_in_bytes()
}

/// Type of products with weights: f32 on the CPU, the stored type elsewhere, f64 if asked for.
pub(in crate::lm) fn compute_type(device: &Device, stored: DType, compute_f64: bool) -> DType {
    if compute_f64 {
        DType::F64
    } else if device.is_cpu() {
        DType::F32
    } else {
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_rows_are_multiplied_as_many_at_a_time_however_many_there_are() {
        let numbers = |count: usize| (0..count).map(|i| (i * 7 % 11) as f32 - 5.0).collect::<Vec<_>>();
        let weights = Tensor::from_vec(numbers(5 * 8), (5, 8), &Device::Cpu).unwrap();
        for rows in [1, 63, 64, 65, 200] {
            let x = Tensor::from_vec(numbers(rows * 8), (rows, 8), &Device::Cpu).unwrap();
            let multiply = |x: &Tensor| Ok(x.matmul(&weights.t()?)?);
            let few = in_pieces(&x, Products::Few, |x| {
                assert_eq!(x.dims2()?.0, FEW_ROWS);
                multiply(x)
            });
            let [few, all] = [few, multiply(&x)].map(|y| y.unwrap().to_vec2::<f32>().unwrap());
            assert_eq!(few, all, "{rows} rows");
        }
    }
}

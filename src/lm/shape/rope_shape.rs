//! Settings of rotary positions, as a config.json gives them under transformers 4's and 5's keys.

use anyhow::{Context, Result, bail, ensure};
use candle_transformers::models::llama::{Llama3RopeConfig, Llama3RopeType};
use serde::Deserialize;
use serde_json::Value;

/// Rotation of queries and keys.
#[derive(Clone, Debug)]
pub struct RopeShape {
    pub theta: f64,
    pub scaling: RopeScaling,
    /// Number of a head's first dimensions that are rotated; the others stay as they are. 0 in layers without positions.
    pub dims: usize,
}

/// `rope_scaling` of config.json.
#[derive(Clone, Debug)]
pub enum RopeScaling {
    None,
    /// Division of positions by the factor.
    Linear(f64),
    /// Division of low frequencies by a factor; high ones are kept and those between blended (Llama 3.1).
    Llama3(Llama3RopeConfig),
    /// Division of each frequency by a factor of its own.
    Factors(Vec<f64>),
    /// Blended division like `Llama3`, with other limits; rotated vectors are also multiplied by a factor (arXiv 2309.00071).
    Yarn {
        factor: f64,
        /// Rotations within the original length above which a frequency is kept; below `beta_slow` it is divided.
        beta_fast: f64,
        beta_slow: f64,
        /// Whether the limits are rounded to whole pairs of dimensions.
        truncate: bool,
        original: usize,
        attention_factor: f64,
    },
    /// Division of each frequency by a factor of its own, with other factors for texts beyond the original length; rotated vectors
    /// are also multiplied by a factor (arXiv 2402.13753).
    LongRope {
        short: Vec<f64>,
        long: Vec<f64>,
        original: usize,
        attention_factor: f64,
    },
}

impl RopeShape {
    /// Rotation of layers without positions.
    pub const NONE: RopeShape = RopeShape { theta: 1.0, scaling: RopeScaling::None, dims: 0 };

    /// Reads `record`, which is `rope_scaling` or `rope_parameters` or a part of it, for heads of `head_dim`. `config` is the
    /// whole file, in which transformers 4 has some of the settings.
    ///
    /// # Errors
    /// Settings that are missing or out of range, and unknown types.
    pub fn parse(record: &Value, config: &Value, default_theta: f64, head_dim: usize) -> Result<RopeShape> {
        ensure!(
            record.is_object() || record.is_null(),
            "rope_scaling or rope_parameters is {record}; it must be an object with `rope_type` and what belongs to that"
        );
        let either = |name: &str| anyhow::Ok(number(record, name)?.or(number(config, name)?));
        let theta = either("rope_theta")?.unwrap_or(default_theta);
        ensure!(theta.is_finite() && theta > 0.0, "rope_theta is {theta}; it must be a positive number");
        let partial = either("partial_rotary_factor")?.unwrap_or(1.0);
        ensure!((0.0..=1.0).contains(&partial), "partial_rotary_factor is {partial}; it must be a share of 1");
        let dims = (head_dim as f64 * partial) as usize;
        ensure!(
            partial == 1.0 || dims.is_multiple_of(2),
            "partial_rotary_factor {partial} rotates {dims} dimensions, which are no pairs"
        );
        let scaling = RopeSettings { record, config, pairs: dims / 2 }.scaling()?;
        Ok(RopeShape { theta, scaling, dims })
    }
}

/// Reads a number of a record; `None` if it is missing or null.
pub(super) fn number(json: &Value, name: &str) -> Result<Option<f64>> {
    match &json[name] {
        Value::Null => Ok(None),
        value => value.as_f64().map(Some).with_context(|| format!("{name} is {value}; it must be a number")),
    }
}

struct RopeSettings<'j> {
    record: &'j Value,
    config: &'j Value,
    pairs: usize,
}

impl RopeSettings<'_> {
    /// Reads `rope_type`, which transformers 4 calls `type`.
    fn kind(&self) -> Result<&str> {
        let kinds = ["rope_type", "type"].into_iter().map(|name| &self.record[name]);
        let kind = kinds.into_iter().find(|kind| !kind.is_null());
        kind.map_or(Ok("default"), |kind| {
            kind.as_str().with_context(|| format!("rope_type is {kind}; it must be a text"))
        })
    }

    fn scaling(&self) -> Result<RopeScaling> {
        Ok(match self.kind()? {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear(self.required("factor")?),
            "llama3" => RopeScaling::Llama3(Llama3RopeConfig {
                factor: self.required("factor")? as f32,
                low_freq_factor: self.required("low_freq_factor")? as f32,
                high_freq_factor: self.required("high_freq_factor")? as f32,
                original_max_position_embeddings: self.original()?,
                rope_type: Llama3RopeType::Llama3,
            }),
            "yarn" => self.yarn()?,
            // Early Phi-3 checkpoints say `su`.
            "longrope" | "su" => self.long_rope()?,
            other => bail!(
                "rope_scaling of type {other:?} is not supported; only default, linear, llama3, yarn and longrope are"
            ),
        })
    }

    fn positive(&self, name: &str) -> Result<Option<f64>> {
        let value = &self.record[name];
        if value.is_null() {
            return Ok(None);
        }
        // It is used in single precision, which must not overflow or become 0.
        let number = value.as_f64().filter(|number| (*number as f32).is_finite() && *number as f32 > 0.0);
        Ok(Some(number.with_context(|| format!("rope_scaling's {name} is {value}; it must be positive"))?))
    }

    fn required(&self, name: &str) -> Result<f64> {
        let kind = self.kind()?;
        self.positive(name)?.with_context(|| format!("rope_scaling of type {kind:?} has no number {name:?}"))
    }

    /// Length of texts in tokens before positions were stretched.
    fn original(&self) -> Result<usize> {
        let name = "original_max_position_embeddings";
        let said = [(self.config, name), (self.record, name), (self.config, "max_position_embeddings")];
        let Some((json, name)) = said.into_iter().find(|(json, name)| !json[*name].is_null()) else {
            bail!("rope_scaling of type {:?} has no number {name:?}", self.kind()?)
        };
        let original = json[name].as_u64().filter(|original| *original > 0);
        Ok(original.with_context(|| format!("{name} is {}; it must be a positive whole number", json[name]))?
            as usize)
    }

    /// Factor by which texts became longer, if the record does not say it.
    fn stretch(&self, original: usize) -> Result<f64> {
        if let Some(factor) = self.positive("factor")? {
            return Ok(factor);
        }
        let longest = number(self.config, "max_position_embeddings")?;
        Ok(longest.context("the number max_position_embeddings is missing")? / original as f64)
    }

    fn yarn(&self) -> Result<RopeScaling> {
        let original = self.original()?;
        let factor = self.stretch(original)?;
        let scale = |mscale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
        let mscale = |name: &str| anyhow::Ok(number(self.record, name)?.filter(|mscale| *mscale != 0.0));
        let inferred = match (mscale("mscale")?, mscale("mscale_all_dim")?) {
            (Some(own), Some(all)) => scale(own) / scale(all),
            _ => scale(1.0),
        };
        Ok(RopeScaling::Yarn {
            factor,
            beta_fast: self.positive("beta_fast")?.unwrap_or(32.0),
            beta_slow: self.positive("beta_slow")?.unwrap_or(1.0),
            truncate: Option::deserialize(&self.record["truncate"])
                .context("rope_scaling's truncate has the wrong type")?
                .unwrap_or(true),
            original,
            attention_factor: self.positive("attention_factor")?.unwrap_or(inferred),
        })
    }

    fn long_rope(&self) -> Result<RopeScaling> {
        let original = self.original()?;
        let factor = self.stretch(original)?;
        let inferred = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() };
        Ok(RopeScaling::LongRope {
            short: self.factors("short_factor")?,
            long: self.factors("long_factor")?,
            original,
            attention_factor: self.positive("attention_factor")?.unwrap_or(inferred),
        })
    }

    /// Reads a list with one factor for each pair of dimensions.
    fn factors(&self, name: &str) -> Result<Vec<f64>> {
        let factors: Vec<f64> =
            self.record[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        ensure!(
            factors.len() == self.pairs && factors.iter().all(|factor| factor.is_normal() && *factor > 0.0),
            "rope_scaling's {name} has to hold {} positive numbers, one for each rotated pair of dimensions",
            self.pairs
        );
        Ok(factors)
    }
}

//! In how many bits a cache stores keys and values.
//!
//! A key, after rotation, and a value are rounded when their token joins, and what is stored is what queries attend to, the newest
//! token's own included; only KIVI's newest entries stay in 16 bits for a while. An entry is stored once: it moves as it is when others
//! are evicted. Scores that need keys or values see what is stored; norms of a key or value that a score reads when the token joins
//! are of the numbers before.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::settings::{Keyword, keyword, name_of};

/// How each number of a vector is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NumberFormat {
    #[default]
    F32,
    F16,
    Bf16,
    Fp8E4m3,
    Fp8E5m2,
    Q8_0,
    Q5_1,
    Q5_0,
    Q4_1,
    Q4_0,
    Iq4Nl,
    Turbo4,
    Turbo3,
    Kivi4,
    Kivi2,
}

/// Every format, by descending bits within a family.
pub const FORMATS: [Keyword<NumberFormat>; 15] = [
    keyword(NumberFormat::F32, "f32", "as computed, and counted as 16 bits a number"),
    keyword(NumberFormat::F16, "f16", "IEEE half precision, rounded to the nearest"),
    keyword(NumberFormat::Bf16, "bf16", "bfloat16, rounded to the nearest"),
    keyword(
        NumberFormat::Fp8E4m3,
        "fp8_e4m3",
        "OCP float8 with 4 bits of exponent, scale 1, at most 448 (vLLM's fp8 cache)",
    ),
    keyword(
        NumberFormat::Fp8E5m2,
        "fp8_e5m2",
        "OCP float8 with 5 bits of exponent, scale 1, at most 57,344 (vLLM)",
    ),
    keyword(NumberFormat::Q8_0, "q8_0", "integers of 8 bits, a scale for 32 numbers (llama.cpp)"),
    keyword(NumberFormat::Q5_1, "q5_1", "integers of 5 bits, scale and minimum for 32 numbers (llama.cpp)"),
    keyword(NumberFormat::Q5_0, "q5_0", "integers of 5 bits, a scale for 32 numbers (llama.cpp)"),
    keyword(NumberFormat::Q4_1, "q4_1", "integers of 4 bits, scale and minimum for 32 numbers (llama.cpp)"),
    keyword(NumberFormat::Q4_0, "q4_0", "integers of 4 bits, a scale for 32 numbers (llama.cpp)"),
    keyword(NumberFormat::Iq4Nl, "iq4_nl", "16 uneven levels, a scale for 32 numbers (llama.cpp)"),
    keyword(
        NumberFormat::Turbo4,
        "turbo-4",
        "the direction turned at random, each coordinate one of 16 levels, and the length (TurboQuant, arXiv 2504.19874)",
    ),
    keyword(NumberFormat::Turbo3, "turbo-3", "as turbo-4, with 8 levels"),
    keyword(
        NumberFormat::Kivi4,
        "kivi-4",
        "4 bits with scale and minimum: keys by channel over 32 entries, values by token over 32 numbers; the newest 128 to 159 entries \
         in 16 bits (KIVI, arXiv 2402.02750)",
    ),
    keyword(NumberFormat::Kivi2, "kivi-2", "as kivi-4, with 2 bits"),
];

/// Numbers of a block that share a scale, and entries of KIVI's groups.
pub const GROUP: usize = 32;
/// The fewest newest entries that KIVI keeps in 16 bits.
pub const RESIDUAL: usize = 128;

impl NumberFormat {
    pub fn name(self) -> &'static str {
        name_of(&FORMATS, self)
    }

    /// Whether scales are for blocks of 32 numbers of a vector.
    pub fn has_blocks(self) -> bool {
        use NumberFormat::{Iq4Nl, Kivi2, Kivi4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
        matches!(self, Q8_0 | Q5_1 | Q5_0 | Q4_1 | Q4_0 | Iq4Nl | Kivi4 | Kivi2)
    }

    /// Bits of an integer of KIVI.
    pub fn kivi_bits(self) -> Option<usize> {
        match self {
            NumberFormat::Kivi4 => Some(4),
            NumberFormat::Kivi2 => Some(2),
            _ => None,
        }
    }

    /// Bits of a coordinate of TurboQuant.
    pub fn turbo_bits(self) -> Option<usize> {
        match self {
            NumberFormat::Turbo4 => Some(4),
            NumberFormat::Turbo3 => Some(3),
            _ => None,
        }
    }

    /// Bytes of a stored vector of `dim` numbers, scales included; of KIVI, of one that has left the newest entries, with its part of
    /// what a full group shares.
    pub fn stored_bytes(self, dim: usize) -> usize {
        let of_blocks = |bytes: usize| dim.div_ceil(GROUP) * bytes;
        match self {
            NumberFormat::F32 => 4 * dim,
            NumberFormat::F16 | NumberFormat::Bf16 => 2 * dim,
            NumberFormat::Fp8E4m3 | NumberFormat::Fp8E5m2 => dim,
            NumberFormat::Q8_0 => of_blocks(34),
            NumberFormat::Q5_1 => of_blocks(24),
            NumberFormat::Q5_0 => of_blocks(22),
            NumberFormat::Q4_1 | NumberFormat::Kivi4 => of_blocks(20),
            NumberFormat::Q4_0 | NumberFormat::Iq4Nl => of_blocks(18),
            NumberFormat::Kivi2 => of_blocks(12),
            NumberFormat::Turbo4 => (4 * dim).div_ceil(8) + 2,
            NumberFormat::Turbo3 => (3 * dim).div_ceil(8) + 2,
        }
    }
}

/// How a vector is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VectorFormat {
    pub numbers: NumberFormat,
    /// Whether it is turned by a Hadamard matrix before, as llama.cpp does with caches of integers.
    pub hadamard: bool,
}

impl VectorFormat {
    /// Bytes that `held` vectors of `dim` numbers take.
    pub fn taken_bytes(self, dim: usize, held: usize) -> usize {
        match self.numbers {
            NumberFormat::F32 => (4 * dim).saturating_mul(held),
            _ => self.counted_bytes(dim, held),
        }
    }

    /// Bytes that `held` vectors of `dim` numbers count for: f32 counts as 16 bits, and so do KIVI's newest.
    pub fn counted_bytes(self, dim: usize, held: usize) -> usize {
        match self.numbers {
            NumberFormat::F32 => 2 * dim * held,
            NumberFormat::Kivi4 | NumberFormat::Kivi2 => {
                let packed = held.saturating_sub(RESIDUAL) / GROUP * GROUP;
                packed * self.numbers.stored_bytes(dim) + (held - packed) * 2 * dim
            }
            numbers => numbers.stored_bytes(dim) * held,
        }
    }
}

impl FromStr for VectorFormat {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<VectorFormat> {
        let find = |name: &str| FORMATS.iter().find(|known| known.name == name).map(|known| known.value);
        if let Some(numbers) = find(text) {
            return Ok(VectorFormat { numbers, hadamard: false });
        }
        let names = || FORMATS.map(|known| known.name).join(", ");
        let turned = text.strip_suffix('h').and_then(find);
        let numbers = turned.with_context(|| format!("`{text}` is not a format; there are {}", names()))?;
        let is_of_llama = numbers.has_blocks() && numbers.kivi_bits().is_none();
        ensure!(
            is_of_llama,
            "only llama.cpp's blocks are turned by a Hadamard matrix, and {} has none",
            numbers.name()
        );
        Ok(VectorFormat { numbers, hadamard: true })
    }
}

impl fmt::Display for VectorFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.numbers.name(), if self.hadamard { "h" } else { "" })
    }
}

/// How a cache stores keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheFormat {
    pub keys: VectorFormat,
    pub values: VectorFormat,
}

impl CacheFormat {
    /// Whether keys or values are stored otherwise than they are computed.
    pub fn is_rounded(self) -> bool {
        self != CacheFormat::default()
    }

    /// Bits of an integer of KIVI, which stores entries a second time after a while.
    pub fn kivi_bits(self) -> Option<usize> {
        self.keys.numbers.kivi_bits()
    }

    /// Refuses a format that heads of `dim` numbers cannot have, or whose keys and values do not go together.
    ///
    /// # Errors
    /// Says which number does not fit.
    pub fn check(self, dim: usize) -> Result<()> {
        for vector in [self.keys, self.values] {
            ensure!(
                !vector.numbers.has_blocks() || dim.is_multiple_of(GROUP),
                "{vector} stores blocks of {GROUP} numbers, which the model's heads of {dim} cannot be divided into; \
                 fp8_e4m3 and turbo-4 have no blocks"
            );
        }
        ensure!(
            self.keys == self.values
                || self.keys.numbers.kivi_bits().or(self.values.numbers.kivi_bits()).is_none(),
            "kivi is a format of keys and values together, not {self}"
        );
        Ok(())
    }
}

impl FromStr for CacheFormat {
    type Err = anyhow::Error;

    /// Reads what [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<CacheFormat> {
        let (keys, values) = text.split_once('/').unwrap_or((text, text));
        Ok(CacheFormat { keys: keys.parse()?, values: values.parse()? })
    }
}

impl fmt::Display for CacheFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.keys)?;
        if self.keys == self.values { Ok(()) } else { write!(f, "/{}", self.values) }
    }
}

impl Serialize for CacheFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CacheFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FormatVisitor)
    }
}

/// Reads `q8_0`, `q8_0/q4_0` or `{keys: q8_0, values: q4_0}`.
struct FormatVisitor;

impl<'de> Visitor<'de> for FormatVisitor {
    type Value = CacheFormat;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a format such as q8_0, q8_0/q4_0 for keys and values, or {keys: q8_0, values: q4_0}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CacheFormat, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CacheFormat, A::Error> {
        let mut format = CacheFormat::default();
        while let Some((key, text)) = map.next_entry::<String, String>()? {
            let vector = text.parse().map_err(A::Error::custom)?;
            match key.as_str() {
                "keys" => format.keys = vector,
                "values" => format.values = vector,
                _ => return Err(A::Error::unknown_field(&key, &["keys", "values"])),
            }
        }
        Ok(format)
    }
}

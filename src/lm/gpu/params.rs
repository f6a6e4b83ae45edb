//! Parameters of kernels: `kernels/params.h`, field by field.

/// Address in the device's memory; 0 for none.
pub type Address = u64;

/// Properties that all texts of a launch share: those of a layer of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Layer {
    pub heads: i32,
    pub kv_heads: i32,
    pub dim: i32,
    pub pairs: i32,
    pub softcap: f32,
}

/// Text, its cache in this layer, and the block of it that is read. It is the struct `Text` of `params.h`, with the same fields in
/// the same order.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Text {
    pub keys: Address,
    pub values: Address,
    pub all_keys: Address,

    pub new_queries: Address,
    pub new_keys: Address,
    pub new_values: Address,
    pub cos: Address,
    pub sin: Address,
    pub query_scales: Address,
    pub ends: Address,

    pub queries: Address,
    pub logits: Address,
    pub raw_logits: Address,
    pub max: Address,
    pub scale: Address,
    pub part_scale: Address,
    pub mixed: Address,
    pub out: Address,
    pub all_logits: Address,
    pub lost: Address,

    pub positions: Address,
    pub alive: Address,
    pub gone_from: Address,
    pub by_column: Address,
    pub candidates: Address,
    pub moves: Address,
    pub moved: Address,
    pub victims: Address,
    pub priority: Address,
    pub new_priority: Address,
    pub same_priority: f64,
    pub program: Address,
    pub results: Address,
    pub kept: Address,
    pub totals: Address,
    pub newest: Address,
    pub salt: u64,

    pub rows: i32,
    pub held: i32,
    pub stride: i32,
    pub seen: i32,
    pub capacity: i32,
    pub all_capacity: i32,
    pub all_stride: i32,
    pub kv_head: i32,
    pub limit: i32,
    pub burst: i32,
    pub window: i32,
    pub keep_first: i32,
    pub keep_recent: i32,
    pub groups: i32,
    pub instructions: i32,
    pub kept_lists: i32,
    pub total_lists: i32,
    pub result_lists: i32,
    pub moves_stride: i32,
    pub passed: i32,
    pub oldest: i32,
    pub gap_end: i32,
    pub prompt: i32,
    pub part_start: i32,
    pub part_end: i32,
    pub newest_seen: i32,
}

/// Scores of a row of logits over the vocabulary, also against the row of the full cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ScoredRow {
    pub sum: f64,
    pub full_sum: f64,
    pub difference: f64,
    pub of_target: f32,
    pub max: f32,
    pub full_max: f32,
    pub target: i32,
    /// Index of the largest logit; -1 if no logit is a number.
    pub largest: i32,
    pub full_largest: i32,
}

/// Rows of logits to score.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Scoring {
    pub logits: Address,
    pub full: Address,
    pub rows: Address,
    pub vocab: i32,
    pub pad: i32,
}

/// `rows` rows of `width` words to copy; pitches are the words from one row to the next.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CopiedRows {
    pub from: Address,
    pub to: Address,
    pub from_pitch: usize,
    pub to_pitch: usize,
    pub width: usize,
    pub rows: usize,
}

/// Checks sizes that `params.h` checks as well.
const _: () = assert!(
    size_of::<Layer>() == 20
        && size_of::<ScoredRow>() == 48
        && size_of::<Scoring>() == 32
        && size_of::<CopiedRows>() == 48
        && size_of::<Text>() == 400
        && size_of::<crate::eviction::formula::LoweredInstruction>() == 76
);

/// Values of a slice as bytes.
pub fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` types have no padding, so all their bytes are initialised.
    #[expect(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values))
    }
}

/// Values of a slice as bytes that can be written.
pub fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes are values of a `Plain` type that is written to.
    #[expect(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values))
    }
}

/// Types without padding that host and kernels share. Types that are read back are numbers.
pub trait Plain: Copy {}

impl Plain for u8 {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for u32 {}
impl Plain for [u32; 2] {}
impl Plain for i32 {}
impl Plain for Layer {}
impl Plain for Text {}
impl Plain for ScoredRow {}
impl Plain for Scoring {}
impl Plain for CopiedRows {}
impl Plain for crate::eviction::formula::LoweredInstruction {}

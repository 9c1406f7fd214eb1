//! What one sample of a table looks like, and how large the table is.
//!
//! A spec comes from a client or from a file, so every size is computed with checked arithmetic, and what
//! does not fit is refused with the numbers. Two parties agree on a table only if their specs are equal to the
//! letter; [`TableSpec::diff`] says where they are not.

use std::fmt;

use bincode::{Decode, Encode};
use thiserror::Error;

use crate::replay::settings::{ReplaySpec, SettingsError};
use crate::wire::tag::encode_by_discriminant;

/// Most arrays (leaves of the pytree) that one table may have: their spec must fit into one message.
pub const MAX_ARRAYS: usize = 1024;
/// Longest path of one array, in bytes.
pub const MAX_PATH: usize = 255;
/// Longest name of a table, in bytes.
pub const MAX_NAME: usize = 128;
/// Most dimensions of one array.
pub const MAX_RANK: usize = 16;
/// Most samples in one batch.
pub const MAX_BATCH: u32 = 1 << 20;
/// Most blocks that one table may grow to.
pub const MAX_BLOCKS: u32 = 1 << 20;
/// Most values that a latest table may have room for: a block's number shares a word with the version.
pub const MAX_VALUES: u32 = 1 << 12;
/// Values that a latest table has room for, where nobody says: the newest, the next, and two that readers still hold.
pub const VALUES: u32 = 4;

/// An element's type: its kind as well as its size, so that `i32` is never taken for `f32`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum DType {
    Bool = 1,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
    Complex64,
    Complex128,
    /// 8-bit float, 4 exponent bits, 3 mantissa bits (the `fn` variant: no infinities).
    F8E4M3,
    /// 8-bit float, 5 exponent bits, 2 mantissa bits.
    F8E5M2,
}

encode_by_discriminant!(DType: Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64, Complex64, Complex128, F8E4M3, F8E5M2);

impl DType {
    /// Every type, in the order of the wire.
    pub const ALL: [Self; 17] = [
        Self::Bool,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::Complex64,
        Self::Complex128,
        Self::F8E4M3,
        Self::F8E5M2,
    ];

    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bool | Self::U8 | Self::I8 | Self::F8E4M3 | Self::F8E5M2 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// The name that numpy and ml_dtypes use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::Complex64 => "complex64",
            Self::Complex128 => "complex128",
            Self::F8E4M3 => "float8_e4m3fn",
            Self::F8E5M2 => "float8_e5m2",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One leaf of the pytree: what one sample holds of it.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ArraySpec {
    /// Where the leaf hangs in the pytree, such as `obs/camera`. Unique in its table.
    pub path: String,
    /// The type of an element.
    pub dtype: DType,
    /// The shape of one sample's leaf, without the batch axis; empty for a scalar. A zero is allowed.
    pub shape: Vec<u64>,
}

impl ArraySpec {
    /// A leaf.
    pub fn new(path: impl Into<String>, dtype: DType, shape: impl Into<Vec<u64>>) -> Self {
        Self { path: path.into(), dtype, shape: shape.into() }
    }

    /// Bytes of one sample's leaf: `product(shape) * dtype.bytes()`; `None` past 2^64.
    pub fn slot_bytes(&self) -> Option<u64> {
        // A zero anywhere makes the product zero, also where the other factors alone would overflow.
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape.iter().try_fold(self.dtype.bytes(), |bytes, &n| bytes.checked_mul(n))
    }
}

impl fmt::Display for ArraySpec {
    /// `obs/camera float32[84, 84]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{:?}", self.path, self.dtype, self.shape)
    }
}

/// What a failing `mlock` means for a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pin {
    /// Creating the table fails.
    Required = 1,
    /// The table is created, a warning is logged, and `table show` says what was got.
    #[default]
    BestEffort,
    /// The pages are not locked.
    Off,
}

encode_by_discriminant!(Pin: Required, BestEffort, Off);

/// Which pages a table's large arrays are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// Huge pages where the machine gives them, small ones where it does not; reported.
    #[default]
    Auto = 1,
    /// Creating the table fails where the machine does not give them.
    Required,
    /// Small pages.
    Off,
}

encode_by_discriminant!(HugePages: Auto, Required, Off);

/// What becomes of a table's samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableKind {
    /// Each batch goes to one reader, in the order in which it filled.
    #[default]
    Queue = 1,
    /// One writer publishes values, and every reader takes the newest.
    Latest,
    /// Samples are chosen, read and put back, until they are removed.
    Replay,
}

encode_by_discriminant!(TableKind: Queue, Latest, Replay);

impl TableKind {
    /// Every kind, in the order of the wire.
    pub const ALL: [Self; 3] = [Self::Queue, Self::Latest, Self::Replay];

    /// Its name in configurations and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Latest => "latest",
            Self::Replay => "replay",
        }
    }
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A table: its name, the arrays of one sample, and its size.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct TableSpec {
    /// Letters, digits, `.`, `_`, `-` and `/`; not empty.
    pub name: String,
    /// What becomes of its samples.
    pub kind: TableKind,
    /// The arrays of one sample, in the order of the pytree.
    pub arrays: Vec<ArraySpec>,
    /// Samples in one batch: the slots of one block. Of a latest table 1: a value. Of a replay table what
    /// [`ReplaySpec::block_slots`] says.
    pub batch_size: u32,
    /// Batches, or values, that the table holds from the start. Of a replay table what [`ReplaySpec::blocks`] says, or more.
    pub capacity: u32,
    /// Batches that it may grow to; at least `capacity`.
    pub max_capacity: u32,
    /// Whether its pages must be locked.
    pub pin: Pin,
    /// Which pages it is made of.
    pub huge_pages: HugePages,
    /// Of a replay table: how it chooses, removes, limits and ages.
    pub replay: Option<ReplaySpec>,
}

/// A spec that no table can have.
#[derive(Clone, PartialEq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum SpecError {
    #[error("table name {0:?} must be 1 to {MAX_NAME} of letters, digits, '.', '_', '-' and '/'")]
    Name(String),
    #[error("a table needs at least one array")]
    NoArrays,
    #[error("{0} arrays are more than the {MAX_ARRAYS} that one table may have: stack some of them")]
    TooManyArrays(usize),
    #[error("array path {0:?} must be 1 to {MAX_PATH} bytes without control characters")]
    Path(String),
    #[error("two arrays have the path {0:?}")]
    DuplicatePath(String),
    #[error("array {path:?} has {rank} dimensions, more than the {MAX_RANK} that one array may have")]
    Rank { path: String, rank: usize },
    #[error("batch_size is {0}, it must be 1 to {MAX_BATCH}")]
    BatchSize(u32),
    #[error("capacity is {capacity} batches, it must be 1 to {max}")]
    Capacity { capacity: u32, max: u32 },
    #[error("max_capacity is {max_capacity} batches, it must be {capacity} (the capacity) to {MAX_BLOCKS}")]
    MaxCapacity { max_capacity: u32, capacity: u32 },
    #[error("batch_size is {0}, and it is 1 in a latest table, whose values are published one by one")]
    ValueBatch(u32),
    #[error(
        "capacity is {capacity} values, and a latest table has room for 2 (the newest, and the next) to {MAX_VALUES}"
    )]
    Values { capacity: u32 },
    #[error(transparent)]
    Replay(#[from] SettingsError),
    #[error("settings of a replay table go with its kind, and the kind is {0}")]
    ReplayKind(TableKind),
    #[error(
        "a replay table of these settings has blocks of {expected} samples, at least {least} of them, and batch_size is \
         {batch_size}, capacity {capacity}"
    )]
    ReplayBlocks { expected: u32, least: u32, batch_size: u32, capacity: u32 },
    #[error("array {array} of {slots} slots is larger than 2^63 bytes")]
    TooLarge { array: String, slots: u64 },
}

impl TableSpec {
    /// A table of `capacity` batches that does not grow, with the default policies.
    pub fn new(name: impl Into<String>, arrays: Vec<ArraySpec>, batch_size: u32, capacity: u32) -> Self {
        Self {
            name: name.into(),
            kind: TableKind::Queue,
            arrays,
            batch_size,
            capacity,
            max_capacity: capacity,
            pin: Pin::default(),
            huge_pages: HugePages::default(),
            replay: None,
        }
    }

    /// A latest table that has room for [`VALUES`] values of these arrays, with the default policies.
    pub fn latest(name: impl Into<String>, arrays: Vec<ArraySpec>) -> Self {
        Self { kind: TableKind::Latest, ..Self::new(name, arrays, 1, VALUES) }
    }

    /// A replay table of these settings, with the default policies. What is too much of it [`TableSpec::validate`] says.
    pub fn replay(name: impl Into<String>, arrays: Vec<ArraySpec>, settings: ReplaySpec) -> Self {
        let (slots, blocks) = (settings.block_slots(), settings.blocks());
        let spec = Self::new(name, arrays, slots, blocks);
        Self { kind: TableKind::Replay, replay: Some(settings), ..spec }
    }

    /// Whether such a table can be; what it needs is then computable without overflow.
    pub fn validate(&self) -> Result<(), SpecError> {
        validate_name(&self.name)?;
        if self.arrays.is_empty() {
            return Err(SpecError::NoArrays);
        }
        if self.arrays.len() > MAX_ARRAYS {
            return Err(SpecError::TooManyArrays(self.arrays.len()));
        }
        match (&self.replay, self.kind) {
            (Some(settings), TableKind::Replay) => self.validate_replay(settings)?,
            (None, TableKind::Queue | TableKind::Latest) => {}
            (_, kind) => return Err(SpecError::ReplayKind(kind)),
        }
        if self.batch_size == 0 || self.batch_size > MAX_BATCH {
            return Err(SpecError::BatchSize(self.batch_size));
        }
        if self.capacity == 0 || self.capacity > MAX_BLOCKS {
            return Err(SpecError::Capacity { capacity: self.capacity, max: MAX_BLOCKS });
        }
        if self.max_capacity < self.capacity || self.max_capacity > MAX_BLOCKS {
            return Err(SpecError::MaxCapacity { max_capacity: self.max_capacity, capacity: self.capacity });
        }
        if self.kind == TableKind::Latest {
            if self.batch_size != 1 {
                return Err(SpecError::ValueBatch(self.batch_size));
            }
            let too_many =
                [self.capacity, self.max_capacity].into_iter().find(|n| !(2..=MAX_VALUES).contains(n));
            if let Some(capacity) = too_many {
                return Err(SpecError::Values { capacity });
            }
        }
        let slots = self.max_slots();
        let mut total: u64 = 0;
        for (i, array) in self.arrays.iter().enumerate() {
            let path = &array.path;
            if path.is_empty() || path.len() > MAX_PATH || path.chars().any(char::is_control) {
                return Err(SpecError::Path(path.clone()));
            }
            if self.arrays[..i].iter().any(|other| other.path == *path) {
                return Err(SpecError::DuplicatePath(path.clone()));
            }
            if array.shape.len() > MAX_RANK {
                return Err(SpecError::Rank { path: path.clone(), rank: array.shape.len() });
            }
            let bytes = array.slot_bytes().and_then(|bytes| bytes.checked_mul(slots));
            total = bytes
                .and_then(|bytes| total.checked_add(bytes))
                .filter(|&total| total <= i64::MAX as u64 / 2)
                .ok_or_else(|| SpecError::TooLarge { array: array.to_string(), slots })?;
        }
        Ok(())
    }

    fn validate_replay(&self, settings: &ReplaySpec) -> Result<(), SpecError> {
        settings.validate()?;
        let (expected, least, batch_size, capacity) =
            (settings.block_slots(), settings.least_blocks(), self.batch_size, self.capacity);
        if batch_size != expected || capacity < least {
            return Err(SpecError::ReplayBlocks { expected, least, batch_size, capacity });
        }
        Ok(())
    }

    /// Slots of the table at its largest.
    pub fn max_slots(&self) -> u64 {
        u64::from(self.batch_size) * u64::from(self.max_capacity)
    }

    /// Bytes of one sample over all arrays; the spec is valid.
    pub fn sample_bytes(&self) -> u64 {
        self.arrays.iter().map(|array| array.slot_bytes().unwrap_or(0)).sum()
    }

    /// What differs, a line each, empty if nothing does: `- ` as it is in `self`, `+ ` as it is in `other`.
    pub fn diff(&self, other: &Self) -> Vec<String> {
        let mut lines = diff_arrays(&self.arrays, &other.arrays);
        let mut field = |name: &str, ours: &dyn fmt::Debug, theirs: &dyn fmt::Debug| {
            let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
            if ours != theirs {
                lines.push(format!("- {name} {ours}"));
                lines.push(format!("+ {name} {theirs}"));
            }
        };
        field("kind", &self.kind, &other.kind);
        field("batch_size", &self.batch_size, &other.batch_size);
        field("capacity", &self.capacity, &other.capacity);
        field("max_capacity", &self.max_capacity, &other.max_capacity);
        field("pin", &self.pin, &other.pin);
        field("huge_pages", &self.huge_pages, &other.huge_pages);
        field("replay", &self.replay, &other.replay);
        lines
    }
}

/// Whether a table can have that name.
pub fn validate_name(name: &str) -> Result<(), SpecError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
        return Err(SpecError::Name(name.to_owned()));
    }
    Ok(())
}

/// What differs between two lists of arrays, a line each: `- ` as in `ours`, `+ ` as in `theirs`.
pub fn diff_arrays(ours: &[ArraySpec], theirs: &[ArraySpec]) -> Vec<String> {
    let mut lines = Vec::new();
    for array in ours {
        match theirs.iter().find(|other| other.path == array.path) {
            Some(other) if other == array => {}
            Some(other) => {
                lines.push(format!("- {array}"));
                lines.push(format!("+ {other}"));
            }
            None => lines.push(format!("- {array}")),
        }
    }
    for array in theirs {
        if !ours.iter().any(|other| other.path == array.path) {
            lines.push(format!("+ {array}"));
        }
    }
    let paths = |arrays: &[ArraySpec]| arrays.iter().map(|a| a.path.clone()).collect::<Vec<_>>();
    if lines.is_empty() && ours != theirs {
        lines.push(format!("- order {:?}", paths(ours)));
        lines.push(format!("+ order {:?}", paths(theirs)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> TableSpec {
        let arrays = vec![ArraySpec::new("obs", DType::F32, [4]), ArraySpec::new("reward", DType::F32, [])];
        TableSpec::new("rollouts", arrays, 256, 8)
    }

    #[test]
    fn every_dtype_is_found_by_its_name() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::from_name("float"), None);
    }

    #[test]
    fn sizes_are_counted_in_bytes_of_one_sample() {
        assert_eq!(spec().sample_bytes(), 20);
        assert_eq!(ArraySpec::new("x", DType::Complex128, [2, 3]).slot_bytes(), Some(96));
        assert_eq!(ArraySpec::new("x", DType::U8, [0, 7]).slot_bytes(), Some(0));
    }

    #[test]
    fn a_zero_sized_array_is_allowed_and_a_zero_batch_is_not() {
        let mut with_zero = spec();
        with_zero.arrays.push(ArraySpec::new("nothing", DType::F32, [u64::MAX, 0, u64::MAX]));
        assert_eq!(with_zero.validate(), Ok(()));
        assert_eq!(TableSpec { batch_size: 0, ..spec() }.validate(), Err(SpecError::BatchSize(0)));
        let none = TableSpec { capacity: 0, ..spec() };
        assert_eq!(none.validate(), Err(SpecError::Capacity { capacity: 0, max: MAX_BLOCKS }));
    }

    #[test]
    fn sizes_that_overflow_are_refused_by_name() {
        for shape in [vec![u64::MAX, 2], vec![1 << 60], vec![1 << 50, 1 << 20]] {
            let mut big = spec();
            big.arrays[0].shape = shape;
            assert!(matches!(big.validate(), Err(SpecError::TooLarge { .. })), "{big:?}");
        }
        let mut sum = spec();
        sum.arrays = vec![
            ArraySpec::new("a", DType::U8, [(1 << 61) / sum.max_slots()]),
            ArraySpec::new("b", DType::U8, [(1 << 62) / sum.max_slots()]),
        ];
        assert!(matches!(sum.validate(), Err(SpecError::TooLarge { .. })));
    }

    #[test]
    fn a_latest_table_has_room_for_two_values_at_least_and_no_batches() {
        let latest = TableSpec::latest("weights", spec().arrays);
        assert_eq!(latest.validate(), Ok(()));
        assert_eq!((latest.kind, latest.batch_size, latest.capacity), (TableKind::Latest, 1, VALUES));
        let batches = TableSpec { batch_size: 2, ..latest.clone() };
        assert_eq!(batches.validate(), Err(SpecError::ValueBatch(2)));
        for capacity in [1, MAX_VALUES + 1] {
            let size = TableSpec { capacity, max_capacity: capacity, ..latest.clone() };
            assert_eq!(size.validate(), Err(SpecError::Values { capacity }));
        }
        let growing = TableSpec { max_capacity: MAX_VALUES + 1, ..latest };
        assert_eq!(growing.validate(), Err(SpecError::Values { capacity: MAX_VALUES + 1 }));
    }

    #[test]
    fn names_and_paths_are_checked() {
        for name in ["", "a b", "ä", &"x".repeat(MAX_NAME + 1)] {
            assert!(matches!(validate_name(name), Err(SpecError::Name(_))), "{name}");
        }
        assert_eq!(validate_name("run-1/rollouts_2.x"), Ok(()));
        let mut twice = spec();
        twice.arrays[1].path = "obs".into();
        assert_eq!(twice.validate(), Err(SpecError::DuplicatePath("obs".into())));
        let mut control = spec();
        control.arrays[1].path = "re\nward".into();
        assert!(matches!(control.validate(), Err(SpecError::Path(_))));
    }

    #[test]
    fn a_diff_names_what_differs_and_nothing_else() {
        assert_eq!(spec().diff(&spec()), Vec::<String>::new());
        let mut other = spec();
        other.arrays[1] = ArraySpec::new("reward", DType::I32, []);
        other.arrays.push(ArraySpec::new("done", DType::Bool, []));
        other.batch_size = 32;
        let expected = [
            "- reward float32[]",
            "+ reward int32[]",
            "+ done bool[]",
            "- batch_size 256",
            "+ batch_size 32",
        ];
        assert_eq!(spec().diff(&other), expected);
    }

    #[test]
    fn a_different_order_is_a_difference() {
        let mut other = spec();
        other.arrays.reverse();
        assert_eq!(spec().diff(&other), [r#"- order ["obs", "reward"]"#, r#"+ order ["reward", "obs"]"#]);
    }
}

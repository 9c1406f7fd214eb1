//! What is sent: the kinds of samples, where their bytes come from, and what a reader does with them.

use anyhow::{Result, bail};
use echo_client::{ArraySpec, DType, TableSpec};

/// The table's name.
pub const TABLE: &str = "bench";

/// A kind of sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// 20 bytes: a small control task.
    Tiny,
    /// 28,233 bytes: stacked frames of a video game.
    Atari,
    /// 1 MiB.
    Large,
    /// 4,000 bytes in so many arrays.
    Arrays(u64),
}

impl Workload {
    /// By its name, in a part's words.
    pub fn from_name(name: &str) -> Result<Self> {
        Ok(match name {
            "tiny" => Self::Tiny,
            "atari" => Self::Atari,
            "large" => Self::Large,
            _ => match name.strip_prefix("arrays-").and_then(|n| n.parse().ok()) {
                Some(n) => Self::Arrays(n),
                None => bail!("there is no workload {name}"),
            },
        })
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::Tiny => "tiny".into(),
            Self::Atari => "atari".into(),
            Self::Large => "large".into(),
            Self::Arrays(n) => format!("arrays-{n}"),
        }
    }

    /// Samples in a batch.
    pub const fn batch(self) -> u32 {
        match self {
            Self::Large => 32,
            _ => 256,
        }
    }

    /// Batches in the ring: enough for a reader to be granted some ahead, and where the samples are large, more than
    /// a last-level cache of 32 MiB holds.
    pub const fn capacity(self) -> u32 {
        match self {
            Self::Tiny | Self::Arrays(_) => 64,
            Self::Atari => 16,
            Self::Large => 4,
        }
    }

    /// Batches that a reader is granted ahead.
    pub const fn prefetch(self) -> u16 {
        (self.capacity() / 2) as u16
    }

    /// Samples of one measurement.
    pub const fn samples(self, quick: bool) -> u64 {
        let all = match self {
            Self::Tiny => 16 << 20,
            Self::Atari => 128 << 10,
            Self::Large => 4096,
            Self::Arrays(n) if n > 100 => 16 << 10,
            Self::Arrays(_) => 128 << 10,
        };
        if quick { all / 4 } else { all }
    }

    /// The arrays of a sample.
    pub fn arrays(self) -> Vec<ArraySpec> {
        match self {
            Self::Tiny => {
                vec![ArraySpec::new("obs", DType::F32, [4]), ArraySpec::new("reward", DType::F32, [])]
            }
            Self::Atari => vec![
                ArraySpec::new("obs", DType::U8, [84, 84, 4]),
                ArraySpec::new("action", DType::I32, []),
                ArraySpec::new("reward", DType::F32, []),
                ArraySpec::new("done", DType::Bool, []),
            ],
            Self::Large => vec![ArraySpec::new("obs", DType::F32, [512, 512])],
            Self::Arrays(n) => {
                (0..n).map(|i| ArraySpec::new(format!("a{i}"), DType::F32, [1000 / n])).collect()
            }
        }
    }

    /// The table.
    pub fn spec(self) -> TableSpec {
        TableSpec::new(TABLE, self.arrays(), self.batch(), self.capacity())
    }

    /// Bytes of a sample.
    pub fn sample_bytes(self) -> usize {
        self.spec().sample_bytes() as usize
    }

    /// Slots of the ring.
    pub const fn slots(self) -> u64 {
        self.batch() as u64 * self.capacity() as u64
    }
}

/// Samples that are there before the measurement begins: of each array `n` samples in a row.
pub struct Source {
    arrays: Vec<Vec<u8>>,
    slot_bytes: Vec<usize>,
    n: usize,
}

impl Source {
    /// As many as stay in a core's own cache.
    pub fn new(workload: Workload) -> Self {
        let n = (128 * 1024 / workload.sample_bytes()).clamp(1, 1024);
        let slot_bytes: Vec<usize> =
            workload.arrays().iter().map(|array| array.slot_bytes().unwrap_or(0) as usize).collect();
        let arrays = slot_bytes.iter().map(|bytes| (0..bytes * n).map(|i| i as u8).collect()).collect();
        Self { arrays, slot_bytes, n }
    }

    /// How many samples there are.
    pub const fn samples(&self) -> usize {
        self.n
    }

    /// Pieces of `many` samples: a slice an array.
    pub fn pieces(&self, many: usize) -> Vec<Vec<&[u8]>> {
        let piece = |first: usize| {
            let arrays = self.arrays.iter().zip(&self.slot_bytes);
            arrays.map(|(array, size)| &array[first * size..(first + many) * size]).collect()
        };
        (0..self.n / many).map(|i| piece(i * many)).collect()
    }
}

/// What a reader does with a batch: sums all its bytes, eight at a time.
pub fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest: u64 = words.remainder().iter().map(|&byte| u64::from(byte)).sum();
    words.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).fold(rest, u64::wrapping_add)
}

//! What a worker says of a sample of a replay table beside its arrays: a priority, and the version of the policy.
//!
//! Two words a slot. Who claimed the slot writes them before the commit, whose release publishes them with the bytes; the
//! daemon reads them once, behind the commit bit that it acquires, and checks them. A worker that writes them later, or
//! writes nonsense, harms what is said of its own samples.

use crate::ids::BlockIndex;
use crate::ring::control::Control;
use crate::sync::Ordering;

/// No priority: bits of no number.
const NO_PRIORITY: u64 = u64::MAX;
/// The largest version that can be said.
pub const MAX_VERSION: u64 = u64::MAX - 1;

/// What is said of a sample.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Mark {
    /// How much it matters; None is as much as the one that matters most of those that are there.
    pub priority: Option<f64>,
    /// The version of the policy that made it, at most [`MAX_VERSION`].
    pub version: Option<u64>,
}

/// Says it of a sample that is claimed and not committed.
#[inline]
pub fn write(control: &Control, block: BlockIndex, slot: u32, mark: &Mark) {
    let [priority, version] = control.mark(block, slot);
    // Relaxed: published by the commit.
    priority.store(mark.priority.map_or(NO_PRIORITY, f64::to_bits), Ordering::Relaxed);
    version.store(mark.version.map_or(0, |version| version.wrapping_add(1)), Ordering::Relaxed);
}

/// What is said of a sample whose commit bit was acquired, as alleged.
#[inline]
pub fn read(control: &Control, block: BlockIndex, slot: u32) -> Mark {
    let [priority, version] = control.mark(block, slot).map(|word| word.load(Ordering::Relaxed));
    Mark {
        priority: (priority != NO_PRIORITY).then(|| f64::from_bits(priority)),
        version: version.checked_sub(1),
    }
}

#[cfg(all(test, not(echo_loom)))]
mod tests {
    use super::*;
    use crate::ring::control::Geometry;
    use crate::ring::words::Words;

    #[test]
    fn what_is_said_is_read_and_nothing_is_something_else_than_zero() {
        let geometry = Geometry::new(2, 2, 1, 1).unwrap().with_marks();
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap();
        let block = BlockIndex::new(1, 2).unwrap();
        let said = [
            Mark::default(),
            Mark { priority: Some(0.0), version: Some(0) },
            Mark { priority: Some(2.5), version: Some(MAX_VERSION) },
        ];
        for mark in said {
            write(&control, block, 1, &mark);
            assert_eq!(read(&control, block, 1), mark);
        }
    }
}

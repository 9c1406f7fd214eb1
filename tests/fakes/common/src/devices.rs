//! The machine's devices: which of them this process sees, by what number, and what they can do.
//!
//! A device has the same UUID in every process, whatever number it has there.

use crate::Code;
use crate::codes::INVALID_DEVICE;
use crate::knobs::Knobs;

pub(crate) type Uuid = [u8; 16];

const INTEGRATED: i32 = 18;
const UNIFIED_ADDRESSING: i32 = 41;
const MAJOR: i32 = 75;
const PAGEABLE_MEMORY_ACCESS: i32 = 88;
pub(crate) const HOST_REGISTER: i32 = 99;
pub(crate) const HOST_PAGE_TABLES: i32 = 100;
pub(crate) const VIRTUAL_MEMORY: i32 = 102;
pub(crate) const POSIX_DESCRIPTORS: i32 = 103;
pub(crate) const READ_ONLY_REGISTER: i32 = 113;

pub(crate) struct Devices {
    /// Numbers on the machine, by number in this process.
    seen: Vec<usize>,
}

impl Devices {
    pub(crate) fn new(knobs: &Knobs) -> Self {
        let all = 0..knobs.devices;
        let seen = match std::env::var("CUDA_VISIBLE_DEVICES") {
            Err(_) => all.collect(),
            // What comes behind the first that does not exist is not seen either.
            Ok(chosen) => chosen.split(',').map_while(|name| find(name.trim(), knobs.devices)).collect(),
        };
        Self { seen }
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.len()
    }

    /// Whether the process sees a device of this number.
    pub(crate) fn check(&self, device: i32) -> Result<usize, Code> {
        usize::try_from(device).ok().filter(|device| *device < self.seen.len()).ok_or(INVALID_DEVICE)
    }

    pub(crate) fn uuid(&self, device: i32) -> Result<Uuid, Code> {
        Ok(uuid(self.seen[self.check(device)?]))
    }

    /// This process's number for a device.
    pub(crate) fn find(&self, wanted: Uuid) -> Result<i32, Code> {
        let at = self.seen.iter().position(|&device| uuid(device) == wanted);
        at.and_then(|at| i32::try_from(at).ok()).ok_or(INVALID_DEVICE)
    }
}

/// An ordinary card's, unless a test says otherwise. What is not known is 0.
pub(crate) fn attribute(knobs: &Knobs, attribute: i32) -> i32 {
    let ordinary = match attribute {
        UNIFIED_ADDRESSING | HOST_REGISTER | VIRTUAL_MEMORY | POSIX_DESCRIPTORS => 1,
        MAJOR => 9,
        INTEGRATED | PAGEABLE_MEMORY_ACCESS | HOST_PAGE_TABLES | READ_ONLY_REGISTER => 0,
        _ => 0,
    };
    knobs.attributes.get(&attribute).copied().unwrap_or(ordinary)
}

fn uuid(device: usize) -> Uuid {
    let mut uuid = *b"echo's fake GPU\0";
    uuid[15] = device as u8;
    uuid
}

/// A number, or `GPU-` and a UUID of which the beginning is enough.
fn find(name: &str, devices: usize) -> Option<usize> {
    match name.strip_prefix("GPU-") {
        Some(wanted) => (0..devices).find(|&device| hexadecimal(uuid(device)).starts_with(wanted)),
        None => name.parse().ok().filter(|&device: &usize| device < devices),
    }
}

/// As `nvidia-smi` writes it, without `GPU-`.
fn hexadecimal(uuid: Uuid) -> String {
    let mut text: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    text
}

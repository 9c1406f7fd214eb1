//! One GPU, by the name that all processes have for it.
//!
//! An ordinal counts the devices that a process may see (`CUDA_VISIBLE_DEVICES`, a container), so it means another
//! device in another process. What crosses processes is the UUID.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::memory::cuda::api::{
    AllocationProp, CudaDriverApi, DeviceNumber, HAS_POSIX_FD, HAS_VIRTUAL_MEMORY,
};
use crate::memory::cuda::error::CudaError;

/// A device's name in every process, as `nvidia-smi -L` prints it; but a part of a device (MIG) is printed as `GPU-`
/// too, since its bytes do not say that it is one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceUuid([u8; 16]);

impl DeviceUuid {
    /// From its bytes, in the order in which they are printed.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DeviceUuid {
    type Err = CudaError;

    /// Reads what `nvidia-smi -L` prints, for a whole device or a part of one (MIG).
    fn from_str(text: &str) -> Result<Self, CudaError> {
        let wrong = || CudaError::Uuid { text: text.to_owned() };
        let digits = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")).ok_or_else(wrong)?;
        let groups: Vec<&str> = digits.split('-').collect();
        if !groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) {
            return Err(wrong());
        }
        let digits: Option<Vec<u8>> = groups
            .concat()
            .chars()
            .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        let digits = digits.ok_or_else(wrong)?;
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
        }
        Ok(Self(bytes))
    }
}

/// A device that can do what a buffer needs: virtual memory, and handles that are descriptors.
#[derive(Clone, Debug)]
pub struct CudaDevice {
    api: CudaDriverApi,
    number: DeviceNumber,
    uuid: DeviceUuid,
    name: Arc<str>,
    granularity: usize,
    driver_version: i32,
}

impl CudaDevice {
    /// The device of that UUID.
    ///
    /// # Errors
    /// If the driver does not start, this process cannot see the device, or it lacks what is needed.
    pub fn by_uuid(api: CudaDriverApi, uuid: DeviceUuid) -> Result<Self, CudaError> {
        Self::find(api, uuid.to_string(), |_, found| found == Some(&uuid))
    }

    /// The device of that ordinal, in this process's counting.
    ///
    /// # Errors
    /// As of `by_uuid`.
    pub fn by_ordinal(api: CudaDriverApi, ordinal: u32) -> Result<Self, CudaError> {
        Self::find(api, ordinal.to_string(), |i, _| i == ordinal as usize)
    }

    fn find(
        api: CudaDriverApi,
        asked: String,
        is_it: impl Fn(usize, Option<&DeviceUuid>) -> bool,
    ) -> Result<Self, CudaError> {
        let driver_version = api.start()?;
        let devices = api.devices()?;
        let mut there = Vec::new();
        let mut found = None;
        for (i, device) in devices.into_iter().enumerate() {
            // One that does not tell it hides no other.
            let uuid = api.uuid(device).map(DeviceUuid);
            there.push(uuid.as_ref().map_or("one without a UUID".into(), DeviceUuid::to_string));
            if is_it(i, uuid.as_ref().ok()) {
                found = Some((device, uuid?));
                break;
            }
        }
        let Some((number, uuid)) = found else {
            let there = if there.is_empty() { "none".into() } else { there.join(", ") };
            return Err(CudaError::NoSuchDevice { asked, there });
        };
        let name = api.name(number)?;
        for (attribute, what) in [
            (HAS_VIRTUAL_MEMORY, "map memory to addresses that were reserved"),
            (HAS_POSIX_FD, "export memory as a descriptor"),
        ] {
            if !api.has(number, attribute)? {
                return Err(CudaError::Incapable { uuid, name, what });
            }
        }
        let granularity = api.granularity(&AllocationProp::exportable(number))?;
        if !granularity.is_power_of_two() {
            return Err(CudaError::Granularity { uuid, granularity });
        }
        Ok(Self { api, number, uuid, name: name.into(), granularity, driver_version })
    }

    /// Its name in every process.
    pub const fn uuid(&self) -> DeviceUuid {
        self.uuid
    }

    /// What its maker calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its memory comes in multiples of, in bytes.
    pub const fn granularity(&self) -> usize {
        self.granularity
    }

    /// The CUDA version of its driver: 12020 is 12.2.
    pub const fn driver_version(&self) -> i32 {
        self.driver_version
    }

    pub(super) const fn api(&self) -> &CudaDriverApi {
        &self.api
    }

    pub(super) const fn number(&self) -> DeviceNumber {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_as_it_is_printed() {
        let text = "GPU-01234567-89ab-cdef-0011-2233445566ff";
        let uuid: DeviceUuid = text.parse().unwrap();
        assert_eq!(uuid.to_bytes()[..3], [0x01, 0x23, 0x45]);
        assert_eq!(uuid.to_bytes()[15], 0xff);
        assert_eq!((uuid.to_string(), format!("{uuid:?}")), (text.into(), text.into()));
        assert_eq!(text.replace("GPU", "MIG").parse::<DeviceUuid>().unwrap(), uuid);
        for wrong in [
            "",
            "GPU-",
            "01234567-89ab-cdef-0011-2233445566ff",
            "GPU-01234567-89ab-cdef-0011-2233445566f",
            "GPU-0123456789abcdef00112233445566ff",
            "GPU-01234567-89ab-cdef-0011-2233445566fg",
            "GPU-01234567-89ab-cdef-0011-2233445566é",
        ] {
            assert!(wrong.parse::<DeviceUuid>().is_err(), "{wrong}");
        }
    }
}

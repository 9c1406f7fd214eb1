//! Which devices this process may see, and what they can do: asked for without wanting anything of them.
//!
//! [`CudaDevice`](super::CudaDevice) is a device that can do what a buffer needs. Here are all of them, for people who
//! ask why theirs is none. The driver is started, and no context is made.

use std::ffi::c_int;

use crate::memory::cuda::api::{CudaDriverApi, HAS_POSIX_FD, HAS_VIRTUAL_MEMORY};
use crate::memory::cuda::device::DeviceUuid;
use crate::memory::cuda::error::CudaError;

/// Something that a device can do or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ability {
    /// Memory behind addresses that were reserved.
    VirtualMemory,
    /// Its memory exported as descriptors.
    PosixDescriptors,
    /// The host's memory registered by `cudaHostRegister`.
    RegistersHost,
    /// The same of memory that this process can only read.
    RegistersReadOnly,
    /// It uses the host's page tables, so that registering locks nothing.
    HostPageTables,
    /// It reads and writes the host's pageable memory coherently.
    PageableAccess,
    /// It is part of the host's chip, whose memory is its own.
    Integrated,
}

impl Ability {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::VirtualMemory,
        Self::PosixDescriptors,
        Self::RegistersHost,
        Self::RegistersReadOnly,
        Self::HostPageTables,
        Self::PageableAccess,
        Self::Integrated,
    ];

    /// The driver's number for it.
    pub const fn attribute(self) -> c_int {
        match self {
            Self::Integrated => 18,
            Self::PageableAccess => 88,
            Self::RegistersHost => 99,
            Self::HostPageTables => 100,
            Self::VirtualMemory => HAS_VIRTUAL_MEMORY,
            Self::PosixDescriptors => HAS_POSIX_FD,
            Self::RegistersReadOnly => 113,
        }
    }
}

/// A device that this process may see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// What its maker calls it.
    pub name: String,
    /// Its name in every process.
    pub uuid: DeviceUuid,
    /// What it can do. A driver that does not know an attribute counts as one that lacks it.
    pub abilities: Vec<Ability>,
}

/// The driver, and all that it lets this process see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Survey {
    /// The newest CUDA that the driver can do: 12020 is 12.2.
    pub driver_version: i32,
    /// In this process's counting.
    pub devices: Vec<Seen>,
}

/// Starts the driver and looks at every device.
///
/// # Errors
/// If the driver does not start, or does not name its devices; having none is such an error for most drivers.
pub fn survey(api: &CudaDriverApi) -> Result<Survey, CudaError> {
    let driver_version = api.start()?;
    let seen = |device| {
        let can = |ability: &Ability| api.has(device, ability.attribute()).unwrap_or(false);
        Ok(Seen {
            name: api.name(device)?,
            uuid: DeviceUuid::from_bytes(api.uuid(device)?),
            abilities: Ability::ALL.into_iter().filter(can).collect(),
        })
    };
    let devices = api.devices()?.into_iter().map(seen).collect::<Result<_, CudaError>>()?;
    Ok(Survey { driver_version, devices })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::cuda::stub;

    #[test]
    fn devices_are_seen_whatever_they_lack_and_nothing_is_made() {
        stub::lack(HAS_POSIX_FD);
        let survey = survey(&stub::api()).unwrap();
        assert_eq!(survey.devices.len(), stub::UUIDS.len());
        for (seen, uuid) in survey.devices.iter().zip(stub::UUIDS) {
            assert_eq!((seen.name.as_str(), seen.uuid), ("Stub", DeviceUuid::from_bytes(uuid)));
            assert_eq!(seen.abilities, [Ability::VirtualMemory]);
        }
        assert_eq!(stub::left(), stub::Left { handles: 0, mappings: 0, reservations: 0 });
    }

    #[test]
    fn a_driver_that_does_not_start_says_why() {
        stub::fail("cuInit", 0, 100);
        let error = survey(&stub::api()).unwrap_err().to_string();
        assert!(
            error.contains("does not start")
                && error.contains("100")
                && error.contains("no GPU for this process"),
            "{error}"
        );
    }
}

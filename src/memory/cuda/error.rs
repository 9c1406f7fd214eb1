//! Why a GPU's memory is not to be had, and what to do about it.

use std::ffi::c_int;
use std::fmt;

use thiserror::Error;

use crate::memory::cuda::device::DeviceUuid;

/// Something that the driver, or what another process said about device memory, does not allow.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum CudaError {
    #[error(
        "cannot load the CUDA driver from {library}: install the GPU's driver, or name its libcuda.so.1 (in a \
         container, start that with its GPUs)"
    )]
    Library { library: String, source: libloading::Error },
    #[error(
        "{library} has no {symbol}: it is older than CUDA 10.2, or is not the CUDA driver; update the driver or name \
         another libcuda.so.1"
    )]
    MissingSymbol { library: String, symbol: &'static str },
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(
        "there is no device {asked} that this process may use; there are {there}: see CUDA_VISIBLE_DEVICES and the \
         container's devices"
    )]
    NoSuchDevice { asked: String, there: String },
    #[error("device {uuid} ({name}) cannot {what}: use another device, or host memory")]
    Incapable { uuid: DeviceUuid, name: String, what: &'static str },
    #[error("device {uuid} commits in {granularity} bytes, which is no power of two")]
    Granularity { uuid: DeviceUuid, granularity: usize },
    #[error("{text:?} is no UUID of a device, such as GPU-01234567-89ab-cdef-0123-456789abcdef")]
    Uuid { text: String },
    #[error(
        "device memory from {from} to {to} is not made of whole blocks of {block} bytes that are committed"
    )]
    NotCommitted { from: usize, to: usize, block: usize },
    #[error(
        "blocks of {block} bytes do not suit device {uuid}, which takes powers of two from {granularity} to a TiB"
    )]
    BlockSize { block: u64, uuid: DeviceUuid, granularity: usize },
    #[error("the block that was received is of {got} bytes where blocks of {block} were announced")]
    WrongSize { got: u64, block: usize },
    #[error("the block that was received is on {said}, and this is {here}: open the device of that UUID")]
    OtherDevice { said: String, here: DeviceUuid },
    #[error(
        "{asked} more bytes were asked for where {there} were imported: import the exporter's next blocks first"
    )]
    NotImported { asked: usize, there: usize },
    #[error(
        "these device addresses cannot grow any more: when growing failed before, a block could not be unmapped again; \
         drop the buffer, and make another"
    )]
    Stuck,
    #[error("the descriptor of device memory cannot be kept from children")]
    Descriptor(#[source] std::io::Error),
}

impl CudaError {
    /// Whether the device has not so much memory left, so that the same may succeed later.
    pub const fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Driver(DriverError { code: 2, .. }))
    }
}

/// The driver's own refusal.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct DriverError {
    pub(super) doing: &'static str,
    /// 0 where it was about none.
    pub(super) bytes: u64,
    pub(super) code: c_int,
    /// None if the driver has no name for it.
    pub(super) name: Option<String>,
}

impl DriverError {
    /// The driver's number for it.
    pub const fn code(&self) -> i32 {
        self.code
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the CUDA driver does not {}", self.doing)?;
        if self.bytes > 0 {
            write!(f, " ({} bytes)", self.bytes)?;
        }
        match &self.name {
            Some(name) => write!(f, ": {name} ({})", self.code)?,
            None => write!(f, ": error {}", self.code)?,
        }
        match hint(self.code) {
            Some(hint) => write!(f, ": {hint}"),
            None => Ok(()),
        }
    }
}

/// What to do about it, by the driver's numbers: they are part of its ABI.
const fn hint(code: c_int) -> Option<&'static str> {
    Some(match code {
        1 => "sizes or addresses do not fit; of a block that was received, that is not what was announced",
        2 => "the device has not so much memory left: see nvidia-smi for who has it, and trim pools",
        3 => "it was not started in this process, and does not outlive a fork: start processes by exec",
        4 => "this process is ending",
        34 => "this is the toolkit's stub and no driver: take its stubs directory out of the library path",
        46 => "the device is busy or in exclusive mode",
        100 => {
            "there is no GPU for this process: is its kernel module loaded, and CUDA_VISIBLE_DEVICES not empty?"
        }
        101 => "this process cannot see that device: see CUDA_VISIBLE_DEVICES and the container's devices",
        201 => {
            "it wants a current context for this, which nothing here makes: make the framework's context current on the \
             thread that calls this"
        }
        217 => "these two devices have no access to each other: use the device that the memory is on",
        304 => "the kernel refuses it: see its log, and the limit of open files",
        700 | 719 => {
            "a kernel of this process went wrong before, and its context is of no use any more: end the process, and see \
             what that kernel used after it was unmapped"
        }
        800 => "it is not permitted: see the container's and the operator's restrictions",
        801 => "device, driver or machine do not support it: use another device, or host memory",
        802 => "the machine is not ready: start nvidia-fabricmanager, and wait until it is up",
        803 => {
            "libcuda.so.1 and the kernel module are of different versions: reboot, or mend the library path"
        }
        804 => "the compatibility package is not for this GPU: take it out of the library path",
        805 => "the MPS daemon does not answer: start it, or unset CUDA_MPS_PIPE_DIRECTORY",
        999 => "the driver does not know why: see the kernel's log",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_done_its_symbol_and_what_to_do() {
        let mut error = DriverError {
            doing: "create device memory",
            bytes: 4096,
            code: 2,
            name: Some("CUDA_ERROR_OUT_OF_MEMORY".into()),
        };
        assert_eq!(
            error.to_string(),
            "the CUDA driver does not create device memory (4096 bytes): CUDA_ERROR_OUT_OF_MEMORY (2): the device has \
             not so much memory left: see nvidia-smi for who has it, and trim pools"
        );
        assert!(CudaError::from(error.clone()).is_out_of_memory());
        error = DriverError { doing: "start", bytes: 0, code: 12345, name: None };
        assert_eq!(error.to_string(), "the CUDA driver does not start: error 12345");
    }

    #[test]
    fn every_documented_cause_has_advice() {
        let all = [1, 2, 3, 4, 34, 46, 100, 101, 201, 217, 304, 700, 719, 800, 801, 802, 803, 804, 805, 999];
        for code in all {
            assert!(hint(code).is_some(), "{code}");
        }
    }
}

//! What a call answers, with the names that the runtime and the driver have for it.

use std::ffi::{CStr, c_char};

pub type Code = i32;

pub const SUCCESS: Code = 0;
pub const INVALID_VALUE: Code = 1;
pub const OUT_OF_MEMORY: Code = 2;
/// The runtime's initialization error, and the driver's "not initialized".
pub const NOT_INITIALIZED: Code = 3;
/// The runtime is unloading, or the driver has shut down.
pub const UNLOADING: Code = 4;
pub const INVALID_DIRECTION: Code = 21;
pub const STUB_LIBRARY: Code = 34;
pub const INSUFFICIENT_DRIVER: Code = 35;
pub const NO_DEVICE: Code = 100;
pub const INVALID_DEVICE: Code = 101;
pub const INVALID_CONTEXT: Code = 201;
pub const PEER_ACCESS_UNSUPPORTED: Code = 217;
pub const ILLEGAL_ADDRESS: Code = 700;
pub const CONTEXT_IS_DESTROYED: Code = 709;
pub const ALREADY_REGISTERED: Code = 712;
pub const NOT_REGISTERED: Code = 713;
pub const LAUNCH_FAILED: Code = 719;
pub const NOT_PERMITTED: Code = 800;
pub const NOT_SUPPORTED: Code = 801;

/// Whether nothing works any more once a call has answered this.
pub(crate) fn is_fatal(code: Code) -> bool {
    matches!(code, ILLEGAL_ADDRESS | LAUNCH_FAILED)
}

pub(crate) fn fails_with(code: Code) -> Result<(), Code> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

struct Names {
    code: Code,
    runtime: &'static CStr,
    driver: Option<&'static CStr>,
    text: &'static CStr,
}

const fn names(
    code: Code,
    runtime: &'static CStr,
    driver: Option<&'static CStr>,
    text: &'static CStr,
) -> Names {
    Names { code, runtime, driver, text }
}

const NAMES: &[Names] = &[
    names(0, c"cudaSuccess", Some(c"CUDA_SUCCESS"), c"no error"),
    names(1, c"cudaErrorInvalidValue", Some(c"CUDA_ERROR_INVALID_VALUE"), c"invalid argument"),
    names(2, c"cudaErrorMemoryAllocation", Some(c"CUDA_ERROR_OUT_OF_MEMORY"), c"out of memory"),
    names(3, c"cudaErrorInitializationError", Some(c"CUDA_ERROR_NOT_INITIALIZED"), c"initialization error"),
    names(4, c"cudaErrorCudartUnloading", Some(c"CUDA_ERROR_DEINITIALIZED"), c"driver shutting down"),
    names(21, c"cudaErrorInvalidMemcpyDirection", None, c"invalid copy direction for memcpy"),
    names(34, c"cudaErrorStubLibrary", Some(c"CUDA_ERROR_STUB_LIBRARY"), c"the driver is a stub library"),
    names(35, c"cudaErrorInsufficientDriver", None, c"the driver is too old for the runtime"),
    names(
        46,
        c"cudaErrorDevicesUnavailable",
        Some(c"CUDA_ERROR_DEVICE_UNAVAILABLE"),
        c"devices are unavailable",
    ),
    names(100, c"cudaErrorNoDevice", Some(c"CUDA_ERROR_NO_DEVICE"), c"no CUDA-capable device"),
    names(101, c"cudaErrorInvalidDevice", Some(c"CUDA_ERROR_INVALID_DEVICE"), c"invalid device ordinal"),
    names(
        201,
        c"cudaErrorDeviceUninitialized",
        Some(c"CUDA_ERROR_INVALID_CONTEXT"),
        c"invalid device context",
    ),
    names(
        217,
        c"cudaErrorPeerAccessUnsupported",
        Some(c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"),
        c"no peer access between the devices",
    ),
    names(400, c"cudaErrorInvalidResourceHandle", Some(c"CUDA_ERROR_INVALID_HANDLE"), c"invalid handle"),
    names(700, c"cudaErrorIllegalAddress", Some(c"CUDA_ERROR_ILLEGAL_ADDRESS"), c"illegal memory access"),
    names(
        709,
        c"cudaErrorContextIsDestroyed",
        Some(c"CUDA_ERROR_CONTEXT_IS_DESTROYED"),
        c"context is destroyed",
    ),
    names(
        712,
        c"cudaErrorHostMemoryAlreadyRegistered",
        Some(c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"),
        c"memory is registered already",
    ),
    names(
        713,
        c"cudaErrorHostMemoryNotRegistered",
        Some(c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"),
        c"memory is not registered",
    ),
    names(719, c"cudaErrorLaunchFailure", Some(c"CUDA_ERROR_LAUNCH_FAILED"), c"launch failure"),
    names(800, c"cudaErrorNotPermitted", Some(c"CUDA_ERROR_NOT_PERMITTED"), c"operation not permitted"),
    names(801, c"cudaErrorNotSupported", Some(c"CUDA_ERROR_NOT_SUPPORTED"), c"operation not supported"),
    names(802, c"cudaErrorSystemNotReady", Some(c"CUDA_ERROR_SYSTEM_NOT_READY"), c"system not ready"),
    names(
        803,
        c"cudaErrorSystemDriverMismatch",
        Some(c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        c"driver and display driver differ",
    ),
    names(
        804,
        c"cudaErrorCompatNotSupportedOnDevice",
        Some(c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
        c"forward compatibility is not for this device",
    ),
    names(
        805,
        c"cudaErrorMpsConnectionFailed",
        Some(c"CUDA_ERROR_MPS_CONNECTION_FAILED"),
        c"no connection to the MPS daemon",
    ),
    names(999, c"cudaErrorUnknown", Some(c"CUDA_ERROR_UNKNOWN"), c"unknown error"),
];

fn find(code: Code) -> Option<&'static Names> {
    NAMES.iter().find(|names| names.code == code)
}

/// Never NULL.
pub fn runtime_name(code: Code) -> *const c_char {
    find(code).map_or(c"unrecognized error code", |names| names.runtime).as_ptr()
}

/// Never NULL.
pub fn runtime_text(code: Code) -> *const c_char {
    find(code).map_or(c"unrecognized error code", |names| names.text).as_ptr()
}

pub(crate) fn driver_name(code: Code) -> Option<&'static CStr> {
    find(code)?.driver
}

pub(crate) fn driver_text(code: Code) -> Option<&'static CStr> {
    find(code).filter(|names| names.driver.is_some()).map(|names| names.text)
}

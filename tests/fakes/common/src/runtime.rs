//! The runtime's calls, as `libcudart.so` answers them.
//!
//! Every call that fails leaves its code behind for its thread. Only `cudaGetLastError` takes it away, and not even
//! that while the runtime cannot initialise itself or is broken.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fmt::Arguments;

use crate::codes::{INSUFFICIENT_DRIVER, INVALID_DIRECTION, INVALID_VALUE, NO_DEVICE, SUCCESS, fails_with};
use crate::devices;
use crate::library::State;
use crate::out::{Out, put};
use crate::{Code, Library, journal};

thread_local! {
    /// In each library that is loaded, one for each thread.
    static LAST: Cell<Code> = const { Cell::new(SUCCESS) };
}

pub struct Runtime {
    library: Library,
    version: c_int,
}

impl Runtime {
    pub const fn new(library: Library, version: c_int) -> Self {
        Self { library, version }
    }

    pub const fn library(&self) -> &Library {
        &self.library
    }

    pub fn host_register(&self, start: usize, bytes: usize, flags: u32) -> Code {
        self.call("cudaHostRegister", format_args!("{start:#x} {bytes} {flags}"), |state| {
            make_context(state);
            state.registrations.register(state.soname, &state.knobs, 0, (start, bytes, flags))
        })
    }

    pub fn host_unregister(&self, start: usize) -> Code {
        self.call("cudaHostUnregister", format_args!("{start:#x}"), |state| {
            state.registrations.unregister(start)
        })
    }

    pub fn host_get_flags(&self, out: Out<'_, u32>, address: usize) -> Code {
        self.call("cudaHostGetFlags", format_args!("{address:#x}"), |state| {
            put(out, state.registrations.flags(address)?)
        })
    }

    /// Nothing was ever allocated, so there is nothing to free but NULL, which makes a context.
    pub fn free(&self, address: usize) -> Code {
        self.call("cudaFree", format_args!("{address:#x}"), |state| {
            make_context(state);
            if address == 0 { Ok(()) } else { Err(INVALID_VALUE) }
        })
    }

    /// # Safety
    /// What is not registered is valid for so many bytes, and nobody else uses it meanwhile.
    pub unsafe fn memcpy(&self, to: usize, from: usize, bytes: usize, kind: c_int) -> Code {
        self.call("cudaMemcpy", format_args!("{to:#x} {from:#x} {bytes} {kind}"), |state| {
            make_context(state);
            if !(0..=4).contains(&kind) {
                return Err(INVALID_DIRECTION);
            }
            if bytes > 0 && (to == 0 || from == 0) {
                return Err(INVALID_VALUE);
            }
            // SAFETY: our caller's promise.
            unsafe { state.registrations.copy(to, from, bytes) }
        })
    }

    pub fn get_last_error(&self) -> Code {
        self.last_error("cudaGetLastError", || LAST.replace(SUCCESS))
    }

    pub fn peek_at_last_error(&self) -> Code {
        self.last_error("cudaPeekAtLastError", || LAST.get())
    }

    fn last_error(&self, name: &'static str, look: impl FnOnce() -> Code) -> Code {
        // What it answers is no failure of its own, so nothing is left behind.
        self.library.call(name, format_args!(""), |state| self.initialise(state), |_| fails_with(look()))
    }

    /// 0 without a driver, which is no failure.
    pub fn driver_get_version(&self, out: Out<'_, c_int>) -> Code {
        self.uninitialised("cudaDriverGetVersion", |state| put(out, state.knobs.driver))
    }

    pub fn runtime_get_version(&self, out: Out<'_, c_int>) -> Code {
        self.uninitialised("cudaRuntimeGetVersion", |_| put(out, self.version))
    }

    pub fn get_device_count(&self, out: Out<'_, c_int>) -> Code {
        self.call("cudaGetDeviceCount", format_args!(""), |state| put(out, state.devices.count() as c_int))
    }

    pub fn get_device(&self, out: Out<'_, c_int>) -> Code {
        self.call("cudaGetDevice", format_args!(""), |_| put(out, 0))
    }

    pub fn device_get_attribute(&self, out: Out<'_, c_int>, attribute: c_int, device: c_int) -> Code {
        self.call("cudaDeviceGetAttribute", format_args!("{attribute} {device}"), |state| {
            state.devices.check(device)?;
            put(out, devices::attribute(&state.knobs, attribute))
        })
    }

    /// A call that is written down and cannot fail.
    pub fn note(&self, name: &str, code: Code) {
        journal::call(self.library.soname, name, format_args!("{code}"), SUCCESS);
    }

    fn call(
        &self,
        name: &'static str,
        arguments: Arguments<'_>,
        body: impl FnOnce(&mut State) -> Result<(), Code>,
    ) -> Code {
        leave_behind(self.library.call(name, arguments, |state| self.initialise(state), body))
    }

    /// A call that works without a driver.
    fn uninitialised(&self, name: &'static str, body: impl FnOnce(&mut State) -> Result<(), Code>) -> Code {
        leave_behind(self.library.call(name, format_args!(""), |_| Ok(()), body))
    }

    /// Every call that needs it tries again for as long as it fails.
    fn initialise(&self, state: &mut State) -> Result<(), Code> {
        fails_with(state.knobs.init)?;
        if state.knobs.driver / 1000 < self.version / 1000 {
            return Err(INSUFFICIENT_DRIVER);
        }
        if state.devices.count() == 0 {
            return Err(NO_DEVICE);
        }
        self.library.belongs_here();
        Ok(())
    }
}

/// The driver that is loaded beside this one, if it is one of ours, learns of it.
fn make_context(state: &mut State) {
    if std::mem::replace(&mut state.has_context, true) {
        return;
    }
    // SAFETY: nothing is loaded that is not, so nothing runs.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if driver.is_null() {
        return;
    }
    // SAFETY: the handle is of a library that is loaded.
    let function = unsafe { libc::dlsym(driver, c"echo_fake_runtime_made_a_context".as_ptr()) };
    // SAFETY: a function of our own, which takes nothing and is NULL if it is not there.
    let function = unsafe { std::mem::transmute::<*mut c_void, Option<extern "C" fn()>>(function) };
    if let Some(function) = function {
        function();
    }
}

fn leave_behind(code: Code) -> Code {
    if code != SUCCESS {
        LAST.set(code);
    }
    code
}

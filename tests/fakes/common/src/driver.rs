//! The driver's calls but those for memory of a device, as `libcuda.so.1` answers them.
//!
//! Nothing works before `cuInit` but what asks for a version or for a name, and no call leaves an error behind.

use std::ffi::{c_char, c_int};
use std::fmt::Arguments;

use crate::codes::{
    self, INVALID_CONTEXT, INVALID_VALUE, NO_DEVICE, NOT_INITIALIZED, STUB_LIBRARY, fails_with,
};
use crate::contexts::{self, Handle};
use crate::devices::{self, Uuid};
use crate::library::State;
use crate::out::{Out, put};
use crate::{Code, Library, journal};

pub struct Driver {
    library: Library,
}

impl Driver {
    pub const fn new(library: Library) -> Self {
        Self { library }
    }

    pub const fn library(&self) -> &Library {
        &self.library
    }

    pub fn init(&self, flags: u32) -> Code {
        self.uninitialised("cuInit", format_args!("{flags}"), |state| {
            if flags != 0 {
                return Err(INVALID_VALUE);
            }
            self.initialise(state)
        })
    }

    fn initialise(&self, state: &mut State) -> Result<(), Code> {
        fails_with(state.knobs.init)?;
        if state.devices.count() == 0 {
            return Err(NO_DEVICE);
        }
        state.is_initialised = true;
        self.library.belongs_here();
        Ok(())
    }

    /// A runtime in the same process has made its context. No call of CUDA's, so it is not written down.
    pub fn runtime_made_a_context(&self) {
        let retain = |state: &mut State| {
            state.contexts.retain(0);
            Ok(())
        };
        // A driver that does not initialise has no context; the runtime finds that out by itself.
        let _ = self.library.enter("", |state| self.initialise(state), retain);
    }

    pub fn get_version(&self, out: Out<'_, c_int>) -> Code {
        self.uninitialised("cuDriverGetVersion", format_args!(""), |state| put(out, state.knobs.driver))
    }

    /// NULL for what has no name, unlike the runtime.
    pub fn get_error_name(&self, code: Code, out: Out<'_, *const c_char>) -> Code {
        self.text("cuGetErrorName", code, out, codes::driver_name(code).map(|name| name.as_ptr()))
    }

    pub fn get_error_string(&self, code: Code, out: Out<'_, *const c_char>) -> Code {
        self.text("cuGetErrorString", code, out, codes::driver_text(code).map(|text| text.as_ptr()))
    }

    fn text(&self, name: &str, code: Code, out: Out<'_, *const c_char>, text: Option<*const c_char>) -> Code {
        let done = put(out, text.unwrap_or(std::ptr::null())).and(text.ok_or(INVALID_VALUE));
        let answer = done.err().unwrap_or(codes::SUCCESS);
        journal::call(self.library.soname, name, format_args!("{code}"), answer);
        answer
    }

    pub fn device_get_count(&self, out: Out<'_, c_int>) -> Code {
        self.call("cuDeviceGetCount", format_args!(""), |state| put(out, state.devices.count() as c_int))
    }

    pub fn device_get(&self, out: Out<'_, c_int>, ordinal: c_int) -> Code {
        self.call("cuDeviceGet", format_args!("{ordinal}"), |state| {
            state.devices.check(ordinal)?;
            put(out, ordinal)
        })
    }

    /// # Safety
    /// `out` is NULL or valid for `bytes` bytes.
    pub unsafe fn device_get_name(&self, out: *mut c_char, bytes: c_int, device: c_int) -> Code {
        self.call("cuDeviceGetName", format_args!("{device}"), |state| {
            state.devices.check(device)?;
            let name = c"a fake GPU of echo's";
            let kept =
                usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_sub(1)).ok_or(INVALID_VALUE)?;
            let kept = kept.min(name.count_bytes());
            if out.is_null() {
                return Err(INVALID_VALUE);
            }
            // SAFETY: not NULL; `kept` is less than the bytes that it is valid for, and no more than the name has.
            unsafe { out.copy_from_nonoverlapping(name.as_ptr(), kept) };
            let end = out.wrapping_add(kept);
            // SAFETY: `kept` is less than the bytes that it is valid for.
            unsafe { end.write(0) };
            Ok(())
        })
    }

    pub fn device_get_uuid(&self, name: &'static str, out: Out<'_, Uuid>, device: c_int) -> Code {
        self.call(name, format_args!("{device}"), |state| put(out, state.devices.uuid(device)?))
    }

    pub fn device_get_attribute(&self, out: Out<'_, c_int>, attribute: c_int, device: c_int) -> Code {
        self.call("cuDeviceGetAttribute", format_args!("{attribute} {device}"), |state| {
            state.devices.check(device)?;
            put(out, devices::attribute(&state.knobs, attribute))
        })
    }

    pub fn device_total_memory(&self, out: Out<'_, usize>, device: c_int) -> Code {
        self.call("cuDeviceTotalMem_v2", format_args!("{device}"), |state| {
            state.devices.check(device)?;
            put(out, state.knobs.memory as usize)
        })
    }

    pub fn primary_context_get_state(
        &self,
        device: c_int,
        flags: Out<'_, u32>,
        active: Out<'_, c_int>,
    ) -> Code {
        self.call("cuDevicePrimaryCtxGetState", format_args!("{device}"), |state| {
            let device = state.devices.check(device)?;
            put(flags, 0)?;
            put(active, state.contexts.is_active(device).into())
        })
    }

    pub fn primary_context_retain(&self, out: Out<'_, Handle>, device: c_int) -> Code {
        self.call("cuDevicePrimaryCtxRetain", format_args!("{device}"), |state| {
            let device = state.devices.check(device)?;
            let out = out.ok_or(INVALID_VALUE)?;
            out.write(state.contexts.retain(device));
            Ok(())
        })
    }

    pub fn primary_context_release(&self, device: c_int) -> Code {
        self.call("cuDevicePrimaryCtxRelease_v2", format_args!("{device}"), |state| {
            let device = state.devices.check(device)?;
            state.contexts.release(device)
        })
    }

    pub fn context_get_current(&self, out: Out<'_, Handle>) -> Code {
        self.call("cuCtxGetCurrent", format_args!(""), |_| put(out, contexts::current().unwrap_or(0)))
    }

    /// The device of the thread's context.
    pub fn context_get_device(&self, out: Out<'_, c_int>) -> Code {
        self.call("cuCtxGetDevice", format_args!(""), |state| {
            put(out, state.contexts.device_of(state.contexts.current()?) as c_int)
        })
    }

    pub fn context_push(&self, context: Handle) -> Code {
        self.call("cuCtxPushCurrent_v2", format_args!("{context:#x}"), |state| state.contexts.push(context))
    }

    /// NULL for who does not want to know which it was.
    pub fn context_pop(&self, out: Out<'_, Handle>) -> Code {
        self.call("cuCtxPopCurrent_v2", format_args!(""), |_| {
            let context = contexts::pop()?;
            if let Some(out) = out {
                out.write(context);
            }
            Ok(())
        })
    }

    pub fn context_set(&self, context: Handle) -> Code {
        self.call("cuCtxSetCurrent", format_args!("{context:#x}"), |state| state.contexts.set(context))
    }

    /// There is nothing to wait for: a copy is done when its call returns.
    pub fn context_synchronize(&self) -> Code {
        self.call("cuCtxSynchronize", format_args!(""), |state| state.contexts.current().map(drop))
    }

    pub fn host_register(&self, start: usize, bytes: usize, flags: u32) -> Code {
        self.call("cuMemHostRegister_v2", format_args!("{start:#x} {bytes} {flags}"), |state| {
            let context = state.contexts.current()?;
            state.registrations.register(state.soname, &state.knobs, context, (start, bytes, flags))
        })
    }

    /// In whatever context, or in none; but not when that in which it was registered is gone.
    pub fn host_unregister(&self, start: usize) -> Code {
        self.call("cuMemHostUnregister", format_args!("{start:#x}"), |state| {
            let context = state.registrations.context(start);
            if context.is_some_and(|context| !state.contexts.is_alive(context)) {
                return Err(INVALID_CONTEXT);
            }
            state.registrations.unregister(start)
        })
    }

    pub(crate) fn call(
        &self,
        name: &'static str,
        arguments: Arguments<'_>,
        body: impl FnOnce(&mut State) -> Result<(), Code>,
    ) -> Code {
        let initialised = |state: &mut State| match state.knobs.init {
            STUB_LIBRARY => Err(STUB_LIBRARY),
            _ if !state.is_initialised => Err(NOT_INITIALIZED),
            _ => Ok(()),
        };
        self.library.call(name, arguments, initialised, body)
    }

    fn uninitialised(
        &self,
        name: &'static str,
        arguments: Arguments<'_>,
        body: impl FnOnce(&mut State) -> Result<(), Code>,
    ) -> Code {
        let stub = |state: &mut State| match state.knobs.init {
            STUB_LIBRARY => Err(STUB_LIBRARY),
            _ => Ok(()),
        };
        self.library.call(name, arguments, stub, body)
    }
}

//! Libraries held against the cases, a step after the other: fakes and real ones alike.

use std::fmt::Debug;
use std::os::fd::AsFd;

use crate::cases::{Call, Case, DriverCase, Memory, Step, What};
use crate::cuda::{Driver, Properties, Runtime, properties};
use crate::window::{Window, memfd};

/// Whether a library answers as a case says.
pub(crate) enum Held {
    Yes,
    /// The case is about another device.
    LeftOut(String),
    /// The first step that is answered otherwise.
    No(String),
}

fn differs(index: usize, step: &impl Debug, got: i32) -> Held {
    Held::No(format!("step {index}, {step:?}, is answered {got}"))
}

/// Goes through a case of a runtime. Nothing of CUDA's was called in this process.
pub(crate) fn runtime_case(case: &Case, runtime: &Runtime) -> Held {
    for &(attribute, value) in case.attributes {
        match runtime.attribute(attribute) {
            Ok(has) if has == value => {}
            has => return Held::LeftOut(format!("attribute {attribute} is {has:?}")),
        }
    }
    let window = Window::new(case.memory);
    for (i, step) in case.steps.iter().enumerate() {
        let (got, gives) = match *step {
            Step::Register(from, bytes, flags, gives) => {
                (runtime.host_register(window.base + from, bytes, flags), gives)
            }
            Step::RegisterNull(bytes, gives) => (runtime.host_register(0, bytes, 0), gives),
            Step::Unregister(from, gives) => (runtime.host_unregister(window.base + from), gives),
            Step::UnregisterNull(gives) => (runtime.host_unregister(0), gives),
            Step::Last(gives) => (runtime.get_last_error(), gives),
            Step::Peek(gives) => (runtime.peek_at_last_error(), gives),
        };
        if got != gives {
            return differs(i, step, got);
        }
    }
    Held::Yes
}

/// Goes through a case of the driver. Nothing of CUDA's was called in this process.
pub(crate) fn driver_case(case: &DriverCase, driver: &Driver) -> Held {
    let window = Window::new(Memory::Shared);
    let (mut addresses, mut handles) = ([0_u64; 4], [0_u64; 4]);
    let mut descriptor = None;
    let mut context = 0;
    // Asked for as soon as it can be.
    let granule = || driver.granularity(&properties(0, true)).unwrap_or(2 << 20);
    let at = |address: u64, granules: usize| address + (granules * granule()) as u64;
    for (i, step) in case.steps.iter().enumerate() {
        let bytes = |granules: usize| granules * granule();
        let code = |said: Result<u64, i32>, place: &mut u64| match said {
            Ok(said) => {
                *place = said;
                0
            }
            Err(code) => code,
        };
        let (got, gives) = match *step {
            Call::Init(flags, gives) => (driver.init(flags), gives),
            Call::Count(gives) => (driver.says::<i32>("cuDeviceGetCount").err().unwrap_or(0), gives),
            Call::Enter => {
                context = driver.of_device("cuDevicePrimaryCtxRetain", 0).unwrap();
                (driver.with_context("cuCtxPushCurrent_v2", context), 0)
            }
            Call::Leave => {
                assert_eq!(driver.says::<usize>("cuCtxPopCurrent_v2"), Ok(context));
                (driver.release_context(0), 0)
            }
            Call::HostRegister(bytes, flags, gives) => {
                (driver.host_register(window.base, bytes, flags), gives)
            }
            Call::HostUnregister(gives) => (driver.host_unregister(window.base), gives),
            Call::Synchronize(gives) => (driver.synchronize(), gives),
            Call::Reserve(address, granules, alignment, gives) => {
                (code(driver.reserve(bytes(granules), alignment), &mut addresses[address]), gives)
            }
            Call::ReserveBytes(bytes, gives) => (driver.reserve(bytes, 0).err().unwrap_or(0), gives),
            Call::Free(address, from, granules, gives) => {
                (driver.on_range("cuMemAddressFree", at(addresses[address], from), bytes(granules)), gives)
            }
            Call::Create(handle, granules, what, gives) => {
                let properties = what.properties(driver);
                (code(driver.create(bytes(granules), &properties, 0), &mut handles[handle]), gives)
            }
            Call::CreateBytes(bytes, gives) => {
                (driver.create(bytes, &properties(0, false), 0).err().unwrap_or(0), gives)
            }
            Call::Release(handle, gives) => (driver.release(handles[handle]), gives),
            Call::Map(address, from, granules, offset, handle, gives) => {
                let start = at(addresses[address], from);
                (driver.map(start, bytes(granules), bytes(offset), handles[handle]), gives)
            }
            Call::Unmap(address, from, granules, gives) => {
                (driver.on_range("cuMemUnmap", at(addresses[address], from), bytes(granules)), gives)
            }
            Call::Access(address, from, granules, flags, gives) => {
                (driver.set_access(at(addresses[address], from), bytes(granules), 0, flags), gives)
            }
            Call::AccessIs(address, from, flags) => {
                let access = driver.get_access(0, at(addresses[address], from));
                (i32::from(access != Ok(flags)), 0)
            }
            Call::Export(handle, gives) => match driver.export(handles[handle]) {
                Ok(exported) => {
                    descriptor = Some(exported);
                    (0, gives)
                }
                Err(code) => (code, gives),
            },
            Call::Import(handle, gives) => {
                let descriptor = descriptor.as_ref().expect("something was exported");
                (code(driver.import(descriptor.as_fd()), &mut handles[handle]), gives)
            }
            Call::ImportOther(gives) => (driver.import(memfd().as_fd()).err().unwrap_or(0), gives),
            Call::Retain(address, from, handle, gives) => {
                (code(driver.retain(at(addresses[address], from)), &mut handles[handle]), gives)
            }
            Call::Fill(address, granules, gives) => {
                (driver.fill(addresses[address], 7, bytes(granules)), gives)
            }
        };
        if got != gives {
            return differs(i, step, got);
        }
    }
    Held::Yes
}

impl What {
    fn properties(self, driver: &Driver) -> Properties {
        let ordinary = properties(0, self == Self::Exportable);
        match self {
            Self::Plain | Self::Exportable => ordinary,
            Self::WrongKind => Properties { kind: 2, ..ordinary },
            Self::WrongReserved => Properties { reserved: [0, 0, 0, 1], ..ordinary },
            Self::NoSuchDevice => properties(driver.says("cuDeviceGetCount").unwrap(), false),
        }
    }
}

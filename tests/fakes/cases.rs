//! What a runtime answers, case by case: data alone, so that the same table is held against a real one.
//!
//! Each case is a process of its own with a window of [`WINDOW`] pages. A step names places in it in bytes from its
//! beginning. What the answer hangs on in a device stands beside the case.

#![allow(unreachable_pub, reason = "a module of tests")]

/// Pages of the window.
pub const WINDOW: usize = 64;
pub const PAGE: usize = 4096;

/// What the window is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A memfd, shared and writable.
    Shared,
    /// A memfd, shared and mapped to be read.
    ReadOnly,
    /// A memfd, mapped privately and writable: its pages become copies.
    Private,
    /// Of the process alone.
    Anonymous,
    /// Reserved, and not to be touched.
    Reserved,
    /// A file on a disk, shared and writable.
    Disk,
    /// Not mapped (any more).
    Unmapped,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// (from, bytes, flags) gives.
    Register(usize, usize, u32, i32),
    /// NULL and so many bytes gives.
    RegisterNull(usize, i32),
    /// An address gives.
    Unregister(usize, i32),
    UnregisterNull(i32),
    /// `cudaGetLastError`, which takes it away.
    Last(i32),
    Peek(i32),
}
use Step::{Last, Peek, Register, RegisterNull, Unregister, UnregisterNull};

pub struct Case {
    pub name: &'static str,
    pub memory: Memory,
    /// Attributes of the device with which it is so; another device is left out, and a fake is told them.
    pub attributes: &'static [(i32, i32)],
    pub steps: &'static [Step],
}

/// Registration of memory that is mapped to be read.
const READ_ONLY_REGISTER: i32 = 113;
const HOST_PAGE_TABLES: i32 = 100;
const ORDINARY: &[(i32, i32)] = &[(HOST_PAGE_TABLES, 0)];
const WITHOUT_READ_ONLY: &[(i32, i32)] = &[(HOST_PAGE_TABLES, 0), (READ_ONLY_REGISTER, 0)];
const WITH_READ_ONLY: &[(i32, i32)] = &[(HOST_PAGE_TABLES, 0), (READ_ONLY_REGISTER, 1)];

const fn case(name: &'static str, memory: Memory, steps: &'static [Step]) -> Case {
    Case { name, memory, attributes: ORDINARY, steps }
}

pub const CASES: &[Case] = &[
    case(
        "a range is registered once, and unregistered once",
        Memory::Shared,
        &[
            Register(0, 8 * PAGE, 0, 0),
            Last(0),
            Unregister(0, 0),
            Last(0),
            Unregister(0, 713),
            Last(713),
            Last(0),
        ],
    ),
    case(
        "it may be registered again after that",
        Memory::Shared,
        &[Register(0, PAGE, 0, 0), Unregister(0, 0), Register(0, PAGE, 0, 0), Unregister(0, 0)],
    ),
    case(
        "portable and mapped change nothing",
        Memory::Shared,
        &[
            Register(0, PAGE, 1, 0),
            Register(PAGE, PAGE, 2, 0),
            Register(2 * PAGE, PAGE, 3, 0),
            Unregister(0, 0),
            Unregister(PAGE, 0),
            Unregister(2 * PAGE, 0),
        ],
    ),
    case(
        "no bytes that are registered are registered again",
        Memory::Shared,
        &[
            Register(8 * PAGE, 8 * PAGE, 0, 0),
            Register(8 * PAGE, 8 * PAGE, 0, 712),
            Register(10 * PAGE, PAGE, 0, 712),
            Register(8 * PAGE - 1, 2, 0, 712),
            Register(16 * PAGE - 1, 2, 0, 712),
            Register(0, 32 * PAGE, 0, 712),
            Last(712),
            // What was there before is not touched by that.
            Unregister(8 * PAGE, 0),
        ],
    ),
    case(
        "ranges are bytes: two lie on one page, and neither is aligned",
        Memory::Shared,
        &[
            Register(16, 100, 0, 0),
            Register(116, 100, 0, 0),
            Register(215, 100, 0, 712),
            Unregister(16, 0),
            Unregister(116, 0),
        ],
    ),
    case(
        "by its first byte alone is a range unregistered",
        Memory::Shared,
        &[
            Register(0, 4 * PAGE, 0, 0),
            Unregister(PAGE, 1),
            Unregister(1, 1),
            Unregister(4 * PAGE, 713),
            UnregisterNull(1),
            Unregister(0, 0),
        ],
    ),
    case(
        "no bytes, no memory, no such flag",
        Memory::Shared,
        &[
            Register(0, 0, 0, 1),
            RegisterNull(PAGE, 1),
            Register(0, PAGE, 16, 1),
            Register(0, PAGE, u32::MAX, 1),
            Last(1),
            Last(0),
        ],
    ),
    case(
        "an error stays until it is taken, and success does not take it",
        Memory::Shared,
        &[
            Unregister(0, 713),
            Peek(713),
            Register(0, PAGE, 0, 0),
            Peek(713),
            Register(0, PAGE, 0, 712),
            Peek(712),
            Unregister(0, 0),
            Last(712),
            Peek(0),
            Last(0),
        ],
    ),
    case("no more than is mapped", Memory::Shared, &[Register(0, WINDOW * PAGE + 1, 0, 1), Last(1)]),
    case("512 GiB are too much for a call", Memory::Shared, &[Register(0, 512 << 30, 0, 2), Last(2)]),
    case("what is not mapped", Memory::Unmapped, &[Register(0, PAGE, 0, 1), Last(1)]),
    case("what is reserved alone", Memory::Reserved, &[Register(0, PAGE, 0, 1), Last(1)]),
    case("a file on a disk", Memory::Disk, &[Register(0, PAGE, 0, 1), Last(1)]),
    case("memory of the process alone", Memory::Anonymous, &[Register(0, PAGE, 0, 0), Unregister(0, 0)]),
    case(
        "a private mapping, to nobody's good",
        Memory::Private,
        &[Register(0, PAGE, 0, 0), Unregister(0, 0)],
    ),
    Case {
        name: "what is mapped to be read, where a device must write",
        memory: Memory::ReadOnly,
        attributes: WITHOUT_READ_ONLY,
        steps: &[Register(0, PAGE, 0, 1), Last(1), Register(0, PAGE, 8, 801), Last(801)],
    },
    Case {
        name: "what is mapped to be read, where a device may only read",
        memory: Memory::ReadOnly,
        attributes: WITH_READ_ONLY,
        steps: &[Register(0, PAGE, 0, 1), Register(0, PAGE, 8, 0), Unregister(0, 0)],
    },
    Case {
        name: "what is mapped to be written, for a device that may only read",
        memory: Memory::Shared,
        attributes: WITHOUT_READ_ONLY,
        steps: &[Register(0, PAGE, 8, 801)],
    },
];

/// A step with the driver. Numbers of things are places to keep them in: handles, addresses.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// `cuInit` with flags gives.
    Init(u32, i32),
    /// `cuDeviceGetCount` gives.
    Count(i32),
    /// Retains the primary context of device 0 and pushes it, or gives back both.
    Enter,
    Leave,
    /// (bytes, flags) at the beginning of a page of ours gives.
    HostRegister(usize, u32, i32),
    HostUnregister(i32),
    /// `cuCtxSynchronize` gives.
    Synchronize(i32),
    /// (address, granules, alignment) gives.
    Reserve(usize, usize, usize, i32),
    /// So many bytes gives.
    ReserveBytes(usize, i32),
    /// (address, from granule, granules) gives.
    Free(usize, usize, usize, i32),
    /// (handle, granules, what) gives.
    Create(usize, usize, What, i32),
    /// So many bytes gives.
    CreateBytes(usize, i32),
    Release(usize, i32),
    /// (address, from granule, granules, offset in granules, handle) gives.
    Map(usize, usize, usize, usize, usize, i32),
    /// (address, from granule, granules) gives.
    Unmap(usize, usize, usize, i32),
    /// (address, from granule, granules, flags) gives.
    Access(usize, usize, usize, i32, i32),
    /// The flags at an address, from granule.
    AccessIs(usize, usize, u64),
    /// (handle) gives; the descriptor is kept.
    Export(usize, i32),
    /// The descriptor that was exported last, as (handle), gives.
    Import(usize, i32),
    /// A descriptor of something else gives.
    ImportOther(i32),
    /// (address, from granule, as handle) gives.
    Retain(usize, usize, usize, i32),
    /// (address, granules) gives.
    Fill(usize, usize, i32),
}

/// What memory is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Plain,
    Exportable,
    /// With properties that are not zero where they must be.
    WrongKind,
    WrongReserved,
    NoSuchDevice,
}
use Call::{
    Access, AccessIs, Count, Create, CreateBytes, Enter, Export, Fill, Free, HostRegister, HostUnregister,
    Import, ImportOther, Init, Leave, Map, Release, Reserve, ReserveBytes, Retain, Synchronize, Unmap,
};

pub struct DriverCase {
    pub name: &'static str,
    pub steps: &'static [Call],
}

const fn driver(name: &'static str, steps: &'static [Call]) -> DriverCase {
    DriverCase { name, steps }
}

pub const DRIVER_CASES: &[DriverCase] = &[
    driver(
        "nothing works before cuInit",
        &[
            Count(3),
            HostRegister(PAGE, 0, 3),
            Reserve(0, 1, 0, 3),
            Create(0, 1, What::Plain, 3),
            Init(1, 1),
            Count(3),
            Init(0, 0),
            Count(0),
            Init(0, 0),
        ],
    ),
    driver(
        "host memory is registered in a context, and unregistered in any or none",
        &[
            Init(0, 0),
            HostRegister(PAGE, 0, 201),
            Enter,
            HostRegister(PAGE, 0, 0),
            HostRegister(PAGE, 0, 712),
            Synchronize(0),
            HostUnregister(0),
            HostUnregister(713),
            HostRegister(0, 0, 1),
            HostRegister(PAGE, 16, 1),
            Leave,
            Synchronize(201),
        ],
    ),
    driver(
        "memory is created, mapped, used and given back",
        &[
            Init(0, 0),
            Enter,
            Reserve(0, 4, 0, 0),
            Create(0, 2, What::Plain, 0),
            Map(0, 1, 2, 0, 0, 0),
            Access(0, 1, 2, 3, 0),
            AccessIs(0, 1, 3),
            // The mapping holds what the handle held.
            Release(0, 0),
            Free(0, 0, 4, 1),
            Unmap(0, 1, 2, 0),
            Free(0, 0, 4, 0),
            Leave,
        ],
    ),
    driver(
        "sizes are multiples, and what is reserved is zero",
        &[
            Init(0, 0),
            Create(0, 0, What::Plain, 1),
            CreateBytes(PAGE, 1),
            Create(0, 1, What::WrongKind, 1),
            Create(0, 1, What::WrongReserved, 1),
            Create(0, 1, What::NoSuchDevice, 101),
            ReserveBytes(0, 1),
            ReserveBytes(1, 1),
            Reserve(0, 1, 3, 1),
        ],
    ),
    driver(
        "a mapping goes where nothing is mapped, within one reservation",
        &[
            Init(0, 0),
            Reserve(0, 2, 0, 0),
            Create(0, 2, What::Plain, 0),
            Create(1, 1, What::Plain, 0),
            Map(0, 1, 2, 0, 0, 1),
            Map(0, 0, 2, 1, 0, 1),
            Map(0, 0, 2, 0, 1, 1),
            Map(0, 1, 1, 0, 1, 0),
            Map(0, 0, 2, 0, 0, 1),
            Map(0, 1, 1, 0, 1, 1),
            Unmap(0, 1, 1, 0),
            Map(0, 0, 2, 0, 0, 0),
            Unmap(0, 0, 2, 0),
            Free(0, 0, 1, 1),
            Free(0, 1, 1, 1),
            Free(0, 0, 2, 0),
            Release(0, 0),
            Release(1, 0),
        ],
    ),
    driver(
        "mappings are unmapped whole, one or several",
        &[
            Init(0, 0),
            Reserve(0, 4, 0, 0),
            Create(0, 2, What::Plain, 0),
            Create(1, 1, What::Plain, 0),
            Map(0, 0, 2, 0, 0, 0),
            Map(0, 2, 1, 0, 1, 0),
            Unmap(0, 0, 1, 1),
            Unmap(0, 1, 1, 1),
            Unmap(0, 0, 4, 1),
            Unmap(0, 3, 1, 1),
            // What failed has changed nothing.
            Access(0, 0, 3, 3, 0),
            Unmap(0, 0, 3, 0),
            Unmap(0, 0, 3, 1),
            Free(0, 0, 4, 0),
            Release(0, 0),
            Release(1, 0),
        ],
    ),
    driver(
        "access is given to what is mapped, and anew after each mapping",
        &[
            Init(0, 0),
            Enter,
            Reserve(0, 2, 0, 0),
            Create(0, 1, What::Plain, 0),
            Access(0, 0, 1, 3, 1),
            Map(0, 0, 1, 0, 0, 0),
            AccessIs(0, 0, 0),
            Access(0, 0, 2, 3, 1),
            Access(0, 0, 1, 2, 1),
            Access(0, 0, 1, 3, 0),
            Fill(0, 1, 0),
            Fill(0, 2, 1),
            Unmap(0, 0, 1, 0),
            Fill(0, 1, 1),
            Map(0, 0, 1, 0, 0, 0),
            AccessIs(0, 0, 0),
            Unmap(0, 0, 1, 0),
            Free(0, 0, 2, 0),
            Release(0, 0),
            Leave,
        ],
    ),
    driver(
        "a descriptor is given for what was made for that, and taken from a driver alone",
        &[
            Init(0, 0),
            Create(0, 1, What::Plain, 0),
            Export(0, 1),
            Create(1, 1, What::Exportable, 0),
            Export(1, 0),
            Import(2, 0),
            Import(3, 0),
            ImportOther(1),
            Release(1, 0),
            // The descriptor holds it.
            Import(1, 0),
            Release(0, 0),
            Release(1, 0),
            Release(2, 0),
            Release(3, 0),
        ],
    ),
    driver(
        "the handle of what is mapped can be had again",
        &[
            Init(0, 0),
            Reserve(0, 1, 0, 0),
            Create(0, 1, What::Plain, 0),
            Retain(0, 0, 1, 1),
            Map(0, 0, 1, 0, 0, 0),
            Release(0, 0),
            Retain(0, 0, 1, 0),
            Unmap(0, 0, 1, 0),
            Map(0, 0, 1, 0, 1, 0),
            Unmap(0, 0, 1, 0),
            Release(1, 0),
            Free(0, 0, 1, 0),
        ],
    ),
];

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

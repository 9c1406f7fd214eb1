//! Memory of a process that a case registers.

#![allow(dead_code, reason = "each user uses some of it")]

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::cases::{Memory, PAGE, WINDOW};
use crate::cuda::Runtime;

/// Pages in a row, and one behind them that may not be touched.
pub(crate) struct Window {
    pub(crate) base: usize,
    pub(crate) file: Option<OwnedFd>,
}

impl Window {
    pub(crate) fn new(memory: Memory) -> Self {
        let bytes = (WINDOW + 1) * PAGE;
        // SAFETY: the kernel chooses where, so nothing of ours is there.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE)
        };
        let mut window = Self { base: base.unwrap().expose_provenance(), file: None };
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        match memory {
            Memory::Shared => window.map_file(memfd(), writable, MapFlags::SHARED),
            Memory::ReadOnly => window.map_file(memfd(), ProtFlags::READ, MapFlags::SHARED),
            Memory::Private => window.map_file(memfd(), writable, MapFlags::PRIVATE),
            Memory::Disk => window.map_file(on_disk(), writable, MapFlags::SHARED),
            Memory::Anonymous => {
                // SAFETY: the window is ours, and nothing refers to it yet.
                unsafe {
                    rustix::mm::mprotect(
                        window.pointer(0),
                        WINDOW * PAGE,
                        MprotectFlags::READ | MprotectFlags::WRITE,
                    )
                }
                .unwrap();
            }
            Memory::Reserved => {}
            Memory::Unmapped => window.unmap(),
        }
        window
    }

    pub(crate) fn map_file(&mut self, file: OwnedFd, protection: ProtFlags, kind: MapFlags) {
        let file = self.file.insert(file);
        rustix::fs::ftruncate(&*file, (WINDOW * PAGE) as u64).unwrap();
        let at = std::ptr::with_exposed_provenance_mut(self.base);
        // SAFETY: over the window, which is ours and to which nothing refers yet.
        unsafe { rustix::mm::mmap(at, WINDOW * PAGE, protection, kind | MapFlags::FIXED, &*file, 0) }
            .unwrap();
    }

    pub(crate) fn unmap(&self) {
        // SAFETY: the window is ours, and nothing of Rust's refers to it.
        unsafe { rustix::mm::munmap(self.pointer(0), WINDOW * PAGE) }.unwrap();
    }

    pub(crate) fn pointer(&self, offset: usize) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.base + offset)
    }

    /// As another process writes that has the file.
    pub(crate) fn write_to_file(&self, byte: u8) {
        let file = File::from(self.file.as_ref().unwrap().try_clone().unwrap());
        std::os::unix::fs::FileExt::write_all_at(&file, &[byte; 3 * PAGE], 0).unwrap();
    }

    /// As the process writes that has it mapped.
    pub(crate) fn write(&self, byte: u8) {
        // SAFETY: three pages of the window, mapped to be written in every part that calls this.
        unsafe { self.pointer(0).write_bytes(byte, 3 * PAGE) };
    }

    /// What a device sees of the bytes written.
    pub(crate) fn seen_by(&self, runtime: &Runtime) -> u8 {
        // SAFETY: three pages of the window, which are readable where they are not pinned.
        let bytes = unsafe { runtime.bytes(self.base, 3 * PAGE) }.unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }
}

pub(crate) fn memfd() -> OwnedFd {
    rustix::fs::memfd_create("window", MemfdFlags::CLOEXEC).unwrap()
}

/// In the folder of the build, since that for temporary files may be in memory.
fn on_disk() -> OwnedFd {
    let executable = std::env::current_exe().unwrap();
    let path = executable.with_file_name(format!("window-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.into()
}

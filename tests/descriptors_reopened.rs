//! A descriptor is worth what it was given for: who may read cannot come to write, and who may write cannot change
//! what the file is.

#[path = "support/process.rs"]
mod process;
#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use echo::memory::syscalls::page_size;
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use stranger::Stranger;
use support::{Daemon, numbers, say};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role[0].as_str() {
        "daemon" => support::play_daemon(&role[1..]),
        "reader" => read_and_try_more(),
        _ => write_and_try_more(),
    }
}

/// The descriptors of data and control, as a member gets them.
fn attached(writer: bool) -> (Stranger, [OwnedFd; 2]) {
    let (stranger, _page) = Stranger::greeted(&support::socket_of_role());
    let (_, data, control) = stranger.attach(1, "t", writer);
    (stranger, [data, control])
}

fn reopened(descriptor: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(format!("/proc/self/fd/{}", descriptor.as_raw_fd()), flags, Mode::empty())
}

/// As another user than the daemon's.
fn read_and_try_more() {
    let (_stranger, descriptors) = attached(false);
    process::become_nobody(&[]);
    for descriptor in &descriptors {
        for flags in [OFlags::RDWR, OFlags::WRONLY, OFlags::RDWR | OFlags::TRUNC] {
            assert_eq!(reopened(descriptor, flags).map(drop), Err(Errno::ACCESS), "{flags:?}");
        }
        for writable in [ProtFlags::WRITE, ProtFlags::READ | ProtFlags::WRITE] {
            // SAFETY: the kernel chooses the addresses.
            let mapped = unsafe {
                rustix::mm::mmap(std::ptr::null_mut(), page_size(), writable, MapFlags::SHARED, descriptor, 0)
            };
            assert_eq!(mapped, Err(Errno::ACCESS));
        }
        // SAFETY: the kernel chooses the addresses.
        let mapped = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                page_size(),
                ProtFlags::READ,
                MapFlags::SHARED,
                descriptor,
                0,
            )
        };
        let mapped = mapped.unwrap();
        // SAFETY: mapped just now, and used by nobody.
        let raised =
            unsafe { rustix::mm::mprotect(mapped, page_size(), MprotectFlags::READ | MprotectFlags::WRITE) };
        assert_eq!(raised, Err(Errno::ACCESS));
        // SAFETY: mapped just now, and used by nobody.
        let removed = unsafe { rustix::mm::madvise(mapped, page_size(), rustix::mm::Advice::LinuxRemove) };
        assert_eq!(removed, Err(Errno::ACCESS));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(descriptor, punch, 0, 4096), Err(Errno::BADF));
        assert_eq!(rustix::io::pwrite(descriptor, &[1], 0), Err(Errno::BADF));
        assert_eq!(rustix::fs::ftruncate(descriptor, 0), Err(Errno::INVAL));
        // EPERM, or EBADF: it is not writable.
        assert!(rustix::fs::fcntl_add_seals(descriptor, SealFlags::WRITE).is_err());
        assert!(rustix::fs::fchmod(descriptor, Mode::from_raw_mode(0o666)).is_err());
    }
    say("all is well");
}

/// As whoever started it: it may write the bytes, and nothing else.
fn write_and_try_more() {
    let (_stranger, descriptors) = attached(true);
    for descriptor in &descriptors {
        let bytes = rustix::fs::fstat(descriptor).unwrap().st_size as u64;
        for other in [0, bytes - 1, bytes + 1, bytes * 2] {
            assert_eq!(rustix::fs::ftruncate(descriptor, other), Err(Errno::PERM));
        }
        assert_eq!(rustix::fs::fallocate(descriptor, FallocateFlags::empty(), bytes, 4096), Err(Errno::PERM));
        assert_eq!(rustix::io::pwrite(descriptor.as_fd(), &[1], bytes), Err(Errno::PERM));
        for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE, SealFlags::SEAL] {
            assert_eq!(rustix::fs::fcntl_add_seals(descriptor, seal), Err(Errno::PERM));
        }
    }
    say("all is well");
}

#[test]
fn a_reader_of_another_user_cannot_come_to_write_whatever_it_tries() {
    if !process::may_change_user("a descriptor that is reopened") {
        return;
    }
    let daemon = Daemon::start();
    daemon.client().create_table(&numbers("t", 4, 4)).unwrap();
    let mut reader = daemon.actor_of("reader");
    reader.expect("all is well");
    assert!(reader.wait().success());
}

#[test]
fn a_writer_cannot_change_the_size_or_the_seals_of_what_it_writes() {
    let daemon = Daemon::start();
    daemon.client().create_table(&numbers("t", 4, 4)).unwrap();
    let mut writer = daemon.actor_of("writer");
    writer.expect("all is well");
    assert!(writer.wait().success());
}

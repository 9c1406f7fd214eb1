//! What a process has and may: its user, its limits, its descriptors, its memory.

#![allow(dead_code, unreachable_pub, reason = "each file of tests uses some of it")]

use std::path::Path;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

const NOBODY: u32 = 65534;

/// Whether this process may become another user; tests that need it say so and pass.
pub fn may_change_user(test: &str) -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        eprintln!("{test} was not tested: it takes root to become another user");
    }
    may
}

/// From now on this process is nobody's, without any privilege. It may write what these paths name.
pub fn become_nobody(own: &[&Path]) {
    for path in own {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // SAFETY: no groups are read; each call changes this process's credentials alone, in all of its threads.
    assert_eq!(unsafe { libc::setgroups(0, std::ptr::null()) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) }, 0);
    // A process that changed its user is shut out of its own /proc until it says otherwise.
    // SAFETY: changes who may look into this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) }, 0);
}

/// Sets a limit of this process. It can be raised again up to what it was.
pub fn limit(resource: Resource, current: Option<u64>) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current, maximum }).unwrap();
}

/// Sets a limit of a process that was started by this one.
pub fn limit_of(pid: u32, resource: Resource, current: Option<u64>) {
    let maximum = getrlimit(resource).maximum;
    prlimit(Pid::from_raw(pid.cast_signed()), resource, Rlimit { current, maximum }).unwrap();
}

/// Numbers of the descriptors that a process has open.
pub fn descriptors(pid: u32) -> Vec<u64> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut numbers: Vec<u64> =
        open.map(|entry| entry.unwrap().file_name().to_string_lossy().parse().unwrap()).collect();
    numbers.sort_unstable();
    // Without the one by which this process has just read them.
    numbers.retain(|fd| std::fs::symlink_metadata(format!("/proc/{pid}/fd/{fd}")).is_ok());
    numbers
}

/// The highest limit under which a process with these descriptors has room for just so many more.
pub fn room_for(open: &[u64], more: u64) -> u64 {
    let free = |limit: u64| limit - open.iter().filter(|&&fd| fd < limit).count() as u64;
    (0..).take_while(|&limit| free(limit) <= more).last().unwrap()
}

/// Leaves this process room for so many more descriptors, until it is raised again.
pub fn leave_room_for(more: u64) {
    limit(Resource::Nofile, Some(room_for(&descriptors(std::process::id()), more)));
}

/// A line of `/proc/PID/status` in bytes, such as VmSize, VmLck, RssShmem.
pub fn bytes_of(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

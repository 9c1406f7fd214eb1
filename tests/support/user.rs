//! Tests as other users of the machine, which it takes root to become.

#![allow(unreachable_pub, reason = "a module of tests")]

use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};

/// Becomes another user for good: root alone can.
pub fn become_user(uid: u32, groups: &[u32]) {
    let groups: Vec<Gid> = groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
    setgroups(&groups).unwrap();
    setgid(groups.first().copied().unwrap_or(Gid::from_raw(uid))).unwrap();
    setuid(Uid::from_raw(uid)).unwrap();
}

/// Whether this process can become another user; if not, the test that asks says that it is left out.
pub fn can_become_others(test: &str) -> bool {
    let can = geteuid().is_root();
    if !can {
        eprintln!("left out, since it takes root to become other users: {test}");
    }
    can
}

//! Section 4: what the kernel does of that which echo asks of it, and what echo does where it does not.
//!
//! Each feature is tried and not derived from the kernel's version, since a container's filter may refuse what the
//! kernel has. One check a feature, whose text says which way echo goes on this machine.

use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use echo::memory::probe;
use echo::peer::Peer;
use echod::surroundings::Surroundings;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::{Check, Section, State};

/// The oldest kernel that echo is tested for.
const OLDEST: (u32, u32) = (5, 15);

/// What each attempt came to.
pub(super) struct Probed {
    /// A table's kind of file; else why there is none.
    sealed_file: Result<(), String>,
    populate: Result<(), Errno>,
    never_executable: Result<(), Errno>,
    wipe_on_fork: Result<(), Errno>,
    lock: Result<(), Errno>,
    pidfd: Result<(), Errno>,
    /// Whether a socket gives a pidfd of its peer; else why it gives nothing of it.
    peer_pidfd: Result<bool, String>,
    refuses_descriptors: bool,
    waits_on_many: bool,
}

impl Probed {
    /// This kernel, in this process.
    pub(super) fn here() -> Self {
        let pair = UnixDatagram::pair();
        Self {
            sealed_file: probe::sealed_file().map_err(|error| error.to_string()),
            populate: probe::populate(),
            never_executable: probe::never_executable(),
            wipe_on_fork: probe::wipe_on_fork(),
            lock: probe::lock(),
            pidfd: pidfd_open(getpid(), PidfdFlags::empty()).map(drop),
            peer_pidfd: match &pair {
                Ok((one, _)) => {
                    let peer = Peer::of(one.as_fd());
                    peer.map(|peer| !peer.is_unproven()).map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            },
            refuses_descriptors: pair
                .is_ok_and(|(one, _)| echo::wire::socket::refuse_descriptors(one.as_fd()).is_ok()),
            waits_on_many: echo::sync::can_wait_any(),
        }
    }
}

pub(super) fn section(probed: &Probed, surroundings: &Surroundings<'_>) -> Section {
    let read = |path: &str| surroundings.read(Path::new(path)).ok();
    let checks = vec![
        version(read("/proc/sys/kernel/osrelease").as_deref().map(str::trim)),
        match &probed.sealed_file {
            Ok(()) => Check::ok("sealed memory files", "made, sealed, and opened again read-only by /proc"),
            Err(why) => Check::new("sealed memory files", State::Failed, why)
                .advise("tables are made of them: allow memfd_create and fcntl, and mount /proc"),
        }
        .require(),
        match probed.populate {
            Ok(()) => Check::ok("MADV_POPULATE_WRITE", "pages are made resident when a table is made"),
            Err(errno) => {
                Check::new("MADV_POPULATE_WRITE", State::Failed, format!("{errno}: no table can be made"))
                    .advise("Linux 5.14 or newer, and a sandbox that lets madvise through")
            }
        }
        .require(),
        never_executable(probed, read("/proc/sys/vm/memfd_noexec").as_deref().map(str::trim)),
        match probed.lock {
            Ok(()) => Check::ok("mlock", "a page can be locked; 'Memory' says how many"),
            Err(errno) => Check::new("mlock", State::Warning, format!("{errno}: no page can be locked"))
                .advise(super::memory::MORE_LOCKING),
        },
        match &probed.peer_pidfd {
            Ok(true) => Check::ok("SO_PEERPIDFD", "a client's death is known by its socket's pidfd"),
            Ok(false) => pidfd_by_pid(probed),
            Err(why) => {
                Check::new("SO_PEERPIDFD", State::Failed, format!("{why}: no client can be accepted"))
                    .advise("a sandbox that lets getsockopt through")
            }
        },
        match probed.refuses_descriptors {
            true => Check::ok("SO_PASSRIGHTS", "clients cannot send descriptors to the daemon"),
            false => Check::ok(
                "SO_PASSRIGHTS",
                "not there (Linux 6.16 has it): what clients send is closed packet by packet",
            ),
        },
        match probed.waits_on_many {
            true => Check::ok("futex_waitv", "a thread sleeps on several readers at once"),
            false => Check::ok(
                "futex_waitv",
                "not there (Linux 5.16 has it): who waits on several readers looks at all but one every 10 ms",
            ),
        },
        match probed.wipe_on_fork {
            Ok(()) => {
                Check::ok("MADV_WIPEONFORK", "a forked child knows that it is one by a page that it lost")
            }
            Err(errno) => Check::ok(
                "MADV_WIPEONFORK",
                format!("{errno}: a forked child is known by its pid, with a call each"),
            ),
        },
    ];
    Section { name: "kernel", title: "Kernel", checks }
}

fn version(release: Option<&str>) -> Check {
    let Some(release) = release else {
        return Check::new("version", State::Unknown, "/proc/sys/kernel/osrelease cannot be read");
    };
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (major, minor) = OLDEST;
    match (numbers.next(), numbers.next()) {
        (Some(Ok(found)), Some(Ok(then))) if (found, then) < OLDEST => {
            let found =
                format!("{release} is older than {major}.{minor}, the oldest that echo is tested for");
            Check::new("version", State::Warning, found)
        }
        (Some(Ok(_)), Some(Ok(_))) => Check::ok("version", release),
        _ => Check::new("version", State::Unknown, format!("{release:?} is no version")),
    }
}

fn never_executable(probed: &Probed, policy: Option<&str>) -> Check {
    let name = "MFD_NOEXEC_SEAL";
    let policy = match policy {
        Some(number) => format!("vm.memfd_noexec is {number}"),
        None => "there is no vm.memfd_noexec".into(),
    };
    match probed.never_executable {
        Ok(()) => {
            Check::ok(name, format!("memory files can never be executed, whatever the policy ({policy})"))
        }
        Err(Errno::INVAL) => Check::ok(
            name,
            format!("not there (Linux 6.3 has it; {policy}): files are made without it, of mode 0600"),
        ),
        Err(errno) => Check::new(name, State::Failed, format!("{errno} ({policy}): no table can be made"))
            .advise("a sandbox that lets memfd_create through")
            .require(),
    }
}

/// What the daemon does where a socket gives no pidfd.
fn pidfd_by_pid(probed: &Probed) -> Check {
    let name = "SO_PEERPIDFD";
    match probed.pidfd {
        Ok(()) => Check::ok(
            name,
            "not there (Linux 6.5 has it): a client's pidfd is opened by its pid, and its first message proves it; of \
             clients in PID namespaces beside the daemon's a death is not noticed",
        ),
        Err(errno) => Check::new(
            name,
            State::Failed,
            format!("not there, and pidfd_open neither ({errno}): no client is accepted"),
        )
        .advise("Linux 5.3 or newer, and a sandbox that lets pidfd_open through"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{check, machine};

    fn new() -> Probed {
        Probed {
            sealed_file: Ok(()),
            populate: Ok(()),
            never_executable: Ok(()),
            wipe_on_fork: Ok(()),
            lock: Ok(()),
            pidfd: Ok(()),
            peer_pidfd: Ok(true),
            refuses_descriptors: true,
            waits_on_many: true,
        }
    }

    #[test]
    fn an_old_kernel_is_well_and_the_fallbacks_are_named() {
        let old = Probed {
            never_executable: Err(Errno::INVAL),
            wipe_on_fork: Err(Errno::INVAL),
            peer_pidfd: Ok(false),
            refuses_descriptors: false,
            waits_on_many: false,
            ..new()
        };
        let section = section(&old, &machine(&[("/proc/sys/kernel/osrelease", "5.15.0-91-generic\n")]));
        assert!(section.checks.iter().all(|check| check.state == State::Ok), "{section:#?}");
        for (name, fallback) in [
            ("version", "5.15.0-91-generic"),
            ("MFD_NOEXEC_SEAL", "files are made without it"),
            ("SO_PEERPIDFD", "its first message proves it"),
            ("SO_PASSRIGHTS", "closed packet by packet"),
            ("futex_waitv", "every 10 ms"),
            ("MADV_WIPEONFORK", "by its pid"),
        ] {
            let found = &check(&section, name).found;
            assert!(found.contains(fallback), "{name}: {found}");
        }
    }

    #[test]
    fn what_no_table_can_do_without_is_required() {
        let poor = Probed {
            sealed_file: Err("no".into()),
            populate: Err(Errno::INVAL),
            never_executable: Err(Errno::PERM),
            lock: Err(Errno::PERM),
            pidfd: Err(Errno::NOSYS),
            peer_pidfd: Ok(false),
            ..new()
        };
        let section = section(&poor, &machine(&[]));
        for (name, state, required) in [
            ("version", State::Unknown, false),
            ("sealed memory files", State::Failed, true),
            ("MADV_POPULATE_WRITE", State::Failed, true),
            ("MFD_NOEXEC_SEAL", State::Failed, true),
            ("mlock", State::Warning, false),
            ("SO_PEERPIDFD", State::Failed, false),
        ] {
            let check = check(&section, name);
            assert_eq!((check.state, check.required), (state, required), "{check:?}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (release, state) in [
            ("6.18.44-fc", State::Ok),
            ("5.15", State::Ok),
            ("5.4.0-200-generic", State::Warning),
            ("4.18.0-553.el8", State::Warning),
            ("unknown", State::Unknown),
        ] {
            assert_eq!(version(Some(release)).state, state, "{release}");
        }
    }

    #[test]
    fn the_kernel_that_runs_these_tests_makes_tables() {
        let section = section(&Probed::here(), &Surroundings::of_this_process());
        assert!(section.checks.iter().filter(|check| check.required).all(|check| check.state == State::Ok));
    }
}

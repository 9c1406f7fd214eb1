//! Section 2: memory that can be locked, on large pages, and how much of it there is.

use std::path::Path;

use echo::memory::pages::{NoHugePages, shared_huge_page_by};
use echod::surroundings::Surroundings;

use super::process::{Limit, Limits, Locking, Process};
use super::{Check, Section, State};
use crate::view::bytes;

const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage";

/// Open files of the daemon and its sockets, beside those of tables and clients.
const OWN_FILES: u64 = 32;
/// Open files for each table and for each client.
const FILES_OF_TABLE: u64 = 5;
const FILES_OF_CLIENT: u64 = 4;
/// Clients of a node with a rollout worker a core, and some.
const ENOUGH_CLIENTS: u64 = 256;

/// `serving` is the daemon that answers, if one does, and its process, if that can be told.
pub(super) fn section(
    own: &Process,
    serving: Option<Option<&Process>>,
    surroundings: &Surroundings<'_>,
) -> Section {
    let meminfo = surroundings.read(Path::new("/proc/meminfo")).unwrap_or_default();
    let mut checks = vec![locking(own)];
    checks.extend(serving.map(|process| match process {
        Some(process) => locking(process),
        None => {
            let found = "the daemon's process cannot be told from here: it is in another container, say";
            Check::new("page locking by echod", State::Unknown, found)
        }
    }));
    let actor = serving.flatten().unwrap_or(own);
    checks.extend([huge_pages(surroundings), pools(&meminfo), amount(&meminfo), swap(&meminfo, actor)]);
    checks.extend(actor.limits.iter().flat_map(|limits| self::limits(&actor.who, limits)));
    Section { name: "memory", title: "Memory", checks }
}

/// What to do where too little may be locked.
pub(super) const MORE_LOCKING: &str = "LimitMEMLOCK=infinity in the unit; 'ulimit -l unlimited' in the shell that \
                                       starts echod, if its hard limit allows; '--ulimit memlock=-1' for docker; \
                                       or CAP_IPC_LOCK";

fn locking(process: &Process) -> Check {
    let Process { who, .. } = process;
    let name = match who.starts_with("echod") {
        true => "page locking by echod",
        false => "page locking",
    };
    match process.locking() {
        Locking::Capable => Check::ok(name, format!("{who} has CAP_IPC_LOCK: no limit")),
        Locking::Unlimited => Check::ok(name, format!("RLIMIT_MEMLOCK of {who} is unlimited")),
        Locking::UpTo(limit) => {
            let found = format!("RLIMIT_MEMLOCK of {who} is {}, and it has no CAP_IPC_LOCK", bytes(limit));
            Check::new(name, State::Warning, found).advise(MORE_LOCKING)
        }
        Locking::Unknown => {
            Check::new(name, State::Unknown, format!("/proc does not show the limits of {who}"))
        }
    }
}

/// The size of the huge pages that shared memory may have.
pub(super) fn shared_huge_page(surroundings: &Surroundings<'_>) -> Result<usize, NoHugePages> {
    let read = |path: &str| surroundings.read(Path::new(path)).ok();
    let size = read(&format!("{TRANSPARENT}/hpage_pmd_size")).and_then(|text| text.trim().parse().ok());
    shared_huge_page_by(size, read)
}

/// What to do where there are none.
pub(super) fn more_huge_pages(why: &NoHugePages) -> String {
    match why {
        NoHugePages::Off { path, .. } => format!(
            "echo advise > {path}   (as root, until the next boot; for good, the line 'w {path} - - - - advise' in \
             /etc/tmpfiles.d/echo.conf)"
        ),
        NoHugePages::Unknown => "a kernel with CONFIG_TRANSPARENT_HUGEPAGE and CONFIG_SHMEM".into(),
        NoHugePages::Unreadable(_) => "mount sysfs, or look on the host if this is a container".into(),
    }
}

fn huge_pages(surroundings: &Surroundings<'_>) -> Check {
    match shared_huge_page(surroundings) {
        Ok(size) => {
            Check::ok("huge pages", format!("shared memory may have them, of {}", bytes(size as u64)))
        }
        Err(why) => {
            let state = match why {
                NoHugePages::Unreadable(_) => State::Unknown,
                NoHugePages::Unknown | NoHugePages::Off { .. } => State::Missing,
            };
            let found = match &why {
                NoHugePages::Off { path, mode } => format!("shared memory gets none: {path} is {mode:?}"),
                why => why.to_string(),
            };
            Check::new("huge pages", state, found).advise(more_huge_pages(&why))
        }
    }
}

/// Pages that are set aside for programs that ask for them by name, which echo does not.
fn pools(meminfo: &str) -> Check {
    match line(meminfo, "Hugetlb:") {
        Some(0) | None => Check::ok("hugetlb pools", "none are reserved, and echo needs none"),
        Some(reserved) => {
            let found = format!("{} are reserved, which echo does not use", bytes(reserved));
            Check::new("hugetlb pools", State::Warning, found)
                .advise("unless another program needs them: sysctl vm.nr_hugepages=0")
        }
    }
}

fn amount(meminfo: &str) -> Check {
    match (line(meminfo, "MemTotal:"), line(meminfo, "MemAvailable:")) {
        (Some(total), Some(available)) => {
            Check::ok("memory", format!("{} of {} available", bytes(available), bytes(total)))
        }
        _ => Check::new("memory", State::Unknown, "/proc/meminfo does not say"),
    }
}

fn swap(meminfo: &str, actor: &Process) -> Check {
    match (line(meminfo, "SwapTotal:"), actor.locking()) {
        (Some(0), _) => Check::ok("swap", "none"),
        (Some(total), Locking::Capable | Locking::Unlimited) => {
            Check::ok("swap", format!("{}, where locked pages do not go", bytes(total)))
        }
        (Some(total), _) => {
            let found =
                format!("{}: what cannot be locked may be swapped, and training waits for it", bytes(total));
            Check::new("swap", State::Warning, found).advise(MORE_LOCKING)
        }
        (None, _) => Check::new("swap", State::Unknown, "/proc/meminfo does not say"),
    }
}

/// The other limits, where they can be in the way.
fn limits(who: &str, limits: &Limits) -> Vec<Check> {
    let unless_none = |name: &str, resource: &str, limit: Limit, what: &str| match limit {
        None => Check::ok(name, format!("{resource} of {who} is unlimited")),
        Some(limit) => {
            let found = format!("{resource} of {who} is {}: {what}", bytes(limit));
            Check::new(name, State::Warning, found).advise("raise it, unless all tables are smaller")
        }
    };
    let files = limits.open_files.map_or_else(
        || Check::ok("open files", format!("RLIMIT_NOFILE of {who} is unlimited")),
        |files| {
            let clients = files.saturating_sub(OWN_FILES + FILES_OF_TABLE) / FILES_OF_CLIENT;
            let found =
                format!("{who} may have {files}: room for {clients} clients, or fewer and more tables");
            match clients < ENOUGH_CLIENTS {
                true => Check::new("open files", State::Warning, found)
                    .advise("LimitNOFILE=65536 in the unit, or a higher 'ulimit -Hn'"),
                false => Check::ok("open files", found),
            }
        },
    );
    vec![
        unless_none("file size", "RLIMIT_FSIZE", limits.file_size, "no table's samples can be more"),
        unless_none(
            "addresses",
            "RLIMIT_AS",
            limits.address_space,
            "all tables' samples together must be less",
        ),
        files,
    ]
}

/// The bytes of a line of `/proc/meminfo`.
pub(super) fn line(meminfo: &str, name: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| field(line.strip_prefix(name)?))
}

/// The bytes of `  NUMBER kB`; the kernel's kB are 1024.
pub(super) fn field(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::process::tests::LIMITS;
    use crate::doctor::tests::{check, machine};

    const MEMINFO: &str = "MemTotal:       67108864 kB\nMemAvailable:    1048576 kB\nSwapTotal: 1024 kB\n\
                           HugePages_Total: 1\nHugetlb:            2048 kB\n";

    fn process(limits: Limits, ipc_lock: bool) -> Process {
        Process {
            who: "echod (pid 7)".into(),
            directory: "/proc/7".into(),
            limits: Some(limits),
            ipc_lock: Some(ipc_lock),
        }
    }

    const FREE: Limits = Limits { memlock: None, file_size: None, address_space: None, open_files: None };

    #[test]
    fn a_limit_of_locked_memory_is_a_warning_with_what_raises_it() {
        let limited = Limits { memlock: Some(8 << 20), ..FREE };
        let found = locking(&process(limited, false));
        assert_eq!(found.state, State::Warning);
        assert_eq!(found.found, "RLIMIT_MEMLOCK of echod (pid 7) is 8.0 MiB, and it has no CAP_IPC_LOCK");
        assert!(found.advice.unwrap().contains("LimitMEMLOCK=infinity"));
        assert_eq!(locking(&process(limited, true)).state, State::Ok);
        assert_eq!(locking(&process(FREE, false)).state, State::Ok);
        let hidden = Process { limits: None, ipc_lock: None, ..process(FREE, false) };
        assert_eq!(locking(&hidden).state, State::Unknown);
    }

    #[test]
    fn the_line_that_enables_huge_pages_is_told() {
        let folder = "/sys/kernel/mm/transparent_hugepage";
        let off = huge_pages(&machine(&[
            ("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n"),
            (
                "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                "always within_size advise [never] deny force\n",
            ),
            (
                "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled",
                "always [inherit] never\n",
            ),
        ]));
        assert_eq!(off.state, State::Missing);
        let advice = off.advice.unwrap();
        assert!(advice.starts_with(&format!("echo advise > {folder}/shmem_enabled ")), "{advice}");
        let of_size = huge_pages(&machine(&[
            ("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n"),
            ("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "[advise]\n"),
            ("/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled", "[never]\n"),
        ]));
        assert!(of_size.advice.unwrap().contains("hugepages-2048kB/shmem_enabled"));
        let on = huge_pages(&machine(&[
            ("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n"),
            ("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "[advise]\n"),
        ]));
        assert_eq!((on.state, on.found.as_str()), (State::Ok, "shared memory may have them, of 2.0 MiB"));
        assert_eq!(huge_pages(&machine(&[])).state, State::Missing);
    }

    #[test]
    fn memory_swap_and_pools_are_those_of_meminfo() {
        let surroundings = machine(&[("/proc/meminfo", MEMINFO), ("/proc/self/limits", LIMITS)]);
        let section = section(&Process::read(&surroundings, None), Some(None), &surroundings);
        assert_eq!(check(&section, "memory").found, "1.0 GiB of 64.0 GiB available");
        assert_eq!(check(&section, "hugetlb pools").state, State::Warning);
        assert_eq!(check(&section, "swap").state, State::Warning);
        assert_eq!(check(&section, "page locking by echod").state, State::Unknown);
        assert_eq!(swap(MEMINFO, &process(FREE, false)).state, State::Ok);
        assert_eq!(swap("SwapTotal: 0 kB\n", &process(FREE, false)).found, "none");
        assert_eq!(amount("").state, State::Unknown);
    }

    #[test]
    fn limits_that_are_in_the_way_are_warnings() {
        let states = |of: &Limits| limits("x", of).iter().map(|check| check.state).collect::<Vec<_>>();
        assert_eq!(states(&FREE), [State::Ok; 3]);
        let tight = Limits { file_size: Some(1), address_space: Some(1), open_files: Some(256), ..FREE };
        assert_eq!(states(&tight), [State::Warning; 3]);
        let files = &limits("x", &Limits { open_files: Some(4096), ..FREE })[2];
        assert_eq!(files.found, "x may have 4096: room for 1014 clients, or fewer and more tables");
    }
}

//! What the kernel allows a process, as `/proc` has it.

use std::path::PathBuf;

use echod::surroundings::Surroundings;

/// The number of `CAP_IPC_LOCK`.
const IPC_LOCK: u32 = 14;

/// A limit in its unit; none is no limit.
pub(super) type Limit = Option<u64>;

/// The limits that matter. The soft ones, but for open files, of which the daemon takes as many as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    pub(super) memlock: Limit,
    pub(super) file_size: Limit,
    pub(super) address_space: Limit,
    pub(super) open_files: Limit,
}

/// How much a process may lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Locking {
    /// Its limit says so.
    Unlimited,
    /// `CAP_IPC_LOCK` says so, whatever the limit.
    Capable,
    /// So many bytes.
    UpTo(u64),
    /// `/proc` does not show it.
    Unknown,
}

/// A process that makes tables, or would.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Process {
    /// Whose limits these are, as the subject of a sentence.
    pub(super) who: String,
    /// Where `/proc` has it.
    pub(super) directory: PathBuf,
    /// None if it cannot be read.
    pub(super) limits: Option<Limits>,
    /// Whether it has `CAP_IPC_LOCK` and the kernel heeds it.
    pub(super) ipc_lock: Option<bool>,
}

impl Process {
    /// The process of that pid; this one if there is none.
    pub(super) fn read(surroundings: &Surroundings<'_>, pid: Option<u32>) -> Self {
        let (who, directory) = match pid {
            Some(pid) => (format!("echod (pid {pid})"), format!("/proc/{pid}")),
            None => ("this process".to_owned(), "/proc/self".to_owned()),
        };
        let directory = PathBuf::from(directory);
        let text = |name: &str| surroundings.read(&directory.join(name)).ok();
        let capable = text("status").and_then(|status| has_capability(&status, IPC_LOCK));
        // In a user namespace of its own a process has capabilities that the kernel does not heed here.
        let at_home = text("uid_map").map(|map| is_initial(&map));
        let ipc_lock = match (capable, at_home) {
            (Some(false), _) => Some(false),
            (Some(true), Some(at_home)) => Some(at_home),
            _ => None,
        };
        Self { who, limits: text("limits").and_then(|text| limits(&text)), ipc_lock, directory }
    }

    /// How much it may lock.
    pub(super) fn locking(&self) -> Locking {
        match (self.limits.map(|limits| limits.memlock), self.ipc_lock) {
            (_, Some(true)) => Locking::Capable,
            (Some(None), _) => Locking::Unlimited,
            (Some(Some(bytes)), _) => Locking::UpTo(bytes),
            (None, _) => Locking::Unknown,
        }
    }
}

/// The limits of `/proc/PID/limits`.
fn limits(text: &str) -> Option<Limits> {
    let columns = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        let mut words = rest.split_ascii_whitespace().map(limit);
        Some((words.next()??, words.next()??))
    };
    Some(Limits {
        memlock: columns("Max locked memory")?.0,
        file_size: columns("Max file size")?.0,
        address_space: columns("Max address space")?.0,
        open_files: columns("Max open files")?.1,
    })
}

/// `unlimited` or a number; none is neither.
fn limit(word: &str) -> Option<Limit> {
    if word == "unlimited" { Some(None) } else { word.parse().ok().map(Some) }
}

/// Whether the effective capabilities of `/proc/PID/status` have that one.
fn has_capability(status: &str, number: u32) -> Option<bool> {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask >> number & 1 == 1)
}

/// Whether that is the map of a user namespace in which every user is itself.
fn is_initial(uid_map: &str) -> bool {
    uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::doctor::tests::machine;

    pub(in crate::doctor) const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max file size             unlimited            unlimited            bytes     
Max open files            1024                 524288               files     
Max locked memory         8388608              8388608              bytes     
Max address space         unlimited            unlimited            bytes     
";

    const HOST: &str = "         0          0 4294967295\n";

    #[test]
    fn limits_are_the_soft_ones_but_for_open_files() {
        let limits = limits(LIMITS).unwrap();
        assert_eq!(limits.memlock, Some(8 << 20));
        assert_eq!((limits.file_size, limits.address_space), (None, None));
        assert_eq!(limits.open_files, Some(524_288));
        assert_eq!(super::limits("Max locked memory  much"), None);
        assert_eq!(super::limits(""), None);
    }

    #[test]
    fn a_capability_counts_where_the_kernel_heeds_it() {
        assert_eq!(has_capability("Name: x\nCapEff:\t0000000000004000\n", IPC_LOCK), Some(true));
        assert_eq!(has_capability("CapEff:\t000001ffffffbfff\n", IPC_LOCK), Some(false));
        assert_eq!(has_capability("CapPrm:\t0000000000004000\n", IPC_LOCK), None);
        let with = |map: &'static str| {
            let files = Box::leak(Box::new([
                ("/proc/7/limits", LIMITS),
                ("/proc/7/status", "CapEff:\t0000000000004000\n"),
                ("/proc/7/uid_map", map),
            ]));
            Process::read(&machine(files), Some(7)).locking()
        };
        assert_eq!(with(HOST), Locking::Capable);
        assert_eq!(with("0 100000 65536\n"), Locking::UpTo(8 << 20));
    }

    #[test]
    fn a_process_that_is_hidden_is_not_guessed_at() {
        let hidden = Process::read(&machine(&[]), Some(7));
        assert_eq!((hidden.locking(), hidden.who.as_str()), (Locking::Unknown, "echod (pid 7)"));
        let limits = &[("/proc/self/limits", LIMITS)];
        assert_eq!(Process::read(&machine(limits), None).locking(), Locking::UpTo(8 << 20));
    }
}

//! What the daemon finds where it is started: environment variables, files, its user, the machine.
//!
//! Everything that the configuration depends on comes in through here, so that a test can say what there is
//! and no test changes the environment of its process.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The value of a variable.
type Lookup<'a> = dyn Fn(&str) -> Option<OsString> + 'a;
/// The text of a file.
type Read<'a> = dyn Fn(&Path) -> io::Result<String> + 'a;

/// The process's surroundings, or a test's.
pub struct Surroundings<'a> {
    var: Box<Lookup<'a>>,
    read: Box<Read<'a>>,
    root: bool,
    cores: u32,
}

impl<'a> Surroundings<'a> {
    /// Surroundings as told: how to look up a variable and read a file, whether the user is root, and how
    /// many cores there are.
    pub fn new(
        var: impl Fn(&str) -> Option<OsString> + 'a,
        read: impl Fn(&Path) -> io::Result<String> + 'a,
        root: bool,
        cores: u32,
    ) -> Self {
        Self { var: Box::new(var), read: Box::new(read), root, cores }
    }

    /// Those of this process.
    pub fn of_this_process() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        Self::new(
            |name| std::env::var_os(name),
            |path| std::fs::read_to_string(path),
            rustix::process::geteuid().is_root(),
            cores,
        )
    }

    /// An environment variable. An empty one counts as not set: that is how a unit file takes one back.
    pub fn var(&self, name: &str) -> Option<OsString> {
        (self.var)(name).filter(|value| !value.is_empty())
    }

    /// A variable that holds a directory; a relative one is ignored, as the XDG base directories want it.
    pub fn directory(&self, name: &str) -> Option<PathBuf> {
        self.var(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// The text of a file.
    ///
    /// # Errors
    /// Those of reading it, and `InvalidData` if it is not UTF-8.
    pub fn read(&self, path: &Path) -> io::Result<String> {
        (self.read)(path)
    }

    /// Whether the effective user is root.
    pub fn is_root(&self) -> bool {
        self.root
    }

    /// Cores that this process may run on; at least 1.
    pub fn cores(&self) -> u32 {
        self.cores.max(1)
    }

    /// Bytes of memory that this process can have: those of the machine, by `/proc/meminfo`, or what its control
    /// groups (of version 2) allow it, whichever is less.
    ///
    /// # Errors
    /// Those of reading `/proc/meminfo`, and `InvalidData` if it does not say.
    pub fn memory(&self) -> io::Result<u64> {
        let text = self.read(Path::new("/proc/meminfo"))?;
        let total = mem_total(&text).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo has no line \"MemTotal: NUMBER kB\"")
        })?;
        Ok(self.group_limits().fold(total, u64::min))
    }

    /// The memory limits of the process's own control group and of those above it. None where there are no groups.
    fn group_limits(&self) -> impl Iterator<Item = u64> {
        let own = self.read(Path::new("/proc/self/cgroup")).ok().and_then(|text| {
            let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
            Some(Path::new("/sys/fs/cgroup").join(path))
        });
        let mut limits = Vec::new();
        for group in
            own.iter().flat_map(|own| own.ancestors()).take_while(|group| group.starts_with("/sys/fs/cgroup"))
        {
            // "max", or no file at all where the controller is off: no limit.
            let text = self.read(&group.join("memory.max")).unwrap_or_default();
            limits.extend(text.trim().parse::<u64>().ok());
        }
        limits.into_iter()
    }
}

/// The bytes of the line `MemTotal:  NUMBER kB`; the kernel's kB are 1024 bytes.
fn mem_total(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let number: u64 = rest.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_what_the_kernel_says() {
        let meminfo = "MemFree:          1 kB\nMemTotal:       65845480 kB\nMemAvailable: 7 kB\n";
        assert_eq!(mem_total(meminfo), Some(65_845_480 * 1024));
        for bad in ["", "MemTotal: 12\n", "MemTotal: much kB\n", "MemTotal: 18446744073709551615 kB"] {
            assert_eq!(mem_total(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let memory = |groups: &'static [(&str, &str)]| {
            let read = move |path: &Path| match path.to_str().unwrap() {
                "/proc/meminfo" => Ok("MemTotal: 1000 kB\n".to_owned()),
                "/proc/self/cgroup" => Ok("4:memory:/old\n0::/pod/echod\n".to_owned()),
                path => {
                    let found = groups.iter().find(|(group, _)| path == format!("{group}/memory.max"));
                    found.map(|(_, max)| format!("{max}\n")).ok_or(io::ErrorKind::NotFound.into())
                }
            };
            Surroundings::new(|_| None, read, true, 1).memory().unwrap()
        };
        assert_eq!(memory(&[]), 1_024_000);
        assert_eq!(memory(&[("/sys/fs/cgroup/pod/echod", "max"), ("/sys/fs/cgroup/pod", "4096")]), 4096);
        assert_eq!(memory(&[("/sys/fs/cgroup/pod/echod", "512"), ("/sys/fs/cgroup/pod", "4096")]), 512);
        assert_eq!(memory(&[("/sys/fs/cgroup", "99999999")]), 1_024_000, "more than there is");
        assert_eq!(memory(&[("/sys/fs", "1")]), 1_024_000, "that is no group");
    }

    #[test]
    fn an_empty_variable_is_not_set_and_a_relative_directory_is_ignored() {
        let var = |name: &str| {
            Some(OsString::from(match name {
                "EMPTY" => "",
                "RELATIVE" => "run/user",
                _ => "/run/user/7",
            }))
        };
        let surroundings = Surroundings::new(var, |_| Err(io::ErrorKind::NotFound.into()), false, 0);
        assert_eq!(surroundings.var("EMPTY"), None);
        assert_eq!(surroundings.directory("RELATIVE"), None);
        assert_eq!(surroundings.directory("OTHER"), Some(PathBuf::from("/run/user/7")));
        assert_eq!(surroundings.cores(), 1);
    }
}

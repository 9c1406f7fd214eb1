//! The control groups of a process, and what memory they leave it.

use std::path::{Path, PathBuf};

use echod::surroundings::Surroundings;

const ROOT: &str = "/sys/fs/cgroup";
/// What version 1 says where there is no limit: the largest number of whole pages, of any size of page.
const NO_LIMIT: u64 = 1 << 62;

/// What one group allows its processes, in bytes; none is no limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub(super) path: PathBuf,
    pub(super) max: Option<u64>,
    /// Beyond it, processes are slowed down.
    pub(super) high: Option<u64>,
    pub(super) swap_max: Option<u64>,
}

/// The groups that count a process's memory, the process's own first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Groups {
    /// Of version 2, from the process's own up.
    Unified(Vec<Group>),
    /// Of version 1, which `echod` does not look at when it chooses its budget.
    Legacy(Vec<Group>),
    /// None that is known.
    Unknown,
}

impl Groups {
    /// Those of the process that has this directory in `/proc`.
    pub(super) fn read(surroundings: &Surroundings<'_>, process: &Path) -> Self {
        let Ok(text) = surroundings.read(&process.join("cgroup")) else { return Self::Unknown };
        let number = |path: &Path, name: &str| -> Option<u64> {
            surroundings.read(&path.join(name)).ok()?.trim().parse().ok().filter(|&bytes| bytes < NO_LIMIT)
        };
        if let Some(own) = legacy(&text) {
            let limit = |path: PathBuf| Group {
                max: number(&path, "memory.limit_in_bytes"),
                high: number(&path, "memory.soft_limit_in_bytes"),
                swap_max: None,
                path,
            };
            return Self::Legacy(above(&Path::new(ROOT).join("memory"), &own).map(limit).collect());
        }
        let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::")) else { return Self::Unknown };
        let limit = |path: PathBuf| Group {
            max: number(&path, "memory.max"),
            high: number(&path, "memory.high"),
            swap_max: number(&path, "memory.swap.max"),
            path,
        };
        Self::Unified(above(Path::new(ROOT), own).map(limit).collect())
    }

    fn all(&self) -> &[Group] {
        match self {
            Self::Unified(groups) | Self::Legacy(groups) => groups,
            Self::Unknown => &[],
        }
    }

    /// The group that allows least.
    pub(super) fn tightest(&self) -> Option<&Group> {
        self.all().iter().filter(|group| group.max.is_some()).min_by_key(|group| group.max)
    }

    /// The group that slows down first. Version 1's soft limit does not.
    pub(super) fn first_to_slow(&self) -> Option<&Group> {
        let Self::Unified(groups) = self else { return None };
        groups.iter().filter(|group| group.high.is_some()).min_by_key(|group| group.high)
    }

    /// The least that a group lets be swapped.
    pub(super) fn swap(&self) -> Option<u64> {
        self.all().iter().filter_map(|group| group.swap_max).min()
    }

    /// The process's own group.
    pub(super) fn own(&self) -> Option<&Path> {
        self.all().first().map(|group| group.path.as_path())
    }
}

/// The path of the memory group in `/proc/PID/cgroup`, if version 1 counts memory.
fn legacy(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then(|| path.to_owned())
    })
}

/// A group and those above it. Outside of its namespace a group begins with `/..`, and cannot be found.
fn above(root: &Path, own: &str) -> impl Iterator<Item = PathBuf> {
    let root = root.to_owned();
    let own = if own.starts_with("/..") { root.clone() } else { root.join(own.trim_start_matches('/')) };
    let groups: Vec<_> =
        own.ancestors().take_while(|path| path.starts_with(&root)).map(PathBuf::from).collect();
    groups.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::machine;

    #[test]
    fn the_tightest_group_above_a_process_counts() {
        let surroundings = machine(&[
            ("/proc/7/cgroup", "0::/pod/echod\n"),
            ("/sys/fs/cgroup/pod/echod/memory.max", "max\n"),
            ("/sys/fs/cgroup/pod/echod/memory.high", "2048\n"),
            ("/sys/fs/cgroup/pod/memory.max", "4096\n"),
            ("/sys/fs/cgroup/pod/memory.swap.max", "0\n"),
        ]);
        let groups = Groups::read(&surroundings, Path::new("/proc/7"));
        assert_eq!(groups.own(), Some(Path::new("/sys/fs/cgroup/pod/echod")));
        assert_eq!(groups.tightest().unwrap().path, Path::new("/sys/fs/cgroup/pod"));
        assert_eq!(groups.first_to_slow().unwrap().high, Some(2048));
        assert_eq!(groups.swap(), Some(0));
        assert_eq!(groups.all().len(), 3, "and the root");
    }

    #[test]
    fn groups_of_version_1_are_known_as_such() {
        let surroundings = machine(&[
            ("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/job/7\n0::/\n"),
            ("/sys/fs/cgroup/memory/job/7/memory.limit_in_bytes", "4096\n"),
            ("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        let groups = Groups::read(&surroundings, Path::new("/proc/self"));
        assert!(matches!(groups, Groups::Legacy(_)), "{groups:?}");
        assert_eq!(groups.tightest().unwrap().max, Some(4096));
        assert_eq!(groups.all()[1].max, None);
        assert_eq!(groups.first_to_slow(), None);
    }

    #[test]
    fn a_process_without_groups_or_outside_of_the_namespace_has_no_limit() {
        assert_eq!(Groups::read(&machine(&[]), Path::new("/proc/self")), Groups::Unknown);
        let outside = machine(&[("/proc/self/cgroup", "0::/../../other\n")]);
        let groups = Groups::read(&outside, Path::new("/proc/self"));
        assert_eq!((groups.tightest(), groups.own()), (None, Some(Path::new("/sys/fs/cgroup"))));
    }
}

//! Section 3: where memory is, and how much of it a process may have.

use std::path::Path;

use echod::surroundings::Surroundings;

use super::groups::Groups;
use super::memory::field;
use super::process::Process;
use super::{Check, Section, State};
use crate::view::bytes;

const NODES: &str = "/sys/devices/system/node";

pub(super) fn section(actor: &Process, surroundings: &Surroundings<'_>) -> Section {
    let mut checks = nodes(surroundings);
    checks.extend(groups(actor, &Groups::read(surroundings, &actor.directory)));
    Section { name: "numa", title: "NUMA nodes and control groups", checks }
}

fn nodes(surroundings: &Surroundings<'_>) -> Vec<Check> {
    let read = |path: &str| surroundings.read(Path::new(&format!("{NODES}/{path}"))).ok();
    let Some(online) = read("online").and_then(|text| numbers(text.trim())) else {
        let found = format!("{NODES}/online cannot be read: this kernel has no NUMA, or hides it");
        return vec![Check::new("nodes", State::Unknown, found)];
    };
    let all = match &online[..] {
        [_] => Check::ok("nodes", "1: all memory is equally near"),
        many => Check::ok(
            "nodes",
            format!("{}: a table's pages are on the node of the threads that made them", many.len()),
        )
        .advise(
            "to have them near a GPU, start echod by 'numactl --cpunodebind=NODE --preferred=NODE echod'",
        ),
    };
    let node = |number: &u32| {
        let cpus = read(&format!("node{number}/cpulist"));
        let memory = read(&format!("node{number}/meminfo"));
        // Each line begins with "Node 0 ".
        let part = |name: &str| {
            let text = memory.as_ref()?;
            text.lines().find_map(|line| field(line.split_once(name).map(|(_, rest)| rest)?))
        };
        let name = format!("node {number}");
        match (cpus, part("MemTotal:"), part("MemFree:")) {
            (Some(cpus), Some(total), Some(free)) => {
                let cpus = if cpus.trim().is_empty() { "no cpus" } else { &format!("cpus {}", cpus.trim()) };
                Check::ok(name, format!("{cpus}, {} of {} free", bytes(free), bytes(total)))
            }
            _ => Check::new(name, State::Unknown, format!("{NODES}/node{number} does not say")),
        }
    };
    [all].into_iter().chain(online.iter().map(node)).collect()
}

fn groups(actor: &Process, groups: &Groups) -> Vec<Check> {
    let who = &actor.who;
    let Some(own) = groups.own() else {
        let found =
            format!("the group of {who} is not known: a container's limit, if there is one, is not seen");
        return vec![Check::new("control group", State::Unknown, found)];
    };
    let own = own.display();
    let mut checks = Vec::new();
    let limit = match groups.tightest() {
        Some(group) => {
            let max = bytes(group.max.unwrap_or_default());
            format!("{max}, by {} ({who} is in {own})", group.path.display())
        }
        None => format!("none ({who} is in {own})"),
    };
    checks.push(match groups {
        Groups::Legacy(_) if groups.tightest().is_some() => Check::new(
            "memory limit",
            State::Warning,
            format!("{limit}; of version 1, which echod does not look at"),
        )
        .advise("set host_budget, since its default is half of the machine's memory"),
        _ => Check::ok("memory limit", limit),
    });
    if let Some(group) = groups.first_to_slow() {
        let high = bytes(group.high.unwrap_or_default());
        let found = format!("memory.high of {} is {high}", group.path.display());
        let advice = "keep host_budget below it, or write \"max\" into it: locked pages cannot be reclaimed, and who \
                      allocates beyond it is slowed down";
        checks.push(Check::new("slowed down", State::Warning, found).advise(advice));
    }
    if let Some(swap) = groups.swap() {
        let found = if swap == 0 { "none: nothing of it is swapped".into() } else { bytes(swap) };
        checks.push(Check::ok("swap limit", found));
    }
    checks
}

/// The numbers of a list such as `0-1,4`; none if it is no list.
fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // No machine has more; what says so is no list of nodes.
        (first <= last && last < 1 << 16).then_some(())?;
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{check, machine};

    #[test]
    fn a_list_of_numbers_has_ranges() {
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!(numbers("0-2,5"), Some(vec![0, 1, 2, 5]));
        for bad in ["", "a", "3-1", "0-4294967295", "0,"] {
            assert_eq!(numbers(bad), None, "{bad}");
        }
    }

    #[test]
    fn each_node_is_shown_with_its_cpus_and_memory() {
        let surroundings = machine(&[
            ("/sys/devices/system/node/online", "0-1\n"),
            ("/sys/devices/system/node/node0/cpulist", "0-15\n"),
            (
                "/sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal:       67108864 kB\nNode 0 MemFree:         1048576 kB\n",
            ),
            ("/sys/devices/system/node/node1/cpulist", "\n"),
            ("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 1024 kB\nNode 1 MemFree: 0 kB\n"),
        ]);
        let section = section(&Process::read(&surroundings, None), &surroundings);
        assert!(check(&section, "nodes").advice.as_ref().unwrap().contains("numactl"));
        assert_eq!(check(&section, "node 0").found, "cpus 0-15, 1.0 GiB of 64.0 GiB free");
        assert_eq!(check(&section, "node 1").found, "no cpus, 0 B of 1.0 MiB free");
        assert_eq!(check(&section, "control group").state, State::Unknown);
        assert_eq!(nodes(&machine(&[]))[0].state, State::Unknown);
    }

    #[test]
    fn a_limit_names_the_group_that_sets_it() {
        let surroundings = machine(&[
            ("/proc/7/cgroup", "0::/pod/echod\n"),
            ("/sys/fs/cgroup/pod/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/pod/memory.high", "536870912\n"),
            ("/sys/fs/cgroup/pod/memory.swap.max", "0\n"),
        ]);
        let section = section(&Process::read(&surroundings, Some(7)), &surroundings);
        assert_eq!(
            check(&section, "memory limit").found,
            "1.0 GiB, by /sys/fs/cgroup/pod (echod (pid 7) is in /sys/fs/cgroup/pod/echod)"
        );
        assert_eq!(check(&section, "slowed down").state, State::Warning);
        assert_eq!(check(&section, "swap limit").found, "none: nothing of it is swapped");
        let old = machine(&[
            ("/proc/7/cgroup", "4:memory:/job\n"),
            ("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n"),
        ]);
        let limit = &groups(&Process::read(&old, Some(7)), &Groups::read(&old, Path::new("/proc/7")))[0];
        assert_eq!(limit.state, State::Warning);
        assert!(limit.advice.as_ref().unwrap().contains("host_budget"));
    }
}

//! Which pages the kernel gives to shared memory, and which it gave.

use std::fs;
use std::io;

use thiserror::Error;

use crate::memory::syscalls;

/// What a set of address ranges is made of, as the kernel counts it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PagesGot {
    /// Bytes that are resident.
    pub resident: u64,
    /// Bytes that are locked.
    pub locked: u64,
    /// Bytes on huge pages.
    pub huge: u64,
}

/// Why shared memory gets no huge pages.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum NoHugePages {
    #[error("this kernel has no transparent huge pages")]
    Unknown,
    #[error("{0} cannot be read")]
    Unreadable(String),
    #[error("{path} is {mode:?}: write \"advise\" into it")]
    Off { path: String, mode: String },
}

/// The size of the huge pages that shared memory may have on this machine.
///
/// # Errors
/// Why it has none, for people.
pub fn shared_huge_page() -> Result<usize, NoHugePages> {
    shared_huge_page_by(syscalls::huge_page_size(), |path| fs::read_to_string(path).ok())
}

/// The same of a machine whose huge pages have that size, if it has any, and whose files are read like this.
///
/// # Errors
/// Why it has none, for people.
pub fn shared_huge_page_by(
    size: Option<usize>,
    read: impl Fn(&str) -> Option<String>,
) -> Result<usize, NoHugePages> {
    let size = size.ok_or(NoHugePages::Unknown)?;
    let folder = "/sys/kernel/mm/transparent_hugepage";
    let of_size = format!("{folder}/hugepages-{}kB/shmem_enabled", size >> 10);
    let of_all = format!("{folder}/shmem_enabled");
    let chosen = |path: &str| read(path).and_then(|text| selected(&text));
    let (path, mode) = match chosen(&of_size) {
        Some(mode) if mode != "inherit" => (of_size, mode),
        _ => match chosen(&of_all) {
            Some(mode) => (of_all, mode),
            None => return Err(NoHugePages::Unreadable(of_all)),
        },
    };
    match mode.as_str() {
        "always" | "within_size" | "advise" | "force" => Ok(size),
        _ => Err(NoHugePages::Off { path, mode }),
    }
}

/// The selected one of `always [never] advise`.
fn selected(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (mode, _) = rest.split_once(']')?;
    Some(mode.to_owned())
}

/// Counts the pages behind ranges of this process's addresses, `(start, end)` each.
///
/// # Errors
/// If `/proc` is not there.
pub fn count(ranges: &[(usize, usize)]) -> io::Result<PagesGot> {
    Ok(count_in(&fs::read_to_string("/proc/self/smaps")?, ranges))
}

fn count_in(smaps: &str, ranges: &[(usize, usize)]) -> PagesGot {
    let mut got = PagesGot::default();
    let mut counted = false;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some((start, end)) = address_range(first) {
            counted = ranges.iter().any(|&(from, to)| start < to && from < end);
            continue;
        }
        let field = match first {
            "Rss:" => &mut got.resident,
            "Locked:" => &mut got.locked,
            "ShmemPmdMapped:" => &mut got.huge,
            _ => continue,
        };
        if counted && let Some(Ok(kib)) = words.next().map(str::parse::<u64>) {
            *field += kib << 10;
        }
    }
    got
}

/// `7f0000000000-7f0000001000`
fn address_range(word: &str) -> Option<(usize, usize)> {
    let (start, end) = word.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_in_brackets_is_the_one_that_counts() {
        assert_eq!(selected("always within_size advise [never] deny force\n").as_deref(), Some("never"));
        assert_eq!(selected("never"), None);
    }

    #[test]
    fn the_file_of_the_size_is_stronger_than_that_of_all() {
        let folder = "/sys/kernel/mm/transparent_hugepage";
        let with = |of_size: Option<&'static str>, of_all: Option<&'static str>| {
            shared_huge_page_by(Some(2 << 20), move |path| {
                let text = if path.contains("hugepages-2048kB") { of_size } else { of_all };
                text.map(|mode| format!("always [{mode}]\n"))
            })
        };
        assert_eq!(with(None, Some("advise")), Ok(2 << 20));
        assert_eq!(with(Some("inherit"), Some("within_size")), Ok(2 << 20));
        assert_eq!(with(Some("advise"), Some("never")), Ok(2 << 20));
        let off =
            |path: &str| Err(NoHugePages::Off { path: format!("{folder}/{path}"), mode: "never".into() });
        assert_eq!(with(Some("never"), Some("advise")), off("hugepages-2048kB/shmem_enabled"));
        assert_eq!(with(Some("inherit"), Some("never")), off("shmem_enabled"));
        assert_eq!(with(None, None), Err(NoHugePages::Unreadable(format!("{folder}/shmem_enabled"))));
        assert_eq!(shared_huge_page_by(None, |_| None), Err(NoHugePages::Unknown));
    }

    #[test]
    fn pages_are_counted_in_the_ranges_alone() {
        let smaps = "1000-3000 rw-s 00000000 00:01 5 /memfd:a\nSize: 8 kB\nRss: 8 kB\nLocked: 4 kB\n\
                     ShmemPmdMapped: 0 kB\nVmFlags: rd wr\n\
                     5000-6000 rw-p 00000000 00:00 0\nRss: 4 kB\nLocked: 4 kB\nShmemPmdMapped: 2048 kB\n";
        assert_eq!(count_in(smaps, &[(0x1000, 0x3000)]), PagesGot { resident: 8192, locked: 4096, huge: 0 });
        let both = PagesGot { resident: 12288, locked: 8192, huge: 2 << 20 };
        assert_eq!(count_in(smaps, &[(0x1000, 0x3000), (0x5800, 0x7000)]), both);
        assert_eq!(count_in(smaps, &[(0x3000, 0x5000)]), PagesGot::default());
    }
}

//! What is mapped where, which a driver sees when it takes hold of pages.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a range of this process's memory is made of, all of it.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    /// Some of it is shared with a file on a disk, which the kernel pins for nobody who might write.
    pub(crate) is_on_disk: bool,
    /// Files it shares, by device and inode.
    pub(crate) files: Vec<(String, u64)>,
}

/// None if some of the range is not mapped.
pub(crate) fn look(start: usize, bytes: usize) -> Option<Memory> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    look_in(&maps, start, start.checked_add(bytes)?, is_in_memory)
}

fn look_in(maps: &[u8], start: usize, end: usize, is_in_memory: impl Fn(&[u8]) -> bool) -> Option<Memory> {
    let mut memory = Memory { is_readable: true, is_writable: true, ..Memory::default() };
    let mut next = start;
    for line in maps.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let mapping = Mapping::parse(line)?;
        if mapping.end <= next {
            continue;
        }
        if mapping.start > next {
            return None;
        }
        memory.is_readable &= mapping.permissions[0] == b'r';
        memory.is_writable &= mapping.permissions[1] == b'w';
        if mapping.permissions[3] == b's' && mapping.inode != 0 {
            memory.is_on_disk |= !is_in_memory(mapping.path);
            let file = (mapping.device, mapping.inode);
            if !memory.files.contains(&file) {
                memory.files.push(file);
            }
        }
        next = mapping.end;
        if next >= end {
            return Some(memory);
        }
    }
    None
}

struct Mapping<'a> {
    start: usize,
    end: usize,
    permissions: &'a [u8],
    device: String,
    inode: u64,
    path: &'a [u8],
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let mut next = || fields.next();
        let (range, permissions, _offset, device, inode) = (next()?, next()?, next()?, next()?, next()?);
        let (start, end) = str::from_utf8(range).ok()?.split_once('-')?;
        Some(Self {
            start: usize::from_str_radix(start, 16).ok()?,
            end: usize::from_str_radix(end, 16).ok()?,
            permissions: (permissions.len() == 4).then_some(permissions)?,
            device: str::from_utf8(device).ok()?.to_owned(),
            inode: str::from_utf8(inode).ok()?.parse().ok()?,
            path: next().unwrap_or_default().trim_ascii_start(),
        })
    }
}

/// Memory has its pages nowhere else, so nobody counts who wrote them.
fn is_in_memory(path: &[u8]) -> bool {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    const HUGETLBFS: rustix::fs::FsWord = 0x9584_58f6;
    const NAMELESS: [&[u8]; 4] = [b"/memfd:", b"/dev/zero", b"/SYSV", b"/anon_hugepage"];
    if NAMELESS.iter().any(|name| path.starts_with(name)) {
        return true;
    }
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    // A deleted file is not found; its directory is.
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let found =
        [Some(path), path.parent()].into_iter().flatten().find_map(|path| rustix::fs::statfs(path).ok());
    found.is_some_and(|found| [TMPFS, HUGETLBFS].contains(&found.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
1000-3000 rw-s 00000000 00:01 7                          /memfd:a b (deleted)
3000-4000 r--s 00000000 00:01 7                          /memfd:a b (deleted)
4000-5000 rw-s 00000000 08:01 9                          /data/file
5000-6000 rw-p 00000000 00:00 0 
8000-9000 ---p 00000000 00:00 0                          [heap]
";

    fn look(start: usize, end: usize) -> Option<Memory> {
        look_in(MAPS, start, end, |path| !path.starts_with(b"/data"))
    }

    #[test]
    fn a_range_may_lie_in_several_mappings_and_in_no_gap() {
        let memfd = look(0x1234, 0x2345).unwrap();
        assert!(memfd.is_readable && memfd.is_writable && !memfd.is_on_disk);
        assert_eq!(memfd.files, [("00:01".to_owned(), 7)]);
        let three = look(0x2000, 0x5000).unwrap();
        assert!(three.is_readable && !three.is_writable && three.is_on_disk);
        assert_eq!(three.files.len(), 2);
        assert_eq!(look(0x5000, 0x6000).unwrap().files, []);
        assert!(!look(0x8000, 0x9000).unwrap().is_readable);
        assert_eq!(look(0x5000, 0x6001), None);
        assert_eq!(look(0xfff, 0x1001), None);
        assert_eq!(look(0x9000, 0x9001), None);
    }
}

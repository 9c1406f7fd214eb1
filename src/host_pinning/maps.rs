//! Which files a process has mapped, by `/proc/self/maps`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::library_name;

/// A file that is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MappedFile {
    /// Its path when it was mapped.
    pub(super) path: PathBuf,
    /// Nothing has that name any more, or another file.
    pub(super) deleted: bool,
}

/// What the kernel appends to the path of a file without a name.
const DELETED: &[u8] = b" (deleted)";
/// Where a memfd says that it is; the loader never knew it by that.
const MEMFD: &[u8] = b"/memfd:";

/// The CUDA runtimes among the mapped files, each once, the newest version first.
///
/// The kernel lists them by address, which is chance: of two versions the first is no better than the second.
pub(super) fn runtimes(maps: &[u8]) -> Vec<MappedFile> {
    let mut found: Vec<MappedFile> = Vec::new();
    for line in maps.split(|&byte| byte == b'\n') {
        let Some(file) = mapped_file(line) else { continue };
        if is_runtime(&file.path) && !found.contains(&file) {
            found.push(file);
        }
    }
    // A copy that still has its name before one that lost it.
    found.sort_by_key(|file| (library_name::order(name_of(&file.path)), file.deleted));
    found
}

fn is_runtime(path: &Path) -> bool {
    library_name::version(name_of(path)).is_some()
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// The file of a line: `START-END PERMISSIONS OFFSET DEVICE INODE   PATH`.
fn mapped_file(line: &[u8]) -> Option<MappedFile> {
    let mut rest = line;
    for _ in 0..5 {
        let end = rest.iter().position(|&byte| byte == b' ')?;
        rest = rest[end..].trim_ascii_start();
    }
    // What is in brackets is no file.
    if !rest.starts_with(b"/") || rest.starts_with(MEMFD) {
        return None;
    }
    let (path, deleted) = match rest.strip_suffix(DELETED) {
        Some(path) => (path, true),
        None => (rest, false),
    };
    Some(MappedFile { path: decoded(path).into(), deleted })
}

/// The path that was meant: the kernel writes a newline as an octal escape, and everything else as it is.
fn decoded(text: &[u8]) -> OsString {
    const NEWLINE: &[u8] = br"\012";
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        match rest.strip_prefix(NEWLINE) {
            Some(after) => {
                path.push(b'\n');
                rest = after;
            }
            None => {
                path.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(maps: &str) -> Vec<(String, bool)> {
        let files = runtimes(maps.as_bytes()).into_iter();
        files.map(|file| (file.path.into_os_string().into_string().unwrap(), file.deleted)).collect()
    }

    const LINE: &str = "7f00-7f01 r-xp 00001000 08:01 4242                       ";

    #[test]
    fn a_library_of_several_mappings_is_one_file() {
        let path = "/venv/nvidia/cuda_runtime/lib/libcudart.so.12";
        let maps = format!(
            "{LINE}{path}\n{LINE}/lib/libc.so.6\n{LINE}{path}\n7ffc-7ffd rw-p 00000000 00:00 0 [stack]\n"
        );
        assert_eq!(found(&maps), [(path.to_owned(), false)]);
    }

    #[test]
    fn spaces_newlines_and_deleted_files_are_understood() {
        let maps = format!(
            "{LINE}/a b  c/libcudart.so.12\n{LINE}/x\\012y/libcudart.so.12\n{LINE}/gone/libcudart.so.12 (deleted)"
        );
        let expected = [
            ("/a b  c/libcudart.so.12", false),
            ("/x\ny/libcudart.so.12", false),
            ("/gone/libcudart.so.12", true),
        ];
        assert_eq!(found(&maps), expected.map(|(path, deleted)| (path.to_owned(), deleted)));
    }

    #[test]
    fn of_several_versions_the_newest_is_first_wherever_it_is_mapped() {
        let maps = format!(
            "{LINE}/b/libcudart-0badcafe.so.11.0\n{LINE}/a/libcudart.so.12\n{LINE}/z/libcudart.so.13"
        );
        let names: Vec<String> = found(&maps).into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["/z/libcudart.so.13", "/a/libcudart.so.12", "/b/libcudart-0badcafe.so.11.0"]);
    }

    #[test]
    fn what_is_no_runtime_is_passed_over() {
        let maps = format!(
            "{LINE}/a/libcudart_stub.so\n{LINE}/memfd:libcudart.so.12 (deleted)\n{LINE}/a/libcudart.so.12/data\n\
             {LINE}libcudart.so.12\n{LINE}[libcudart.so.12]\nnonsense\n\n7f00-7f01 r-xp 0 08:01 1\n"
        );
        assert_eq!(found(&maps), []);
    }

    #[test]
    fn the_maps_of_this_process_can_be_read() {
        let maps = std::fs::read("/proc/self/maps").unwrap();
        let files: Vec<_> = maps.split(|&byte| byte == b'\n').filter_map(mapped_file).collect();
        let own = std::env::current_exe().unwrap();
        assert!(files.iter().any(|file| file.path == own), "{files:?}");
    }
}

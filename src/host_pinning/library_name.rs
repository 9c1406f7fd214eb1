//! Which file names are those of a CUDA runtime.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The version in a runtime's name: 12 of `libcudart.so.12`, 11 and 0 of `libcudart.so.11.0`; empty for
/// `libcudart.so`. None if this is no runtime's name.
///
/// Accepted are `libcudart.so[.N...]`, and `libcudart-HASH.so[.N...]` as wheels name the copies that they bundle.
/// `libcudart_stub.so` and its like, which hold no runtime, are not.
pub(super) fn version(name: &OsStr) -> Option<Vec<u32>> {
    let name = name.to_str()?;
    let rest = name.strip_prefix("libcudart")?;
    let rest = match rest.strip_prefix('-') {
        None => rest,
        Some(hashed) => {
            let end = hashed.find('.')?;
            let (hash, rest) = hashed.split_at(end);
            if hash.is_empty() || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return None;
            }
            rest
        }
    };
    let numbers = rest.strip_prefix(".so")?;
    if numbers.is_empty() {
        return Some(Vec::new());
    }
    numbers.strip_prefix('.')?.split('.').map(number).collect()
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Sorts names: versioned before unversioned, the newest first, then by bytes.
pub(super) fn order(name: &OsStr) -> (Reverse<Vec<u32>>, Vec<u8>) {
    (Reverse(version(name).unwrap_or_default()), name.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_told_from_what_is_called_alike() {
        let version = |name: &str| version(OsStr::new(name));
        assert_eq!(version("libcudart.so"), Some(vec![]));
        assert_eq!(version("libcudart.so.12"), Some(vec![12]));
        assert_eq!(version("libcudart.so.11.0"), Some(vec![11, 0]));
        assert_eq!(version("libcudart.so.12.9.79"), Some(vec![12, 9, 79]));
        assert_eq!(version("libcudart-d0da41ae.so.11.0"), Some(vec![11, 0]));
        assert_eq!(version("libcudart-9335f6a2.so"), Some(vec![]));
        for no in [
            "libcudart_stub.so",
            "libcudart_static.a",
            "libcudart.so.12.bak",
            "libcudart.so.",
            "libcudart.so.+1",
            "libcudart.so.99999999999",
            "libcudart-.so.12",
            "libcudart-stub.so.12",
            "libcudart-12ab",
            "libcudart.sox",
            "libcuda.so.1",
            "xlibcudart.so.12",
            "",
        ] {
            assert_eq!(version(no), None, "{no}");
        }
    }

    #[test]
    fn the_newest_comes_first_and_the_unversioned_last() {
        let mut names =
            ["libcudart.so", "libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13", "libcudart.so.12.9"];
        names.sort_by_key(|name| order(OsStr::new(name)));
        let sorted =
            ["libcudart.so.13", "libcudart.so.12.9", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"];
        assert_eq!(names, sorted);
    }
}
